"""SpecServe as released, played by hand: its prior, its stop on a real fall, its cut to a graph size."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.schedulers.specserve import ReleasedSpecServe, smaller_graph, to_graph_size
from tests.made import Linear
from tests.schedulers.test_specserve import chains, estimated, play, verified

CHEAP = Linear(0.0, 0.0, 1.0)
MILLI = Linear(0.0, 1e-3, 0.04)
"""40 ms and 1 ms a token; a draft pass takes 10 ms."""


def released(**changed: Any) -> ReleasedSpecServe:
    given: dict[str, Any] = {
        "num_speculative_tokens": 8,
        "verifier": False,
        "first_confidence": 0.6,
        "limit_s": None,
    }
    return ReleasedSpecServe(**(given | changed))


def test_the_first_pass_must_beat_no_draft() -> None:
    """1.6 / 52 ms is above 1 / 41 ms; 1.6 / 17 ms is below 1 / 6 ms."""
    assert verified(play(released(), MILLI), 0.5)[0] > 0
    assert verified(play(released(), Linear(0.0, 1e-3, 0.005)), 0.9) == [0]


def test_a_pass_that_lowered_throughput_is_kept_ends_the_drafting_and_teaches_nothing() -> None:
    """1 / 41 ms is 24.4; with 0.1 it is 1.1 / 52 ms = 21.2: kept, and the mean stays 0.6."""
    part = released()
    assert verified(play(part, MILLI), 0.1) == [1]
    assert part.mean.value == 0.6


def test_a_pass_that_raised_it_is_learnt_without_the_prior() -> None:
    """0.8: 1.8 / 52 ms = 34.6. Predicted 1.8 + 0.8 x 0.8 over 63 ms = 38.7; with 0.1 it is 1.88 / 63 = 29.8, a fall."""
    part = released()
    hand = play(part, MILLI)
    assert verified(hand, 0.8, 0.1) == [2]
    assert part.mean.value == pytest.approx(0.8)
    hand.emit([1])
    assert verified(hand, 0.7, 0.1) == [2]
    assert part.mean.value == pytest.approx(0.75), "of all since the start"


def test_no_objective_is_looked_at_unless_a_limit_is_set() -> None:
    assert verified(play(released(), CHEAP, kind=0), 0.9) == [8]
    assert verified(play(released(limit_s=1.035), CHEAP, kind=0), 0.9) == [3]


@pytest.mark.parametrize(
    ("tokens", "size"),
    [(1, 0), (3, 2), (5, 4), (32, 16), (33, 32), (100, 96), (1153, 1152)],
)
def test_the_next_smaller_graph_size(tokens: int, size: int) -> None:
    assert smaller_graph(tokens) == size


@pytest.mark.parametrize(("token_s", "kept"), [(0.05, [2, 0]), (1e-4, [2, 1])])
def test_it_cuts_to_the_smaller_size_where_that_pays(token_s: float, kept: list[int]) -> None:
    """Two requests and three drafts are five tokens; the next smaller graph holds four. The 0.1 goes if it costs."""
    forest = chains([[0.9, 0.8], [0.1]])
    keep = to_graph_size(estimated(2, Linear(0.0, token_s, 0.01)), forest)
    assert np.bincount(forest.row[keep], minlength=2).tolist() == [1 + each for each in kept]
