"""SpecServe played by hand: its drafter, its single peak, its estimator."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.trees import Forest
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.parts.protocols import Rows, Speculation
from specsim.schedulers.specserve import SpecServe, StepEstimate, estimate_of
from tests.made import Hardware, Linear, grown, ledger_and_view, many, memory, requests
from tests.unit.hand import Hand, sizes

CHAT, NOBODY_HURRIES = 1, 2
DRAFT_S = 0.01
"""What every pass takes when played by hand."""


def specserve(**changed: Any) -> SpecServe:
    given = {"num_speculative_tokens": 8, "verifier": True, "history_steps": 1, "first_confidence": 0.8}
    return SpecServe(**(given | changed))


def play(part: Speculation, target: Linear, rows: int = 1, kind: int = NOBODY_HURRIES, most: int = 40) -> Hand:
    """Return a replica whose prompts are read, and whose draft passes take what they are believed to take."""
    told = requests([0.0] * rows, [5] * rows, [most] * rows, [kind] * rows)
    hand = Hand(Composed(PrefillFirst(8, 64, 0.0), part), told, memory(told, 9.0, block_tokens=1))
    hand.view.belief = Hardware(target, Linear(0.0, 0.0, DRAFT_S))
    hand.begin()
    if isinstance(hand.work, DraftPass):
        hand.propose()
    hand.emit([1] * rows)
    return hand


def verified(hand: Hand, *sure: float) -> list[int]:
    """Play one step whose k-th draft pass brings confidence `sure[k]`, the last one again and again."""
    work, asked = hand.begin(), 0
    while isinstance(work, DraftPass):
        work = hand.propose(sure[min(asked, len(sure) - 1)])
        asked += 1
    assert isinstance(work, TargetPass)
    return sizes(work)


# --- the adaptive drafter, Algorithm 1 --------------------------------------------------------------------------------


def test_it_predicts_executes_and_corrects() -> None:
    """T = 40 ms + 1 ms a token, 10 ms a draft pass; tokens/s of SL = 0: 1 / 41 = 24.4.

    Predicted 1.8 / 52 = 34.6: drafted, comes with 0.5, corrected to 1.5 / 52 = 28.8. Predicted with 0.5 x 0.8:
    1.9 / 63 = 30.2: drafted, comes with 0.1, corrected to 1.55 / 63 = 24.6, which is bad and yet kept.
    Predicted 1.59 / 74 = 21.5: not drafted. Without its last token: 1.5 / 62 = 24.2, so that it is verified.
    """
    assert verified(play(specserve(), Linear(0.0, 1e-3, 0.04)), 0.5, 0.1) == [2]


def test_no_pass_runs_where_the_first_promises_nothing() -> None:
    """Section 7.4 has it switch to plain decoding; 1 / 6 ms is more than 1.8 / 17 ms."""
    assert verified(play(specserve(), Linear(0.0, 1e-3, 0.005)), 0.9) == [0]


@settings(max_examples=60, deadline=None, derandomize=True)
@given(
    sure=st.floats(0.05, 0.98),
    rows=st.integers(1, 5),
    alpha=st.sampled_from((0.0, 1e-5, 1e-4)),
    gamma=st.floats(1e-5, 1e-2),
    delta=st.floats(1e-3, 0.1),
)
def test_for_linear_passes_throughput_has_one_peak_and_the_drafter_stops_on_it(
    sure: float, rows: int, alpha: float, gamma: float, delta: float
) -> None:
    """Section 4.3; confidences as they always were, so that predictions are right."""
    target, longest = Linear(alpha, gamma, delta), 12
    k = np.arange(longest + 1)
    seconds = DRAFT_S * k + target.seconds_array(many(5 * rows, rows * (1 + k), 0.0))
    throughput = rows * np.cumsum(sure**k) / seconds
    rising = np.diff(throughput) > 0
    assert not (rising[1:] & ~rising[:-1]).any()
    part = specserve(num_speculative_tokens=longest, first_confidence=sure, verifier=False)
    assert verified(play(part, target, rows), sure) == [int(np.argmax(throughput))] * rows


# --- the SLO-aware estimator, Algorithm 3 -----------------------------------------------------------------------------


def chains(confidences: list[list[float]]) -> Forest:
    """Return one chain a row with these confidences."""
    forest, tips = Forest.roots(len(confidences)), list(range(len(confidences)))
    for level in range(max(map(len, confidences))):
        going = [row for row, chain in enumerate(confidences) if len(chain) > level]
        forest = grown(forest, [tips[row] for row in going], [confidences[row][level] for row in going])
        for place, row in enumerate(going):
            tips[row] = len(forest) - len(going) + place
    return forest


def estimated(rows: int, target: Linear, spent_s: float = 0.0, limit_s: float = np.inf) -> StepEstimate:
    told = requests([0.0] * rows, [5] * rows, [40] * rows)
    _, view = ledger_and_view(told)
    view.belief = Hardware(target, Linear(0.0, 0.0, DRAFT_S))
    ids, ones = np.arange(rows), np.ones(rows, dtype=np.int64)
    estimate = estimate_of(view, Rows(ids, ones, rows, ones), limit_s)
    view.now_s += spent_s
    return estimate


def test_beyond_the_objective_throughput_is_minus_one() -> None:
    forest = chains([[0.9]])
    assert estimated(1, Linear(0.0, 1e-3, 0.02), limit_s=0.0219).throughput(forest) == -1
    assert estimated(1, Linear(0.0, 1e-3, 0.02), limit_s=0.0221).throughput(forest) == pytest.approx(1.9 / 0.022)
    assert estimated(1, Linear(0.0, 1e-3, 0.02), limit_s=0.0221).throughput_after(
        Forest.roots(1), np.array([0]), 0.9
    ) == pytest.approx(-1)


@pytest.mark.parametrize(
    ("verify_s", "drafted"), [(0.1499, 5), (0.1501, 4), (0.1799, 2), (0.1899, 1), (0.1901, 0), (0.3, 0)]
)
def test_an_objective_of_200_ms_leaves_room_for_so_many_passes_of_10_ms(verify_s: float, drafted: int) -> None:
    hand = play(specserve(first_confidence=1.0), Linear(0.0, 0.0, verify_s), kind=CHAT)
    assert verified(hand, 1.0) == [drafted]
