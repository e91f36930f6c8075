"""The measures that the claims compare: a scheduler's runs, one a seed, on the same requests and the same text."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np

from specsim.api import simulate
from specsim.core.request import Floats
from specsim.latency.profile import profile_from_mapping
from specsim.metrics.requests import VERIFY_PASS
from specsim.pass_shape import PassShapes
from studies.claims import settings as frozen

MEASURES = ("slo_attainment", "tpot_attainment")
"""The share that met every objective, and the paper's: TPOT alone."""
LASTING: dict[str, Any] = {**frozen.SMARTSPEC, "requests": 1500, "rps": frozen.SMARTSPEC_RATES[-1]}
"""Not of the frozen settings: the highest rate held for 23 s instead of 3, longer than any request takes."""
THINKING = {key: value for key, value in frozen.SPECSERVE.items() if not key.startswith("selection_")}
"""SpecServe's with the time that selecting takes."""


@cache
def _metrics(scheduler: str, settings: tuple[tuple[str, Any], ...]) -> list[dict[str, Any]]:
    return [simulate(scheduler, **dict(settings), seed=seed).metrics for seed in frozen.SEEDS]


def mean_e2el_s(scheduler: str, **settings: Any) -> Floats:
    """Return the mean end-to-end latency of each seed, (seeds,)."""
    return np.array([found["mean_e2el_ms"] / 1e3 for found in _metrics(scheduler, tuple(settings.items()))])


def fixed(tokens: int, settings: dict[str, Any]) -> Floats:
    """Return the mean end-to-end latency of chains of so many tokens per seed, (seeds,)."""
    return mean_e2el_s("vllm_spec", **settings, scheduler__num_speculative_tokens=tokens)


def attainment(measure: str, scheduler: str, **settings: Any) -> Floats:
    """Return one of `MEASURES` of each seed, (seeds,)."""
    return np.array([found["specsim"][measure] for found in _metrics(scheduler, tuple(settings.items()))])


def late_steps(scheduler: str, settings: dict[str, Any]) -> int:
    """Return how many decoding steps exceed the objective although the same rows would meet it without drafts."""
    count = 0
    for seed in frozen.SEEDS:
        run = simulate(scheduler, **settings, seed=seed)
        target = profile_from_mapping(run.config["profile"], "profile").target
        objective_s = float(run.requests["slo_tpot_s"].iloc[0])
        passes = run.passes
        assert passes is not None
        ends = np.flatnonzero(passes["kind"] == VERIFY_PASS)
        until_s = np.concatenate((np.zeros(1), np.cumsum(passes["seconds"])[ends]))
        verified = passes.iloc[ends].assign(step_s=np.diff(until_s)).query("prefill_tokens == 0")
        context, rows = verified["context_tokens"].to_numpy(), verified["requests"].to_numpy()
        plain_s = target.seconds_array(PassShapes(context, rows, context + rows, rows, 0, 0))
        assert (plain_s <= objective_s).any()
        late = verified["step_s"].to_numpy() > objective_s * (1 + 1e-9)
        count += int(np.count_nonzero(late & (plain_s <= objective_s)))
    return count
