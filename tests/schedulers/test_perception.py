"""What LAPS-SD perceives, by hand: the stability window, predicted lengths, Eq. 6."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.core.request import Ids, Ints
from specsim.core.trees import Forest
from specsim.schedulers.laps_sd import LapsQueues, eq_6
from specsim.schedulers.parts.queues import Seats
from specsim.schedulers.perception import AcceptanceMonitor, LengthPredictor
from tests.made import grown, hardware, ledger_and_view, one, requests


class Known:
    """Foresees these lengths."""

    def __init__(self, lengths: Any) -> None:
        self.lengths = np.asarray(lengths)

    def output_tokens(self, ids: Ids) -> Ints:
        found: Ints = self.lengths[ids]
        return found

    def right(self, forest: Any) -> Any:
        raise NotImplementedError


def hear(monitor: AcceptanceMonitor, accepted: list[int], drafted: int = 4) -> list[float]:
    """Let request 0 live through rounds of `drafted` tokens; return A_0 after each."""
    rates = []
    for right in accepted:
        forest = chain(drafted)
        monitor.hear(np.array([0]), forest, np.array([right]))
        rates.append(float(monitor.rate[0]))
    return rates


def chain(tokens: int) -> Any:
    forest = Forest.roots(1)
    for _ in range(tokens):
        forest = grown(forest, [len(forest) - 1], [0.9])
    return forest


def test_the_stability_window_by_hand() -> None:
    """Cumulative rates 1, 1/2, 1/2, 1/2: the last three lie together, and their mean is A."""
    monitor = AcceptanceMonitor(3, 0.1)
    monitor.begin(1)
    rates = hear(monitor, [4, 0, 2, 2])
    assert np.isnan(rates[:3]).all()
    assert rates[3] == 0.5


def test_eq_6_by_hand() -> None:
    """100 tokens, n = 4, A = 0.5: 100 / 3 rounds of 4 x 2 + 20 ms."""
    four = np.array([4.0])
    assert eq_6(np.array([100.0]), four, np.array([0.5]), 4 * np.array([0.002]) + 0.02) == pytest.approx(
        100 / 3 * 0.028
    )


@pytest.mark.parametrize(("estimate", "tokens"), [("total", 100), ("remaining", 60)])
def test_the_estimate_is_eq_6_of_what_is_believed(estimate: Any, tokens: int) -> None:
    ledger, view = ledger_and_view(requests([0.0], [10], [200]))
    ledger.progress.emitted_tokens[0] = 40
    seats = Seats(1, 512, "mixed", 0.0, "keep")
    part = LapsQueues(seats, AcceptanceMonitor(2, 0.1), LengthPredictor(0.0, 0), 4, 0.4, 2.0, estimate)
    part.acceptance.begin(1)
    hear(part.acceptance, [2, 2])

    part.lengths.foresee(Known([100]))
    belief = hardware()
    round_s = 4 * belief.draft.seconds(one(50, 1, 51)) + belief.target.seconds(one(50, 5, 255))
    assert part.service_s(view, np.array([0])) == pytest.approx(tokens / 3 * round_s)


def test_predicted_lengths() -> None:
    ids = np.arange(20_000)
    exact, noisy, other = LengthPredictor(0.0, 0), LengthPredictor(0.3, 0), LengthPredictor(0.3, 1)
    for each in (exact, noisy, other):
        each.foresee(Known(np.full(len(ids), 100)))
    assert (exact.tokens(ids) == 100).all()
    logs = np.log(noisy.tokens(ids) / 100)
    assert abs(logs.mean()) < 4 * 0.3 / np.sqrt(len(ids))
    assert logs.std() == pytest.approx(0.3, rel=0.03)
    assert np.array_equal(noisy.tokens(ids)[[7, 3]], noisy.tokens(np.array([7, 3]))), "luck belongs to the request"
    assert np.corrcoef(np.log(noisy.tokens(ids)), np.log(other.tokens(ids)))[0, 1] < 0.05


def test_without_foresight_nothing_is_predicted() -> None:
    with pytest.raises(ValueError, match="clairvoyant"):
        LengthPredictor(0.0, 0).tokens(np.array([0]))
