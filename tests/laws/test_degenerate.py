"""Settings that must change nothing, and settings that must never help."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import simulations

profile = settings(max_examples=10, deadline=None, derandomize=True)


@pytest.mark.parametrize(("order", "same"), [("prompts_first", "continuous"), ("mixed", "sarathi")])
@profile
@given(simulated=simulations(), slots=st.integers(1, 12), tokens=st.integers(1, 64))
def test_no_draft_tokens_is_no_speculation(
    order: str, same: str, simulated: Simulation, slots: int, tokens: int
) -> None:
    """On an engine of each order vLLM without drafts is the scheduler that has this order everywhere."""
    shared = {"max_num_seqs": slots, "max_num_batched_tokens": tokens}
    plain = run(replace(simulated, scheduler=factory_of("vllm", order, **shared)))
    none = run(replace(simulated, scheduler=factory_of("vllm_spec", order, num_speculative_tokens=0, **shared)))
    assert_same_record(plain, none)
    assert_same_record(plain, run(replace(simulated, scheduler=factory_of(same, **shared))))


@profile
@given(simulated=simulations(), factor=st.sampled_from((1.0, 1.1, 2.0, 30.0)))
def test_slower_hardware_never_helps_fcfs_at_batch_1(simulated: Simulation, factor: float) -> None:
    one_by_one = replace(simulated, scheduler=factory_of("fcfs", max_num_seqs=1))
    fast = run(one_by_one).progress
    slow = run(replace(one_by_one, truth=simulated.truth.slower(factor))).progress
    for moment in ("first_token_s", "finish_s"):
        early, late = getattr(fast, moment), getattr(slow, moment)
        assert np.array_equal(np.isnan(early), np.isnan(late))
        assert (late[~np.isnan(late)] >= early[~np.isnan(early)] * (1 - 1e-12)).all()
    if factor > 1:
        assert np.nansum(slow.finish_s) > np.nansum(fast.finish_s) or np.isnan(fast.finish_s).all()


@profile
@given(simulated=simulations())
def test_what_is_believed_costs_nothing_to_who_does_not_look(simulated: Simulation) -> None:
    """`continuous` decides by memory alone: another cost model, and the text, leave its run as it is."""
    plain = replace(simulated, scheduler=factory_of("continuous"))
    text = simulated.ground_truth.acceptance_trace
    other_text = replace(simulated.ground_truth, acceptance_trace=replace(text, rank=text.rank[::-1].copy()))
    assert_same_record(run(plain), run(replace(plain, cost_model=simulated.truth.slower(7.0), ground_truth=other_text)))
