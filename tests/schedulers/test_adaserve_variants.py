"""AdaServe's first version and equal shares by hand."""

import numpy as np
import pytest

from specsim.core.trees import Forest
from specsim.schedulers.parts.selection import likeliest_each
from specsim.schedulers.parts.tree_shape import BudgetShare
from tests.layers import grow


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
