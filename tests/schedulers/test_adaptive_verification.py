"""Adaptive verification: the budget, who gets it, and that no other choice brings more tokens per second."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.schedulers.adaptive_verification import AdaptiveVerification
from specsim.schedulers.specserve import first_kept
from tests.made import Linear, one
from tests.schedulers.test_specserve import chains, estimated, play, verified


def test_all_is_drafted_and_as_much_verified_as_pays() -> None:
    """T = 10 ms + 10 ms a token, three passes of 10 ms; paths 0.9, 0.81, 0.729 in each of two rows.

    Tokens/s of 0..6 drafts: 2/60 = 33.3, 2.9/70 = 41.4, 3.8/80 = 47.5, 4.61/90 = 51.2, 5.42/100 = 54.2,
    6.15/110 = 55.9, 6.88/120 = 57.3: all. With 0.5: 33.3, 35.7, 37.5, 36.1, ...: the first of each.
    """
    part = AdaptiveVerification(3)
    assert verified(play(part, Linear(0.0, 0.01, 0.01), rows=2), 0.9) == [3, 3]
    assert verified(play(part, Linear(0.0, 0.01, 0.01), rows=2), 0.5) == [1, 1]
    assert verified(play(part, Linear(0.0, 0.01, 0.01), rows=2), 0.05) == [0, 0]


@settings(max_examples=80, deadline=None, derandomize=True)
@given(
    confidences=st.lists(st.lists(st.floats(0.01, 1.0), max_size=3), min_size=1, max_size=4),
    gamma=st.floats(1e-4, 3e-2),
    spent_s=st.floats(0.0, 0.05),
)
def test_no_choice_of_prefixes_brings_more_tokens_per_second(
    confidences: list[list[float]], gamma: float, spent_s: float
) -> None:
    """Against every combination of prefixes, where cost goes by the number of tokens."""
    rows, forest = len(confidences), chains(confidences)
    model = Linear(0.0, gamma, 0.01)
    _, throughput = estimated(rows, model, spent_s).by_kept(forest)

    def of(lengths: tuple[int, ...]) -> float:
        survival = sum(float(np.cumprod(c[:k]).sum()) for c, k in zip(confidences, lengths, strict=True))
        return (rows + survival) / (spent_s + model.seconds(one(0.0, rows + sum(lengths), 0.0)))

    best = max(of(lengths) for lengths in product(*(range(len(each) + 1) for each in confidences)))
    assert throughput.max() == pytest.approx(best, rel=1e-9)


@given(confidences=st.lists(st.lists(st.sampled_from((0.0, 0.5, 1.0)), max_size=4), min_size=1, max_size=5))
@settings(max_examples=80, deadline=None, derandomize=True)
def test_every_budget_gives_trees_even_among_equals(confidences: list[list[float]]) -> None:
    """A certain token ties with its parent, an impossible one with all behind it."""
    forest = chains(confidences)
    ranked, _ = estimated(len(confidences), Linear(0.0, 1e-3, 0.01)).by_kept(forest)
    for count in range(len(ranked) + 1):
        assert forest.subset(first_kept(forest, ranked, count)).draft_nodes == count
