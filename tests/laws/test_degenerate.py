"""Settings that must change nothing, settings that must never help, and settings that must redraw nothing."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.config.configured import from_point
from specsim.runs.prepare import prepare
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of
from tests.made import simulations

profile = settings(max_examples=10)


@pytest.mark.parametrize(("order", "same"), [("prompts_first", "continuous"), ("mixed", "sarathi")])
@profile
@given(simulated=simulations(), slots=st.integers(1, 12), tokens=st.integers(1, 64))
def test_no_drafts_are_no_speculation(order: str, same: str, simulated: Simulation, slots: int, tokens: int) -> None:
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


# --- class and luck belong to (seed, row of the trace) ----------------------------------------------------------------

WORDS = {"trace": "poisson", "scheduler": "continuous", "requests": "60"}
CHANGES = ({"rps": "7"}, {"slo_scale": "0.7"}, {"replicas": "2"}, {"scheduler": "adaserve"}, {"requests": "25"})


def prepared(words: dict[str, str]) -> Simulation:
    return prepare(from_point(words)).simulation


def luck(of: Simulation, rows: slice) -> list[list[int]]:
    """Return the classes, outputs, keys of texts and places in the pools of these requests."""
    truth, text = of.ground_truth, of.ground_truth.acceptance_trace
    return [each[rows].tolist() for each in (of.requests.slo_class, truth.output_tokens, text.keys, text.layout.start)]


@pytest.mark.parametrize("change", CHANGES, ids=str)
def test_what_the_command_line_changes_redraws_nothing(change: dict[str, str]) -> None:
    changed = prepared(WORDS | change)
    rows = slice(len(changed.requests))
    assert luck(changed, rows) == luck(prepared(WORDS), rows)


def test_luck_stays_with_the_row_when_a_window_cuts_the_front_off() -> None:
    words = {"trace": "azure_conv", "scheduler": "continuous"}
    whole, later = prepared(words | {"trace.window": "[0,60]"}), prepared(words | {"trace.window": "[20,60]"})
    assert 10 < len(later.requests) < len(whole.requests)
    assert luck(later, slice(None)) == luck(whole, slice(-len(later.requests), None))
