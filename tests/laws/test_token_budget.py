"""Schedulers that batch as the engine does: on a mixed engine no pass is larger than the budget, drafts included."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.metrics.requests import VERIFY_PASS
from specsim.schedulers.loading import AS_ENGINE
from specsim.simulation import Simulation, run
from tests.laws.subjects import NAMES, factory_of
from tests.made import simulations

FOLLOWERS = [
    name for name in NAMES if read_yaml(shipped("conf") / "scheduler" / f"{name}.yaml").get("batching") == AS_ENGINE
]


def test_the_schedulers_that_stand_for_vllm_follow_the_engine() -> None:
    assert {"vllm", "vllm_spec", "vllm_dynamic", "adaptive_verification"} <= set(FOLLOWERS)


@pytest.mark.parametrize("name", FOLLOWERS)
@settings(max_examples=15, deadline=None, derandomize=True)
@given(simulated=simulations(24), tokens=st.integers(1, 80), slots=st.integers(1, 12))
def test_no_pass_is_larger_than_the_budget(name: str, simulated: Simulation, tokens: int, slots: int) -> None:
    try:
        factory = factory_of(name, max_num_batched_tokens=tokens, max_num_seqs=slots)
    except SpecsimError:
        assume(False)
        raise
    record = run(replace(simulated, scheduler=factory, keep_passes=True))
    assert record.passes is not None
    verified = record.passes["batched_tokens"][record.passes["kind"] == VERIFY_PASS]
    assert verified.max(initial=0) <= tokens
