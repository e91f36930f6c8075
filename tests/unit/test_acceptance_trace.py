"""A trace's addresses: strides on the path, a pool of its own off it, hashes that say where one went wrong."""

import numpy as np
import pytest

from specsim.acceptance.curves import calibration
from specsim.acceptance.trace import AcceptanceTrace, Pools
from specsim.core.request import Ints
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.rng import stream_keys
from tests.made import grown


@pytest.mark.parametrize("start", [-1, 5, 1 << 40])
def test_a_pool_that_does_not_lie_within_the_trace_is_refused(start):
    """Compiled loops would read beyond its end."""
    ranks, inside = np.zeros(8, dtype=np.int64), np.zeros(2, dtype=np.int64)
    for starts in ((np.array([0, start]), inside), (inside, np.array([0, start]))):
        with pytest.raises(SpecsimError, match=f"a pool of 4 rows begins at row {start:,} of 8 of an acceptance trace"):
            AcceptanceTrace(np.full((8, 2), 0.5), ranks, Pools(*starts, 4), np.zeros(2, dtype=np.uint64))


def test_calibration_is_counted_anew_for_another_rank_and_for_one_that_is_written():
    confidence, start = np.full((8, 2), 0.25), np.zeros(3, dtype=np.int64)
    confidence.flags.writeable = False

    def agreement(rank: Ints) -> float:
        text = AcceptanceTrace(confidence, rank, Pools(start, start, 8), stream_keys(3, "text", np.arange(3)))
        return calibration(text, start, ("chat",))["chat"]["top1_agreement"]

    right, written = np.zeros(8, dtype=np.int64), np.zeros(8, dtype=np.int64)
    wrong = right + 1
    right.flags.writeable = wrong.flags.writeable = False
    assert [agreement(each) for each in (right, right, wrong, right, written)] == [1, 1, 0, 1, 1]
    written[:] = 1
    assert agreement(written) == 0


def test_a_choice_without_a_parent_is_no_tree():
    forest = grown(grown(Forest.roots(1), [0], [0.5]), [1], [0.5])
    with pytest.raises(ValueError, match="not a tree"):
        forest.subset(np.array([True, False, True]))
