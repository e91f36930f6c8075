"""SpecServe's confidence prior verifier (Algorithm 2), by hand and against the paper's loop."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.core.trees import Forest
from specsim.pass_shape import PassShapes
from specsim.schedulers.specserve import StepEstimate, worth_keeping
from tests.made import Linear, one
from tests.schedulers.test_specserve import chains, estimated


def test_it_drops_the_unlikeliest_tokens_first_whoever_they_belong_to() -> None:
    """T = 20 ms + 5 ms a token, 20 ms drafted. Paths 0.9, 0.72 | 0.3, 0.03: all 3.95 / 70 ms = 56.4, without 0.03
    3.92 / 65 = 60.3, without 0.3 3.62 / 60 = 60.33, without 0.72 2.9 / 55 = 52.7."""
    forest = chains([[0.9, 0.8], [0.3, 0.1]])
    keep = worth_keeping(estimated(2, Linear(0.0, 5e-3, 0.02), 0.02), forest)
    assert forest.subset(keep).tree_tokens().tolist() == [2, 0]


def test_it_stops_at_the_first_token_that_does_not_pay() -> None:
    """A staircase: only the loss of two tokens would save a tile, and the loss of one saves nothing."""

    @dataclass(frozen=True)
    class Stairs(Linear):
        def seconds_array(self, shapes: PassShapes) -> Any:
            return self.delta * (-(-np.asarray(shapes.batched_tokens) // 2))

    forest = chains([[0.1, 0.1, 0.1]])
    estimate = estimated(1, Stairs(0.0, 0.0, 0.01))
    assert estimate.by_kept(forest)[1].argmax() == 1
    assert worth_keeping(estimate, forest).sum() == 4


def algorithm_2(estimate: StepEstimate, forest: Forest) -> int:
    """Return how many drafted tokens the paper's loop leaves, one at a time."""
    path = sorted(forest.path_probability[forest.rows :].tolist())
    model = estimate.view.belief.target
    spent_s = estimate.view.now_s - estimate.start_s

    def throughput(left: list[float]) -> float:
        seconds = spent_s + model.seconds(one(estimate.plain.context_tokens, forest.rows + len(left), 0.0))
        return -1.0 if seconds > estimate.limit_s else (forest.rows + sum(left)) / seconds

    best = throughput(path)
    while path and throughput(path[1:]) > best:
        path = path[1:]
        best = throughput(path)
    return len(path)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    confidences=st.lists(st.lists(st.floats(0.01, 1.0), max_size=5), min_size=1, max_size=6),
    gamma=st.floats(1e-4, 2e-2),
    spent_s=st.floats(0.0, 0.1),
    limit_s=st.sampled_from((np.inf, 0.1, 0.03)),
)
def test_it_keeps_what_the_loop_of_the_paper_keeps(
    confidences: list[list[float]], gamma: float, spent_s: float, limit_s: float
) -> None:
    forest = chains(confidences)
    estimate = estimated(len(confidences), Linear(0.0, gamma, 0.01), spent_s, limit_s)
    keep = worth_keeping(estimate, forest)
    kept, dropped = keep[forest.rows :], forest.path_probability[forest.rows :][~keep[forest.rows :]]
    assert kept.sum() == algorithm_2(estimate, forest)
    assert not len(dropped) or not kept.any() or dropped.max() <= forest.path_probability[forest.rows :][kept].min()
    forest.subset(keep)
