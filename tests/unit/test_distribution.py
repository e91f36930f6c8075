"""Numbers in bounded memory: exact up to a bound, then mean and deviation to rounding and percentiles to 0.1%."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.metrics.distribution import RELATIVE_ERROR, Distribution, Sketched

SIZES = st.lists(st.integers(0, 400), min_size=1, max_size=12)
KINDS = ("exponential", "lognormal", "pareto", "few values", "one value", "zeros among them", "two far apart")


def drawn(kind: str, size: int, seed: int) -> Any:
    rng = np.random.default_rng(seed)
    if kind in ("exponential", "lognormal", "pareto"):
        return getattr(rng, kind)(2.0, size=size) * 1e-2
    choices = {
        "few values": (0.011, 0.0125, 0.3),
        "one value": (0.02,),
        "zeros among them": (0.0, 0.01),
        "two far apart": (1e-6, 1e6),
    }
    return rng.choice(choices[kind], size)


def filled(numbers: Any, sizes: list[int], most_exact: int) -> Distribution:
    distribution = Distribution(most_exact)
    for block in np.split(numbers, np.cumsum(sizes)[:-1]):
        distribution.add(block)
    return distribution


@given(st.sampled_from(KINDS), SIZES, st.integers(0, 99))
def test_up_to_the_bound_every_number_is_kept(kind: str, sizes: list[int], seed: int) -> None:
    numbers = drawn(kind, sum(sizes), seed)
    kept = filled(numbers, sizes, most_exact=len(numbers)).result
    assert isinstance(kept, np.ndarray)
    assert kept.tobytes() == numbers.tobytes()


@given(st.sampled_from(KINDS), SIZES.filter(lambda sizes: sum(sizes) > 0), st.integers(0, 99), st.floats(0, 0.99))
def test_beyond_the_bound_the_error_is_the_stated_one(kind: str, sizes: list[int], seed: int, share: float) -> None:
    numbers = drawn(kind, sum(sizes), seed)
    known = filled(numbers, sizes, most_exact=int(share * len(numbers))).result
    assert isinstance(known, Sketched)
    assert known.count == len(numbers)
    assert known.least == np.min(numbers)
    assert known.mean == pytest.approx(np.mean(numbers), rel=1e-12)
    assert known.std == pytest.approx(np.std(numbers), rel=1e-12, abs=1e-12 * np.mean(numbers))
    for found, percent in ((known.median, 50), (known.p99, 99)):
        there = np.percentile(numbers, percent, method="lower")
        assert abs(found - there) <= RELATIVE_ERROR * (1 + 1e-9) * there


def test_the_deviation_of_large_numbers_that_hardly_differ_is_no_rounding() -> None:
    """A sum of squares less the square of the sum would return 0, or the root of a negative number."""
    numbers = 1e9 + np.random.default_rng(0).standard_normal(100_000)
    known = filled(numbers, [1_000] * 100, most_exact=0).result
    assert isinstance(known, Sketched)
    assert known.std == pytest.approx(np.std(numbers - 1e9), rel=1e-6)


@given(st.sampled_from(KINDS), st.lists(st.integers(1, 300), min_size=2, max_size=5), st.integers(0, 400))
def test_those_of_several_are_those_of_one(kind: str, sizes: list[int], most_exact: int) -> None:
    numbers = drawn(kind, sum(sizes), 0)
    whole = Distribution(most_exact)
    for each in np.split(numbers, np.cumsum(sizes)[:-1]):
        part = Distribution(most_exact)
        part.add(each)
        whole.merge(part)
    found = whole.result
    if isinstance(found, Sketched):
        assert len(numbers) > most_exact
        once = filled(numbers, sizes, 0).result
        assert isinstance(once, Sketched)
        assert (found.count, found.median, found.p99) == (once.count, once.median, once.p99)
        assert found.least == np.min(numbers)
        assert found.mean == pytest.approx(np.mean(numbers), rel=1e-12)
        assert found.std == pytest.approx(np.std(numbers), rel=1e-12, abs=1e-12 * np.mean(numbers))
    else:
        assert found.tobytes() == numbers.tobytes()
