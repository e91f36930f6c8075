"""No pass overdraws: the engine's token budget, drafts included, and AdaServe's, which roots and tree nodes share."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specsim.core.passes import TargetPass
from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.metrics.requests import VERIFY_PASS
from specsim.schedulers.loading import AS_ENGINE
from specsim.simulation import Simulation, run
from tests.laws.subjects import NAMES, factory_of, raw_of
from tests.laws.watch import watched
from tests.made import simulations

FOLLOWERS = [
    name for name in NAMES if read_yaml(shipped("conf") / "scheduler" / f"{name}.yaml").get("batching") == AS_ENGINE
]


def test_the_schedulers_that_stand_for_vllm_follow_the_engine() -> None:
    assert {"vllm", "vllm_spec", "vllm_dynamic", "adaptive_verification"} <= set(FOLLOWERS)


@pytest.mark.parametrize("name", FOLLOWERS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(simulated=simulations(), tokens=st.integers(1, 80), seats=st.integers(1, 12))
def test_no_pass_is_larger_than_the_budget(name: str, simulated: Simulation, tokens: int, seats: int) -> None:
    try:
        factory = factory_of(name, max_num_batched_tokens=tokens, max_num_seqs=seats)
    except SpecsimError:
        assume(False)
        raise
    record = run(replace(simulated, scheduler=factory, keep_passes=True))
    assert record.passes is not None
    verified = record.passes["batched_tokens"][record.passes["kind"] == VERIFY_PASS]
    assert verified.max(initial=0) <= tokens


@settings(max_examples=20, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(
    simulated=simulations(24),
    budget=st.integers(1, 24),
    seats=st.integers(1, 24),
    shape=st.tuples(st.integers(1, 5), st.integers(1, 4)),
    slo_share=st.sampled_from((0.0, 0.3, 1.2)),
)
def test_adaserves_budget_is_never_exceeded(
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
