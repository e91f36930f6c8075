"""Chains by one confidence threshold: where they end, by hand and in random runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core.passes import TargetPass
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.parts.protocols import Rows
from specsim.schedulers.threshold import BatchThreshold, Threshold
from tests.laws.watch import watched
from tests.made import Linear, grown, simulations, tape
from tests.schedulers.test_specserve import play, verified

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
