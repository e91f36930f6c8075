"""A line about a scheduler whose speculation hardly ran, and why, where the objectives forbid a draft."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from specsim.pass_shape import PassShape
from specsim.simulation import Simulation

RARELY = 0.1
"""Share of decoding steps below which a scheduler hardly drafts."""


def hardly_drafts(scheduler: str, rows: Mapping[str, Any], iterations: int, simulation: Simulation) -> tuple[str, ...]:
    """Return a line where few of the decoding steps of `rows`, of a run of `iterations`, had a draft token.

    It compares the strictest TPOT objective with a step of one draft a request at the mean batch and context.
    """
    steps, drafted = int(rows["verifications"].sum()), int(rows["speculations"].sum())
    if not steps or drafted >= RARELY * steps:
        return ()
    said = f"{scheduler} drafted in {drafted / steps:.0%} of its decoding steps"
    batch = max(round(steps / iterations), 1)
    context = np.average(rows["prompt_tokens"] + rows["output_tokens"] / 2, weights=rows["verifications"])
    cached, one = np.full(batch, round(context)), np.ones(batch, dtype=np.int64)
    belief, objectives_s = simulation.belief, simulation.requests.tpot_slo_s
    step_s = belief.draft.seconds(PassShape.of(cached, one)) + belief.target.seconds(PassShape.of(cached, one, one))
    strictest_s = float(np.fmin.reduce(objectives_s, initial=np.inf))
    if step_s <= strictest_s:
        return (said,)
    return (
        f"{said}: a step with one draft for each of {batch} requests, its mean batch, takes {1000 * step_s:.1f} ms, "
        f"the strictest TPOT objective is {1000 * strictest_s:.1f} ms",
    )
