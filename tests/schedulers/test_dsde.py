"""DSDE: the divergence that stands for KL, its weighted variances, the lengths of Eq. 8, calibration and cap."""

from __future__ import annotations

from math import exp, log

import numpy as np
import pytest

from specsim.schedulers.dsde import LONG, UNSTEADY, DivergenceLengths, divergences, variance_ratio
from specsim.schedulers.parts.protocols import Sequences
from tests.made import Linear
from tests.schedulers.test_specserve import chains, play, verified


def begun() -> DivergenceLengths:
    part = DivergenceLengths(10, 2, True)
    part.begin(4)
    return part


def test_a_sure_target_diverges_by_the_surprise_of_its_token() -> None:
    """Right tokens of 0.9 and 0.5: -log 0.9, -log 0.5; the wrong one of 0.8 leaves 0.2; the one behind has none."""
    found = divergences(chains([[0.9, 0.5, 0.8, 0.7], [0.25]]), np.array([2, 0]))
    assert found == pytest.approx(np.array([[-log(0.9), -log(0.5), -log(0.2), 0], [-log(0.75), 0, 0, 0]]))


def test_the_ratio_of_variances_weighs_the_latest_most() -> None:
    """Divergences 1, 0, 0, ...: a weighted mean p and variance p (1 - p), where p is the first weight's share."""
    past = np.zeros((2, LONG))
    past[0, 0] = 1.0
    short, long = ((1 - 0.85) / (1 - 0.85**n) for n in (10, 30))
    assert variance_ratio(past) == pytest.approx([short * (1 - short) / (long * (1 - long)), UNSTEADY])


def test_a_length_falls_with_the_divergence_of_the_last_step() -> None:
    """Eq. 8 with a ratio of 20 (nothing varies): (exp(2 x 0.01) - 1) x 20 = 0.404, so 0.596 x (8 - 2) + 2 = 5.6: 6.

    At 0.0249 it is 1.02, at its first order 2 x 0.0249 x 20 = 0.996, which would leave a length of 3.
    """
    part = begun()
    part._longest[:] = 8
    part._judged[:] = LONG
    part._divergence[:] = 0.01
    assert (1 - 20 * (exp(0.02) - 1)) * 6 + 2 == pytest.approx(5.576, abs=1e-3)
    assert part._steadied(np.arange(4), np.array([0.01, 0.0, 0.5, 0.0249])).tolist() == [6, 8, 2, 2]


def test_the_mean_length_caps_the_calibrated_alone() -> None:
    """Of 2, 3 and 8 the mean is 4.33, rounded up 5; the fourth is not calibrated yet."""
    part, rows = begun(), Sequences(np.arange(4), np.ones(4, dtype=np.int64), 4, np.zeros(4, dtype=np.int64))
    part._lengths[:] = [2, 3, 8, 10]
    part._longest[:3] = 8
    assert part.lengths(rows).tolist() == [2, 3, 5, 10]
    part.sl_cap = False
    assert part.lengths(rows).tolist() == [2, 3, 8, 10]


def test_a_request_doubles_until_it_has_thirty_judged_tokens() -> None:
    """2 + 4 + 8 + 10 + 10 tokens are all right: 10 accepted, times 1 + mean / max = 2, bounded by 10."""
    part = DivergenceLengths(10, 2, True)
    hand = play(part, Linear(0.0, 0.0, 1.0), most=200)
    for length in (2, 4, 8, 10, 10):
        assert verified(hand, 0.9) == [length]
        assert part._longest[0] == 0
        hand.emit([length + 1], [length])
    assert part._longest[0] == 10
    # The next: nothing varies, so 20 x (exp(-2 log 0.9) - 1) is above 1.
    assert verified(hand, 0.9) == [2]


def test_calibration_is_the_most_accepted_and_how_even_divergence_was() -> None:
    """Two of 3 right each time at 0.5: every divergence is log 2, so 2 x (1 + 1) = 4."""
    part = DivergenceLengths(10, 3, True)
    hand = play(part, Linear(0.0, 0.0, 1.0), most=200)
    for _ in range(10):
        assert verified(hand, 0.5) == [3]
        hand.emit([3], [2])
    assert part._longest[0] == pytest.approx(4.0)
