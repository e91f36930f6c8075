"""The search for the highest rate: it ends, narrows what it should, and says where attainment is not monotonic."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.metrics.capacity import Asked, Capacity, Tested, capacity, next_rate


def searched(asked: Asked, attained: Callable[[float], tuple[float, ...]]) -> tuple[Capacity, Tested]:
    tested: dict[float, tuple[float, ...]] = {}
    while (rate := next_rate(asked, tested)) is not None:
        assert rate not in tested
        assert asked.first <= rate <= asked.last
        tested[rate] = attained(rate)
        assert len(tested) < 60
    return capacity(asked, tested), tested


@given(st.floats(0.1, 500), st.floats(0.5, 1), st.floats(0.01, 0.3))
def test_it_finds_where_a_falling_line_crosses(true: float, target: float, within: float) -> None:
    asked = Asked(target, 0.5, 64.0, within)
    found, _ = searched(asked, lambda rate: (target if rate <= true else target - 0.1,))
    if true < asked.first:
        assert (found.keeps, found.misses) == (None, asked.first)
    elif true >= asked.last:
        assert (found.keeps, found.misses) == (asked.last, None)
    else:
        assert found.keeps is not None
        assert found.misses is not None
        assert found.keeps <= true < found.misses <= found.keeps * (1 + within)


def test_it_takes_up_where_it_was() -> None:
    asked = Asked(0.9, 1.0, 32.0, 0.02)
    found, tested = searched(asked, lambda rate: (1.0 if rate < 5 else 0.5,))
    for left in range(len(tested)):
        begun = dict(list(tested.items())[:left])
        assert next_rate(asked, begun) == list(tested)[left]
    assert next_rate(asked, tested) is None
    assert capacity(asked, tested).keeps == found.keeps


def test_what_is_met_again_is_said_and_not_counted() -> None:
    asked = Asked(0.9, 1.0, 32.0, 0.1)
    found, tested = searched(asked, lambda rate: (0.95 if rate < 3 or 7 < rate < 12 else 0.5,))
    assert found.keeps is not None
    assert found.keeps < 3
    assert found.again == (8.0,)
    assert max(tested) == 32.0


def test_the_interval_is_that_of_the_seeds_own_crossings() -> None:
    def attained(rate: float) -> tuple[float, ...]:
        return tuple(1 - rate / scale for scale in (40.0, 50.0, 60.0))

    found, _ = searched(Asked(0.9, 1.0, 32.0, 0.02), attained)
    assert found.by_seed == pytest.approx([4.0, 5.0, 6.0])
    assert found.mean == pytest.approx(5.0)
    assert found.half_width == pytest.approx(4.302653 * 1.0 / np.sqrt(3), rel=1e-6)
