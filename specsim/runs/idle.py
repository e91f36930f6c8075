"""Settings that change nothing: each is refused, since a user who sets one expects that it does."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.config.choices import Choices, choices_in
from specsim.config.configured import Configured
from specsim.config.groups import LABELS, defaults, file_of
from specsim.config.schema import Settings, settings_in, written
from specsim.errors import SpecsimError
from specsim.files.yaml_file import peek_yaml
from specsim.kinds.plugins import unused_plugins
from specsim.runs.prepare import extensible
from specsim.runs.split import pools

OF_ARRIVALS = {f"trace.{key}" for key in ("rps", "cv", "burst_requests", "on_share", "off_rate_ratio", "tick_s")}
ERRORS = {"standard_errors", "held_out_error"}
OF_THE_DRAFT_MODEL = {"name", "kv_bytes_per_token", "forms", "valid", "launch_s"}


def check_idle(points: Sequence[Configured]) -> None:
    """Refuse a setting that changes none of the runs it is set for; the configurations are valid ones.

    What matters to some run of a sweep may be set for all of it.

    Raises
    ------
    SpecsimError
        One line naming the key, the value and why.
    """
    why: dict[tuple[str, str], str | None] = {}
    for point, config in points:
        doubted = [each for key, value in point.items() if why.get(each := (key, str(value)), "") is not None]
        if not doubted:
            continue
        settings, chosen = settings_in(config), choices_in(config)
        for each in doubted:
            reason = _reason(each[0], settings, chosen)
            why[each] = reason and why.get(each, reason)
    for (key, shown), told in why.items():
        if told is not None:
            raise SpecsimError(f"{key}={shown}: changes nothing: {told}")


def _reason(key: str, settings: Settings, chosen: Choices) -> str | None:
    """Return why a setting changes nothing in a run, None where it may."""
    group, _, below = key.partition(".")
    if below and below.partition(".")[0] in LABELS.get(group, ()):
        return f"{below.partition('.')[0]} says what {getattr(chosen, group)} is, and no run reads it"
    if group == "router" and max(pools(settings.split, settings.replicas)) == 1:
        one = below or chosen.router.name != defaults()["router"]
        said = f"replicas={settings.replicas}" + (", one in each pool," if settings.replicas > 1 else "")
        return f"{said} leaves a router no choice" if one else None
    if group == "split" and settings.split.prefill is None and getattr(settings.split, below, True) is not None:
        return "no replica only reads prompts (split.prefill)"
    if group == "profile" and below:
        return _of_profile(below, chosen)
    if key in ("engine.graph_step", "engine.graph_most") and chosen.engine.values["graph_tokens"] is None:
        return f"{chosen.engine} captures no graphs (engine.graph_tokens)"
    if key == "drafter.launch_s":
        return _of_launch(chosen)
    if key in OF_ARRIVALS and settings.concurrency is not None:
        return f"with concurrency={settings.concurrency} clients send as they are answered"
    if key in ("trace.rps", "trace.n"):
        over, value = ("rps", settings.rps) if key == "trace.rps" else ("requests", settings.requests)
        return f"{over}={written(value)} goes before it" if value is not None else None
    return _of_plugins(settings.plugins, chosen) if key == "plugins" else None


def _of_profile(key: str, chosen: Choices) -> str | None:
    profile, source, drafter = chosen.profile.values, chosen.profile, chosen.drafter.values
    role, _, below = key.partition(".")
    part, _, rest = below.partition(".")
    if key == "gpus":
        path = file_of("profile", source.name)
        return f"the times of {source} are of {'its own' if path is None else peek_yaml(path).get('gpus')} GPUs"
    if key == "memory_bytes" and "usable_kv_bytes" in profile:
        return f"{source} states usable_kv_bytes"
    if part in ERRORS:
        return f"{part} says how well the times of {source} are known, and no run reads it"
    if part == "nonembedding_bytes":
        return f"{part} holds the times of {source} against the peaks of its hardware, and no time depends on it"
    if role == "draft" and part in OF_THE_DRAFT_MODEL and drafter.get("kind") != "separate":
        return f"{chosen.drafter} drafts, not the draft model of {source}"
    if part == "overhead_s" and chosen.engine.values["overhead_s"] is not None:
        return f"{chosen.engine} states overhead_s"
    if part == "launch_s" and (role == "target" or drafter.get("graphs", True)):
        return "only draft passes without CUDA graphs (drafter.graphs=false) are launched kernel by kernel"
    used = profile["form"]
    if part == "forms" and used in profile[role]["forms"] and rest.partition(".")[0] not in ("", used):
        return f"the form in use is {used} (profile.form)"
    return None


def _of_launch(chosen: Choices) -> str | None:
    if chosen.drafter.values.get("kind") != "separate":
        return None
    if chosen.drafter.values["graphs"]:
        return "draft passes run in CUDA graphs (drafter.graphs=true)"
    measured = chosen.profile.values.get("draft", {}).get("launch_s")
    return None if measured is None else f"{chosen.profile} measured draft.launch_s={measured}"


def _of_plugins(plugins: Sequence[str], chosen: Choices) -> str | None:
    groups = extensible(chosen)
    unused = unused_plugins(groups, plugins)
    if not unused:
        return None
    named = [str(getattr(chosen, group)) for group, values in groups.items() if "_target_" in values]
    return f"no _target_ of {', '.join(named)} names anything in {unused[0]}"
