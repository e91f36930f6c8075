"""Settings that change nothing: each is refused, since a user who sets one expects that it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from specsim.config.configured import Configured
from specsim.config.groups import LABELS, defaults, file_of
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.files.yaml_file import peek_yaml
from specsim.kinds.installed import ENTRY_POINTS
from specsim.kinds.plugins import unused_plugins
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
    why: dict[tuple[str, str], list[str | None]] = {}
    for point, config in points:
        for key, value in point.items():
            why.setdefault((key, str(value)), []).append(_reason(key, config))
    for (key, value), reasons in why.items():
        if reasons[0] is not None and None not in reasons:
            raise SpecsimError(f"{key}={value}: changes nothing: {reasons[0]}")


def _reason(key: str, config: Mapping[str, Any]) -> str | None:
    """Return why a setting changes nothing in a run, None where it may."""
    group, _, below = key.partition(".")
    if below and below.partition(".")[0] in LABELS.get(group, ()):
        return f"{below.partition('.')[0]} says what {group}={config['choices'][group]} is, and no run reads it"
    if group == "router" and max(pools(CheckedMapping("", "", config))) == 1:
        one = below or config["choices"]["router"] != defaults()["router"]
        said = f"replicas={config['replicas']}" + (", one in each pool," if config["replicas"] > 1 else "")
        return f"{said} leaves a router no choice" if one else None
    if group == "split" and config["split"]["prefill"] is None and config["split"][below] is not None:
        return "no replica only reads prompts (split.prefill)"
    if group == "profile" and below:
        return _of_profile(below, config)
    if key in ("engine.graph_step", "engine.graph_most") and config["engine"]["graph_tokens"] is None:
        return f"engine={config['choices']['engine']} captures no graphs (engine.graph_tokens)"
    if key == "drafter.launch_s":
        return _of_launch(config)
    if key in OF_ARRIVALS and config["concurrency"] is not None:
        return f"with concurrency={config['concurrency']} clients send as they are answered"
    if key in ("trace.rps", "trace.n"):
        over = {"trace.rps": "rps", "trace.n": "requests"}[key]
        return f"{over}={config[over]} goes before it" if config[over] is not None else None
    return _of_plugins(config) if key == "plugins" else None


def _of_profile(key: str, config: Mapping[str, Any]) -> str | None:
    profile, source = config["profile"], f"profile={config['choices']['profile']}"
    role, _, below = key.partition(".")
    part, _, rest = below.partition(".")
    if key == "gpus":
        path = file_of("profile", config["choices"]["profile"])
        return f"the times of {source} are of {'its own' if path is None else peek_yaml(path).get('gpus')} GPUs"
    if key == "memory_bytes" and "usable_kv_bytes" in profile:
        return f"{source} states usable_kv_bytes"
    if part in ERRORS:
        return f"{part} says how well the times of {source} are known, and no run reads it"
    if part == "nonembedding_bytes":
        return f"{part} holds the times of {source} against the peaks of its hardware, and no time depends on it"
    if role == "draft" and part in OF_THE_DRAFT_MODEL and config["drafter"].get("kind") != "separate":
        return f"drafter={config['choices']['drafter']} drafts, not the draft model of {source}"
    if part == "overhead_s" and config["engine"]["overhead_s"] is not None:
        return f"engine={config['choices']['engine']} states overhead_s"
    if part == "launch_s" and (role == "target" or config["drafter"].get("graphs", True)):
        return "only draft passes without CUDA graphs (drafter.graphs=false) are launched kernel by kernel"
    used = profile["form"]
    if part == "forms" and used in profile[role]["forms"] and rest.partition(".")[0] not in ("", used):
        return f"the form in use is {used} (profile.form)"
    return None


def _of_launch(config: Mapping[str, Any]) -> str | None:
    if config["drafter"].get("kind") != "separate":
        return None
    if config["drafter"]["graphs"]:
        return "draft passes run in CUDA graphs (drafter.graphs=true)"
    measured = config["profile"]["draft"].get("launch_s")
    return None if measured is None else f"profile={config['choices']['profile']} measured draft.launch_s={measured}"


def _of_plugins(config: Mapping[str, Any]) -> str | None:
    plugins = config["plugins"]
    unused = unused_plugins(
        {group: config[group] for group in ENTRY_POINTS}, [plugins] if isinstance(plugins, str) else plugins
    )
    if not unused:
        return None
    chosen = [f"{group}={config['choices'][group]}" for group in ENTRY_POINTS if "_target_" in config[group]]
    return f"no _target_ of {', '.join(chosen)} names anything in {unused[0]}"
