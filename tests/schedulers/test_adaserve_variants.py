"""AdaServe's other YAMLs: shapes by hand, what each leaves out, and that every parameter matters."""

from typing import Any

import numpy as np
import pytest

from specsim.api import Run, simulate
from specsim.core.trees import Forest
from specsim.schedulers.parts.selection import likeliest_each
from specsim.schedulers.parts.tree_shape import BudgetShare
from tests.layers import grow

# Busy enough that objectives are missed and budgets bind, small enough to take a second.
BUSY = {
    "trace": "poisson",
    "requests": 40,
    "rps": 40,
    "profile": "llama70b_1b_4xa100",
    "trace__output_tokens__mean": 48,
}


def outcome(scheduler: str, **settings: Any) -> Run:
    return simulate(scheduler, **{**BUSY, **settings})


@pytest.mark.parametrize(
    ("requests", "shape"), [(1, (8, 3)), (64, (8, 3)), (100, (6, 3)), (200, (3, 2)), (512, (1, 1)), (900, (1, 1))]
)
def test_the_first_versions_shape(requests: int, shape: tuple[int, int]) -> None:
    """d = max(1, min(8, ceil(512 / n))), w = max(1, min(3, 512 // n)) (v1, Eq. 8, 9)."""
    assert tuple(BudgetShare(8, 3, 512, 512)(requests)) == shape


def test_equal_shares_are_each_requests_likeliest() -> None:
    forest = Forest.roots(2)
    path = np.array([0.5, 0.6, 0.9, 0.2, 0.1, 0.8])
    parents = np.array([0, 1, 0, 1, 0, 1])
    forest = grow(forest, parents, np.arange(6), path, path, np.arange(6))
    chosen = likeliest_each(forest, 2)
    assert chosen.tolist() == [True, True, True, True, True, False, False, True]


def test_no_node_for_an_objective_is_selected_by_global_greedy() -> None:
    """Without objectives the greedy choice is AdaServe's own."""
    free = {"slo__classes__coding__tpot_ratio": None, "slo__classes__chat__tpot_s": None}
    free |= {"slo__classes__summarization__tpot_s": None, "slo__classes__coding__scaled": False}
    one, other = outcome("global_greedy", **free), outcome("adaserve", **free)
    assert one.metrics == other.metrics


def test_knowing_the_target_wastes_no_verification() -> None:
    run = outcome("adaserve_clairvoyant")
    cut = run.requests["output_tokens"].sum()
    assert 0 <= run.requests["draft_tokens"].sum() - run.requests["accepted_tokens"].sum() < 8 * len(run.requests)
    assert run.slo_attainment >= outcome("adaserve").slo_attainment
    assert cut == outcome("adaserve").requests["output_tokens"].sum()
