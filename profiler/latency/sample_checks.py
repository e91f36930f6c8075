"""Checks of a samples file before a fit: numbers, facts of a finished sweep, no measurement twice."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.latency.points import DRAFT_KINDS, TARGET_KINDS
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import is_number, is_whole, shown
from specsim.latency.profile import MOST_BYTES

if TYPE_CHECKING:
    from profiler.latency.samples import Sample

Fits = Callable[[object], bool]
KINDS = {"target": TARGET_KINDS, "draft": DRAFT_KINDS}
MODES = ("graph", "eager")


def is_text(value: object) -> bool:
    """Return whether a value is a string."""
    return isinstance(value, str)


def is_count(value: object) -> bool:
    """Return whether a value is a whole number of at least 1."""
    return is_whole(value, 1, MOST_BYTES)


def is_positive(value: object) -> bool:
    """Return whether a value is a finite number above 0."""
    return is_number(value) and value > 0


FACTS: dict[str, Fits] = {
    **dict.fromkeys(("target", "draft", "device", "dtype", "attention", "hardware", "driver"), is_text),
    **dict.fromkeys(("torch", "transformers", "specsim"), is_text),
    **dict.fromkeys(("tp", "memory_bytes"), is_count),
    **dict.fromkeys(("flops_per_s", "bytes_per_s", "knee_tokens"), is_positive),
    "assumptions": lambda value: isinstance(value, list) and all(map(is_text, value)),
}
"""Required metadata of a finished sweep, besides each model's sizes and its kernel's error."""
SIZES: dict[str, Fits] = {
    "name": is_text,
    "kv_bytes_per_token": is_count,
    "weights_bytes": lambda value: is_whole(value, 0, MOST_BYTES),
}
RULES: tuple[tuple[tuple[str, ...], Callable[[float], bool], str], ...] = (
    (
        ("median_s", "batched_tokens", "captured_tokens", "logit_tokens"),
        lambda value: 0 < value < math.inf,
        "a number above 0 where the status is ok",
    ),
    (
        ("prepare_s", "sample_s", "all_reduce_s", "context_tokens", "attention_pairs"),
        lambda value: 0 <= value < math.inf,
        "a number, 0 or more, where the status is ok",
    ),
    (
        ("mean_s",),
        lambda value: math.isnan(value) or 0 < value < math.inf,
        "a number above 0, or NaN in an older file",
    ),
    (
        ("host_s", "sm_clock_mhz"),
        lambda value: math.isnan(value) or 0 <= value < math.inf,
        "a number, 0 or more, or NaN",
    ),
)
"""The check of each number of a measured sample, and what it expects in words."""


def check_numbers(where: str, sample: Sample) -> None:
    """Refuse a measured sample without its numbers; those of a skipped point may be NaN.

    Raises
    ------
    SpecsimError
        Naming `where` and the first key.
    """
    values = asdict(sample)
    for key, value in values.items():
        if value is None:
            raise SpecsimError(f"{where}: {key}: null; expected a value")
    for key, known in (("role", KINDS), ("mode", MODES), ("kind", KINDS.get(sample.role, ()))):
        if values[key] not in known:
            raise SpecsimError(f"{where}: {key}: {values[key]!r}; expected one of {', '.join(known)}")
    if sample.status != "ok":
        return
    for keys, fits, expected in RULES:
        for key in keys:
            if not fits(values[key]):
                raise SpecsimError(f"{where}: {key}: {values[key]}; expected {expected}")


def check_finished(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse the metadata of a sweep that has not reached both models.

    Raises
    ------
    SpecsimError
        Naming the first key that is missing or has a value of another kind.
    """
    wanted = dict(FACTS)
    told = dict(facts)
    for role in ("target", "draft"):
        wanted |= {f"models.{role}.{key}": fits for key, fits in SIZES.items()}
        told |= {f"models.{role}.{key}": _at(facts, "models", role, key) for key in SIZES}
        wanted[f"attention_error.{role}"] = lambda value: is_number(value) and value >= 0
        told[f"attention_error.{role}"] = _at(facts, "attention_error", role)
    for key, fits in wanted.items():
        value = told.get(key)
        if value is None:
            raise SpecsimError(f"{path}: metadata: {key}: missing; expected a finished sweep of both models")
        if not fits(value):
            raise SpecsimError(
                f"{path}: metadata: {key}: {shown(value)}; expected what `specsim profile latency` writes"
            )


def _at(facts: Any, *keys: str) -> Any:
    for key in keys:
        facts = facts.get(key) if isinstance(facts, Mapping) else None
    return facts


def check_apart(path: Path, samples: list[Sample], more: list[Sample]) -> None:
    """Refuse measurements that are already in `samples`, which would count twice.

    Raises
    ------
    SpecsimError
        Naming the first.
    """
    known = {(*each.name, each.measured_at, each.median_s) for each in samples}
    for each in more:
        if (*each.name, each.measured_at, each.median_s) in known:
            raise SpecsimError(f"{path}: {each.role} {each.key} was in a file before; expected each samples file once")
