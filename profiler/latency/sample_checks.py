"""Checks of a samples file before a fit: numbers, facts of a finished sweep, no measurement twice."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from profiler.latency.points import DRAFT_KINDS, TARGET_KINDS
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from profiler.latency.samples import Sample

KINDS = {"target": TARGET_KINDS, "draft": DRAFT_KINDS}
FACTS = [
    *("target", "draft", "device", "dtype", "attention", "hardware", "driver", "torch", "transformers", "specsim"),
    *("tp", "memory_bytes", "flops_per_s", "bytes_per_s", "knee_tokens", "assumptions"),
    *(f"models.{role}.{key}" for role in KINDS for key in ("name", "kv_bytes_per_token", "weights_bytes")),
    *(f"attention_error.{role}" for role in KINDS),
]
"""Metadata of a finished sweep, by dotted keys."""
ABOVE_0 = ("median_s", "batched_tokens", "captured_tokens", "logit_tokens")
LEAST_0 = ("prepare_s", "sample_s", "all_reduce_s", "context_tokens", "attention_pairs")
"""Numbers of a measured sample by what they must be."""


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
    for key, known in (("role", KINDS), ("mode", ("graph", "eager")), ("kind", KINDS.get(sample.role, ()))):
        if values[key] not in known:
            raise SpecsimError(f"{where}: {key}: {values[key]!r}; expected one of {', '.join(known)}")
    for keys, least, expected in ((ABOVE_0, 5e-324, "above 0"), (LEAST_0, 0.0, "of 0 or more")):
        for key in keys:
            if sample.status == "ok" and not least <= values[key] < math.inf:
                raise SpecsimError(
                    f"{where}: {key}: {values[key]}; expected a number {expected} where the status is ok"
                )


def check_finished(path: Path, facts: Mapping[str, Any]) -> None:
    """Refuse the metadata of a sweep that has not reached both models.

    Raises
    ------
    SpecsimError
        Naming the first key that is missing.
    """
    for dotted in FACTS:
        value: Any = facts
        for key in dotted.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        if value is None:
            raise SpecsimError(f"{path}: metadata: {dotted}: missing; expected a finished sweep of both models")


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
