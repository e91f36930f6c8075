"""The results of a sweep: the profile, its figures, and a table of errors."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from profiler.latency.profile_file import HEADING, ROLES, profile_mapping
from profiler.latency.text import write, yaml_text
from specsim.errors import SpecsimError


@dataclass(frozen=True, slots=True)
class Places:
    """The paths of the profile, the raw samples and the figures."""

    profile: Path
    samples: Path
    figures: Path

    @classmethod
    def of(cls, out: Path, samples: Path | None, figures: Path | None) -> Places:
        """Return the places; by default samples are beside the profile, and figures beside the samples."""
        kept = samples or out.with_name(f"{out.stem}.samples.parquet")
        return cls(out, kept, figures or kept.parent)


def write_profile(places: Places, samples: list[Path]) -> str:
    """Fit, write profile and figures, and return a text for the user.

    Raises
    ------
    SpecsimError
        When the samples are too few or a file cannot be written.
    """
    from profiler.latency.figures import draw

    name = places.profile.stem
    mapping, choices = profile_mapping(name, samples)
    try:
        write(places.profile, yaml_text(mapping, HEADING))
        figures = draw(choices, mapping, places.figures, name)
    except OSError as error:
        raise SpecsimError(f"{error.filename or places.profile}: cannot be written: {error.strerror}") from None
    return "\n".join([*summary(mapping), str(places.profile), *map(str, samples), *map(str, figures)])


def summary(mapping: dict[str, Any]) -> list[str]:
    """Return a table of held-out errors of the form in use, and a line about each model's ridge."""
    form = mapping["form"]
    lines = [f"{mapping['description']}: {form}", f"{'held-out error':18}{'median':>8}{'p95':>8}{'worst':>8}"]
    for role in ROLES:
        for kind, error in mapping[role]["held_out_error"][form].items():
            shown = "".join(f"{100 * error[each]:7.1f}%" for each in ("median", "p95", "worst"))
            lines.append(f"{role + ' ' + kind:18}{shown}")
    for role, knee in mapping["checks"]["knee_tokens"].items():
        ridge = "no ridge" if knee["fitted"] is None else f"ridge at {knee['fitted']:.0f} batched tokens"
        lines.append(f"{role}: {ridge}; compute over bandwidth {knee['compute_over_bandwidth']:.0f}")
    lines += [line for line in mapping["assumptions"] if line.startswith("skipped: ")]
    return lines
