"""What `auto` finds on a profile, by hand: prompt tokens of a pass, more where a TTFT objective needs it, and B."""

import pytest

from specsim.latency.forms import Linear, Roofline, Table
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.due_chunk import DueChunk, filled_tokens
from specsim.schedulers.parts.tree_shape import profiled_budget
from specsim.schedulers.sarathi import Chunked
from tests import made
from tests.made import memory, requests
from tests.unit.hand import Hand

BEND, LIMIT = 40, 4000
PROMISED, UNPROMISED = 1, 0
"""Classes: a first token within a second, and no objective for it."""


def hand_of(*prompts, kind=PROMISED, filled=BEND, prefill="mixed"):
    told = requests([0.0] * len(prompts), list(prompts), [30] * len(prompts), [kind] * len(prompts))
    batching = Chunked(8, DueChunk(filled, LIMIT), prefill, 0.0)
    return Hand(Composed(batching), told, memory(told, 9.0, block_tokens=1))


def chunks(hand):
    return hand.begin().scheduled_tokens.tolist()


@pytest.mark.parametrize(
    ("prompts", "now_s", "read"),
    [
        # A pass of c tokens takes 0.02 s + 0.1 ms x c. Of the bend's 40, 41 passes fit a second.
        ((100,), 0.0, [40]),
        ((30, 100), 0.0, [30, 10]),
        # 41 x 40 and 37 x 64 are short of 3,000; 30 x 128 are not.
        ((3000,), 0.0, [128]),
        ((1500, 1500), 0.0, [128]),
        # 0.1 s hold two passes of 256, three of 128, one of at most 800: 512 >= 500 > 448, 384.
        ((500,), 0.9, [256]),
        # 10,000 tokens a second are the most: nothing helps.
        ((20_000,), 0.0, [LIMIT]),
        # Late already.
        ((100, 200), 1.5, [100, 200]),
    ],
)
def test_the_least_chunk_in_time_and_no_less_than_the_bend(prompts, now_s, read):
    hand = hand_of(*prompts)
    hand.view.now_s = now_s
    assert chunks(hand) == read


def test_without_an_objective_or_in_passes_of_their_own_prompts_get_all_that_a_pass_holds():
    assert chunks(hand_of(100, 5000, kind=UNPROMISED)) == [100, LIMIT - 100]
    assert chunks(hand_of(100, 5000, prefill="first")) == [100, LIMIT - 100]


@pytest.mark.parametrize(
    ("form", "filled"),
    [
        pytest.param(Table((1.0, 100.0, 200.0), (0.01, 0.01, 0.02), 0.01), 100, id="bend"),
        # From 1 to 8 tokens 9 ms are added, and 1.9 from there to 200: experts cost most at first.
        pytest.param(Table((1, 8, 200), (0.001, 0.010, 0.0119), 0.0), LIMIT, id="experts"),
        # A token costs 10 us up to 64, 100 from there on.
        pytest.param(Table((2, 64, 6400), (0.001, 0.00162, 0.63522), 0.0), 64, id="steeper"),
        pytest.param(Linear(1e-6, 1e-4, 0.01), LIMIT, id="line"),
        pytest.param(Roofline(0.01, 1e-4, 0.02, 2e-4, 0.0, 0.0), LIMIT, id="compute"),
        pytest.param(Roofline(0.03, 3e-4, 0.02, 2e-4, 0.0, 0.0, few_s=(0.09,)), LIMIT, id="one token is slow"),
    ],
)
def test_prompts_fill_a_pass_up_to_its_bend_or_to_where_a_token_costs_least(form, filled):
    assert filled_tokens(form, LIMIT) == filled


def test_decodes_and_their_drafts_take_their_part_of_the_bend():
    hand = hand_of(5, 5, 100)
    assert chunks(hand) == [5, 5, 30]
    hand.emit([1, 1, 0])
    assert chunks(hand) == [1, 1, 38]
    hand.emit([1, 1, 0])
    decodes = hand.view.pending(hand.view.running) == 1
    chunk = DueChunk(BEND, LIMIT)
    assert chunk(hand.view, decodes, 8, draft_tokens=4) == BEND - 2 * 5
    assert chunk(hand.view, decodes, 8, draft_tokens=40) == 64, "the trees are past the bend, the prompt is due"


def test_drafting_makes_a_step_longer():
    """0.9 s hold 34 steps of 64 tokens, 14 where eight draft passes of 2 ms or more come first."""
    hand = hand_of(5, 2000)
    chunks(hand)
    hand.emit([1, 0])
    hand.view.now_s = 0.1
    decodes = hand.view.pending(hand.view.running) == 1
    chunk = DueChunk(BEND, LIMIT)
    assert chunk(hand.view, decodes, 8) < chunk(hand.view, decodes, 8, draft_tokens=8)


def test_a_small_batch_verifies_more_than_its_chains_where_a_step_hardly_takes_longer():
    """Of one request: a chain of 5 takes 5 + 26 ms at 1 ms a token; an eighth more are 9 tokens."""
    dense, experts, heads = (
        profiled_budget(made.Hardware(made.Linear(0.0, token_s, 0.02), made.Linear(0, 0, 0.001, max_depth=most)), 2)
        for token_s, most in ((1e-5, 9), (1e-3, 9), (1e-3, 3))
    )
    assert (dense(1), dense(2), experts.depth(1), experts(1), heads.depth(1)) == (48, 48, 5, 9, 3)
