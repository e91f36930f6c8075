"""What a fit trusts in a samples file: numbers that are numbers, facts of a finished sweep, nothing counted twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from profiler.latency.samples import Sample

FACTS: dict[str, type | tuple[type, ...]] = {
    **dict.fromkeys(("target", "draft", "device", "dtype", "attention", "hardware", "driver"), str),
    **dict.fromkeys(("torch", "transformers", "specsim"), str),
    **dict.fromkeys(("tp", "memory_bytes"), int),
    **dict.fromkeys(("flops_per_s", "bytes_per_s", "knee_tokens"), (int, float)),
    "assumptions": list,
}
"""What the metadata of a finished sweep holds, beside each model's sizes and its kernel's error."""
SIZES: dict[str, type | tuple[type, ...]] = {"name": str, "kv_bytes_per_token": int, "weights_bytes": int}
ABOVE_ZERO = ("median_s", "batched_tokens", "logit_tokens")
NOT_BELOW = ("prepare_s", "sample_s", "all_reduce_s", "context_tokens", "attention_pairs")


def check_numbers(where: str, sample: Sample) -> None:
    """Refuse a sample without its numbers; a skipped point's may be NaN.

    Raises
    ------
    SpecsimError
        Naming `where` and the first key.
    """
    values = asdict(sample)
    for key, value in values.items():
        if value is None:
            raise SpecsimError(f"{where}: {key}: null; expected a value")
    if sample.status != "ok":
        return
    for key in ABOVE_ZERO:
        if not 0 < values[key] < math.inf:
            raise SpecsimError(f"{where}: {key}: {values[key]}; expected a number above 0 where the status is ok")
    for key in NOT_BELOW:
        if not 0 <= values[key] < math.inf:
            raise SpecsimError(f"{where}: {key}: {values[key]}; expected a number, 0 or more, where the status is ok")


def check_finished(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse the metadata of a sweep that has not got to both models.

    Raises
    ------
    SpecsimError
        Naming the first fact that is missing or no value of its kind.
    """
    wanted = dict(FACTS)
    told = dict(facts)
    for role in ("target", "draft"):
        wanted |= {f"models.{role}.{key}": kind for key, kind in SIZES.items()}
        told |= {f"models.{role}.{key}": _at(facts, "models", role, key) for key in SIZES}
        wanted[f"attention_error.{role}"] = (int, float)
        told[f"attention_error.{role}"] = _at(facts, "attention_error", role)
    for key, kind in wanted.items():
        value = told.get(key)
        if value is None:
            raise SpecsimError(f"{path}: metadata: {key}: missing; expected a finished sweep of both models")
        if not isinstance(value, kind) or (isinstance(value, float) and not math.isfinite(value)):
            raise SpecsimError(f"{path}: metadata: {key}: {value!r}; expected what `specsim profile latency` writes")


def _at(facts: Any, *keys: str) -> Any:
    for key in keys:
        facts = facts.get(key) if isinstance(facts, Mapping) else None
    return facts


def check_apart(path: Path, samples: list[Sample], more: list[Sample]) -> None:
    """Refuse measurements that stand among `samples` already: they would count twice.

    Raises
    ------
    SpecsimError
        Naming the first.
    """
    known = {(*each.name, each.measured_at, each.median_s) for each in samples}
    for each in more:
        if (*each.name, each.measured_at, each.median_s) in known:
            raise SpecsimError(f"{path}: {each.role} {each.key} was in a file before; expected each samples file once")
