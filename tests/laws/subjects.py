"""Every scheduler under conf/scheduler, by name, with parameters drawn around those of its YAML."""

import importlib
import typing
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from inspect import signature
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from specsim.core.protocols import Scheduler
from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.registry import parameter_types
from specsim.schedulers.loading import AS_ENGINE, BY_ORDER, EngineBatching, scheduler_factory
from tests.made import WIDTH

FILES = sorted((shipped("conf") / "scheduler").glob("*.yaml"))
NAMES = [file.stem for file in FILES if "_target_" in file.read_text()]
KINDS = (
    *("fcfs", "continuous", "sarathi", "las", "vtc", "vllm_spec", "smartspec_artifact", "specserve"),
    *("adaserve", "specinfer", "laps_sd", "slos_serve", "nightjar", "adaptive_verification"),
)
"""One scheduler of each kind: by batching, by drafts, by what it keeps between steps."""


def raw_of(name: str, order: str = "mixed") -> dict[str, Any]:
    """Return a scheduler's YAML as it is written, the caller's own copy.

    Where it batches as the engine does, it has the part of an engine of this `order`, and its limits.
    """
    raw = deepcopy(_read(name))
    if raw.get("batching") != AS_ENGINE:
        return raw
    limits = EngineBatching()._asdict()
    own = {key: limits[key] if value is None else value for key, value in raw.items()}
    return own | {"batching": {"_target_": BY_ORDER[order]}}


def written_out(mapping: dict[str, Any], above: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return a YAML in which each part gives the keys that it is handed from `above`, too."""
    if mapping.get("_partial_"):
        return mapping
    handed = {**(above or {}), **mapping}
    own = mapping | {key: handed[key] for key in signature(target_of(mapping)).parameters if key in handed}
    for key, value in own.items():
        if isinstance(value, dict) and "_target_" in value:
            own[key] = written_out(value, {each: handed[each] for each in handed if each != key})
    return own


def part_of(name: str, *path: str) -> dict[str, Any]:
    """Return a part of a scheduler's YAML that can stand in another: it gives all that it is handed."""
    part = written_out(raw_of(name))
    for key in path:
        part = part[key]
    return part


@cache
def _read(name: str) -> dict[str, Any]:
    return read_yaml(shipped("conf") / "scheduler" / f"{name}.yaml")


def factory_of(name: str, order: str = "mixed", **overrides: Any) -> Callable[[], Scheduler]:
    """Return the scheduler's factory with other values of keys that stand at the top of its YAML."""
    return scheduler_factory(raw_of(name, order) | overrides, name)


def uses_oracle(name: str) -> bool:
    return bool(raw_of(name).get("oracle", False))


@st.composite
def factories(draw: st.DrawFn, name: str) -> Callable[[], Scheduler]:
    """Draw the scheduler as shipped, or with other numbers and other choices in small, sane ranges."""
    raw = raw_of(name, draw(st.sampled_from(sorted(BY_ORDER))))
    if draw(st.booleans()):
        raw = _varied(draw, raw, _literals(raw))
    try:
        return scheduler_factory(raw, name)
    except SpecsimError:
        assume(False)
        raise


def _varied(draw: st.DrawFn, mapping: dict[str, Any], choices: dict[str, tuple[Any, ...]]) -> dict[str, Any]:
    varied = dict(mapping)
    for key, value in mapping.items():
        if isinstance(value, dict) and "_target_" in value:
            varied[key] = _varied(draw, value, choices)
        elif isinstance(value, bool):
            varied[key] = draw(st.booleans())
        elif isinstance(value, int):
            most = WIDTH if "width" in key else 64
            varied[key] = draw(st.integers(1, min(value, most)) if value else st.integers(0, 2))
        elif isinstance(value, float):
            varied[key] = draw(st.sampled_from((value, value / 2, value * 1.5)))
        elif key in choices:
            varied[key] = draw(st.sampled_from(choices[key]))
    return varied


def target_of(mapping: dict[str, Any]) -> Any:
    """Return the class or function that a node names."""
    module, _, attribute = mapping["_target_"].rpartition(".")
    return getattr(importlib.import_module(module), attribute)


def _literals(mapping: dict[str, Any]) -> dict[str, tuple[Any, ...]]:
    """Return the words that each parameter of a scheduler and its parts may be, by name."""
    found: dict[str, tuple[Any, ...]] = {}
    for value in mapping.values():
        if isinstance(value, dict) and "_target_" in value:
            found |= _literals(value)
    hints = parameter_types(target_of(mapping))
    return found | {
        key: typing.get_args(hint) for key, hint in hints.items() if typing.get_origin(hint) is typing.Literal
    }
