"""AdaServe never overdraws: roots of decoding requests and tree nodes share the verifier's budget."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core.passes import TargetPass
from specsim.simulation import Simulation
from tests.laws.subjects import factory_of, raw_of
from tests.laws.watch import watched
from tests.made import simulations


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    simulated=simulations(24),
    budget=st.integers(1, 24),
    seats=st.integers(1, 24),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    slo_share=st.sampled_from((0.0, 0.3, 1.2)),
)
def test_the_budget_is_never_exceeded(
    simulated: Simulation, budget: int, seats: int, shape: tuple[int, int], slo_share: float
) -> None:
    depth, width = shape
    rule = raw_of("adaserve")["shape"] | {"depth_min": depth, "depth_max": depth, "width_max": width}
    factory = factory_of(
        "adaserve", verify_tokens=budget, max_num_seqs=min(seats, budget), shape=rule, slo_share=slo_share
    )
    for heard in watched(replace(simulated, scheduler=factory)).heard:
        begun = np.zeros(len(simulated.requests), dtype=bool)
        for step in heard:
            if isinstance(step.work, TargetPass):
                nodes = step.work.forest.draft_nodes
                decoding = begun[step.work.requests] & (step.work.chunks == 1)
                assert not nodes or decoding.sum() + nodes <= budget
                assert (step.work.forest.tree_tokens() <= depth * width).all()
                begun[step.work.requests] |= step.answer.tokens > 0
