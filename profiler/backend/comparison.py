"""A real run beside a simulated one: each pass predicted and measured, and the numbers of the whole runs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple, TypeVar

from profiler.backend.stopwatch import DRAFT, MOVE, TARGET, Stopwatch
from specsim.calibration.fit import Errors
from specsim.core.protocols import Belief
from specsim.metrics.recorder import Record
from specsim.metrics.summary import summarise
from specsim.pass_shape import PassShape

Result = TypeVar("Result")
TIMES = ("mean_ttft_ms", "p99_ttft_ms", "mean_tpot_ms", "p99_tpot_ms", "mean_e2el_ms")
SERVICE = ("slo_attainment", "slo_goodput_tokens_per_s", "mean_tokens_per_verification", "iterations", "preemptions")
"""What is compared of whole runs: keys of ``metrics.json``, and of its block ``specsim``."""


class Passed(NamedTuple):
    """A pass that has run: whose, its shape, and its seconds."""

    role: str
    shape: PassShape
    seconds: float


class NotingStopwatch:
    """A stopwatch that notes what another one times in `passes`, the moving of caches left out."""

    def __init__(self, inner: Stopwatch) -> None:
        self.passes: list[Passed] = []
        self._inner = inner

    def timed(self, role: str, shape: PassShape, run: Callable[[], Result]) -> tuple[Result, float]:
        """Return the result and the seconds; see `profiler.backend.stopwatch.Stopwatch`."""
        result, seconds = self._inner.timed(role, shape, run)
        if role != MOVE:
            self.passes.append(Passed(role, shape, seconds))
        return result, seconds

    def untimed(self, run: Callable[[], Result]) -> Result:
        """Return the result; see `profiler.backend.stopwatch.Stopwatch`."""
        return self._inner.untimed(run)


class PassErrors(NamedTuple):
    """The passes of one kind and batch size, and the errors of their predictions relative to what was measured."""

    kind: str
    batched_tokens: str
    passes: int
    errors: Errors


class Both(NamedTuple):
    """One number of two runs; None where a run has none."""

    real: float | None
    simulated: float | None


def kind_of(role: str, shape: PassShape) -> str:
    """Return whose pass it is, and of which kind: docs/profiling.md lists the kinds."""
    if shape.prefill_tokens:
        kind = "prefill" if shape.prefill_tokens == shape.batched_tokens else "mixed"
    elif role == TARGET:
        kind = "verify" if shape.batched_tokens > shape.requests else "decode"
    else:
        kind = "step" if shape.batched_tokens == shape.logit_tokens else "catch-up"
    return f"{role} {kind}"


def pass_errors(passes: Sequence[Passed], predicted: Belief) -> list[PassErrors]:
    """Return the errors of a latency model by kind and size (batched tokens up to a power of two), the worst first."""
    models = {TARGET: predicted.target, DRAFT: predicted.draft}
    found: dict[tuple[str, int], list[float]] = {}
    for role, shape, seconds in passes:
        size = (int(shape.batched_tokens) - 1).bit_length()
        found.setdefault((kind_of(role, shape), size), []).append(models[role].seconds(shape) / seconds - 1)
    told = [PassErrors(kind, _sizes(size), len(each), Errors.of(each)) for (kind, size), each in found.items()]
    return sorted(told, key=lambda each: -each.errors.median)


def _sizes(size: int) -> str:
    return f"{2 ** (size - 1) + 1}-{2**size}" if size > 1 else str(2**size)


def run_numbers(real: Record, simulated: Record) -> dict[str, Both]:
    """Return `TIMES` and `SERVICE` of both runs."""
    metrics = [summarise(record.table(), record.totals) for record in (real, simulated)]
    whole = {name: Both(*(each[name] for each in metrics)) for name in TIMES}
    return whole | {name: Both(*(each["specsim"][name] for each in metrics)) for name in SERVICE}
