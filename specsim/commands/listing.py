"""Lines of `specsim list`."""

from __future__ import annotations

from specsim.config.groups import choices, file_of
from specsim.latency.profile import load_profile
from specsim.metrics.tables import aligned

INSTALLED = "installed"
ERROR = "error: the worst median of held-out passes, by kind and model; docs/profiles.md says of what"


def lines(group: str) -> list[str]:
    """Return a line for each name of a group; profiles have a table for each GPU."""
    said = choices(group)
    if group != "profile":
        wide = max(map(len, said))
        return [f"{name:{wide}}  {line}" for name, line in said.items()]
    tables: dict[str, list[tuple[str, ...]]] = {}
    for name, line in said.items():
        gpu, row = _profile(name, line)
        tables.setdefault(gpu, [(gpu, "target + draft", "source", "GPUs", "error")]).append(row)
    return [line for _, rows in sorted(tables.items()) for line in aligned(rows, left=3)] + [ERROR]


def _profile(name: str, line: str) -> tuple[str, tuple[str, ...]]:
    """Return the GPU of a profile and its row."""
    path = file_of("profile", name)
    if path is None:
        return INSTALLED, (name, line, "", "", "")
    profile = load_profile(path)
    models = profile.target, profile.draft
    medians = [each["median"] for model in models for each in model.fit_error.values()]
    source = profile.provenance[0].get("versions", "") if profile.provenance else ""
    return profile.hardware, (
        name,
        " + ".join(each.name for each in models),
        source.split(",")[0].split(" on ")[0],
        str(profile.gpus),
        f"{100 * max(medians):.1f}%" if medians else "-",
    )
