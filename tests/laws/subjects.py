"""Every scheduler under conf/scheduler, by name, with parameters drawn around those of its YAML."""

from __future__ import annotations

import importlib
import typing
from collections.abc import Callable
from copy import deepcopy
from functools import cache
from typing import Any

from hypothesis import assume
from hypothesis import strategies as st

from specsim.config import compose
from specsim.errors import SpecsimError
from specsim.paths import shipped
from specsim.protocols import Scheduler
from specsim.schedulers.loading import parameter_types, scheduler_factory
from tests.made import WIDTH


def _names() -> list[str]:
    files = sorted((shipped("conf") / "scheduler").glob("*.yaml"))
    return [file.stem for file in files if "_target_" in file.read_text()]


NAMES = _names()


@cache
def _composed(name: str) -> dict[str, Any]:
    chosen: dict[str, Any] = compose({"scheduler": name})["scheduler"]
    return chosen


def mapping_of(name: str) -> dict[str, Any]:
    """Return a scheduler's composed YAML, the caller's own copy."""
    return deepcopy(_composed(name))


def factory_of(name: str, **overrides: Any) -> Callable[[], Scheduler]:
    return scheduler_factory(mapping_of(name) | overrides, name)


def is_clairvoyant(name: str) -> bool:
    return bool(_composed(name).get("clairvoyant", False))


@st.composite
def factories(draw: st.DrawFn, name: str) -> Callable[[], Scheduler]:
    """Draw the scheduler as shipped, or with other numbers and other choices in small, sane ranges."""
    mapping = mapping_of(name)
    if draw(st.booleans()):
        mapping = _varied(draw, mapping)
    try:
        return scheduler_factory(mapping, name)
    except SpecsimError:
        assume(False)
        raise


def _varied(draw: st.DrawFn, mapping: dict[str, Any]) -> dict[str, Any]:
    choices = _literals(mapping["_target_"])
    varied = dict(mapping)
    for key, value in mapping.items():
        if isinstance(value, dict) and "_target_" in value:
            varied[key] = _varied(draw, value)
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


def _literals(target_name: str) -> dict[str, tuple[Any, ...]]:
    module, _, attribute = target_name.rpartition(".")
    target = getattr(importlib.import_module(module), attribute)
    return {
        key: typing.get_args(hint)
        for key, hint in parameter_types(target).items()
        if typing.get_origin(hint) is typing.Literal
    }
