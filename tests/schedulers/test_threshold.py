"""Chains by one confidence threshold: where they end, by hand and in random runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core.passes import DraftPass, TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.parts.protocols import Rows
from specsim.schedulers.sarathi import Chunked
from specsim.schedulers.threshold import BatchThreshold, Threshold
from tests.laws.watch import watched
from tests.made import Linear, grown, memory, requests, simulations, tape
from tests.schedulers.test_specserve import play, verified
from tests.unit.hand import Hand, fed

ANY = Linear(0.0, 0.0, 0.01)


@pytest.mark.parametrize(
    ("sure", "length"),
    [
        ((0.9, 0.4, 0.39), 3),  # 0.4 is not below 0.4; the token that is gets verified too
        ((0.1,), 1),
        ((0.9,), 8),
        ((0.9, 0.9, 0.9, 0.2), 4),
    ],
)
def test_a_chain_ends_behind_the_first_token_below_the_threshold(sure: tuple[float, ...], length: int) -> None:
    assert verified(play(Threshold(0.4, 8), ANY), *sure) == [length]


def test_it_is_the_last_confidence_that_counts_and_not_the_path() -> None:
    """0.5 x 0.5 is below 0.4, each token is not."""
    assert verified(play(Threshold(0.4, 8), ANY), 0.5) == [8]


def test_no_chain_outlasts_its_request_or_its_maximum() -> None:
    assert verified(play(Threshold(0.0, 8), ANY, most=5), 0.1) == [3]
    assert verified(play(Threshold(0.0, 2), ANY), 0.1) == [2]
    assert verified(play(Threshold(0.0, 0), ANY), 0.1) == [0]


@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data(), threshold=st.sampled_from((0.3, 0.6, 0.9)))
def test_each_request_of_a_batch_stops_on_its_own(data: st.DataObject, threshold: float) -> None:
    """With room for all: inside a chain tokens are sure, its last one is unsure or the fifth."""
    drawn = data.draw(simulations(24))
    told = replace(drawn.requests, max_tokens=drawn.requests.max_tokens + 99)
    scheduler = Composed(PrefillFirst(64, 64, 0.0), Threshold(threshold, 5))
    pool = replace(drawn.memory, capacity_bytes=10**9)
    world = replace(drawn.world, tape=tape(len(told), 0.5))
    made = replace(drawn, requests=told, memory=pool, world=world, scheduler=lambda: scheduler)
    for heard in watched(made).heard:
        for forest in (step.work.forest for step in heard if isinstance(step.work, TargetPass)):
            if not forest.draft_nodes:
                continue
            drafted = np.arange(forest.rows, len(forest))
            ends = ~np.isin(drafted, forest.parent)
            assert np.bincount(forest.row[drafted][ends], minlength=forest.rows).tolist() == [1] * forest.rows
            unsure = forest.probability[drafted] < threshold
            assert np.array_equal(ends, unsure | (forest.depth[drafted] == 5))


def test_a_pass_holds_those_that_go_on() -> None:
    view = play(Threshold(0.4, 8), ANY, rows=3).view
    ids, ones = np.arange(3), np.ones(3, dtype=np.int64)
    growing = Threshold(0.4, 8).grow(view, Rows(ids, ones, 3, ones))
    work = next(growing)
    assert work.leaves.tolist() == [0, 1, 2]
    work = growing.send(grown(work.forest, work.leaves, [0.9, 0.1, 0.9]))
    assert work.forest.row[work.leaves].tolist() == [0, 2]


def test_prompts_beside_decodes_are_read_by_the_drafter_too() -> None:
    told = requests([0.0, 0.0], [5, 9], [20, 20], [2, 2])
    batch = Composed(Chunked(8, 5, "mixed", 0.0), Threshold(0.4, 2))
    hand = Hand(batch, told, memory(told, 9.0, block_tokens=1))
    assert fed(hand.begin()) == [5]  # type: ignore[arg-type]
    hand.propose()
    hand.emit([1])
    work = hand.begin()
    assert isinstance(work, DraftPass)
    assert (fed(work), work.leaves.tolist()) == ([1, 5], [0])


def test_where_memory_is_short_chains_are_shortened() -> None:
    told = requests([0.0, 0.0], [5, 5], [20, 20], [2, 2])
    pool = replace(memory(told, 1.0, block_tokens=1), capacity_bytes=2 * 4 * 13)
    hand = Hand(Composed(PrefillFirst(8, 64, 0.0), Threshold(0.4, 8)), told, pool)
    hand.begin()
    hand.propose()
    hand.emit([1, 1])
    assert verified(hand, 0.9) == [7, 7], "13 tokens each: 5 read, 1 pending, 7 drafted"


@pytest.mark.parametrize("wrong", [(-0.1, 8), (0.4, -1)])
def test_senseless_parameters_are_refused(wrong: tuple[float, int]) -> None:
    with pytest.raises(ValueError, match="below 0"):
        Threshold(*wrong)


def test_the_mean_of_a_pass_stops_the_whole_batch() -> None:
    """0.9 and 0.4 have a mean of 0.65; then 0.9 and 0.2 have 0.55, and the pass is verified too."""
    view = play(BatchThreshold(0.6, 8), ANY, rows=2).view
    ids, ones = np.arange(2), np.ones(2, dtype=np.int64)
    growing = BatchThreshold(0.6, 8).grow(view, Rows(ids, ones, 2, ones))
    work = next(growing)
    work = growing.send(grown(work.forest, work.leaves, [0.9, 0.4]))
    assert work.forest.row[work.leaves].tolist() == [0, 1], "also the one below the threshold goes on"
    with pytest.raises(StopIteration) as end:
        growing.send(grown(work.forest, work.leaves, [0.9, 0.2]))
    assert end.value.value.tree_tokens().tolist() == [2, 2]
