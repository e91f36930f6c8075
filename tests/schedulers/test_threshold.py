"""Chains by one confidence threshold: where they end, by hand and in random runs."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.schedulers.parts.protocols import Rows
from specsim.schedulers.threshold import BatchThreshold, Threshold
from tests.made import Linear, grown
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
