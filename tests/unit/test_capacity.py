"""The search for the highest rate: it ends, narrows what it should, and makes runs longer that tell too little."""

from __future__ import annotations

from collections.abc import Callable
from math import ceil, sqrt
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.metrics.batch_means import Z_975
from specsim.metrics.capacity import Asked, Capacity, Tested, capacity, next_rate
from specsim.search.found import Judged, Line, judged, longer


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


ASKED = Asked(0.9, 1.0, 8.0, 0.02, longest=10_000)
RATE = 2.0


def run(half: float = 0.02, needed: int | None = 400, *, short: bool = False, depends: bool = False) -> Judged:
    return Judged(0.9, half, needed, short, depends)


def line(shares: list[float], runs: list[Judged], requests: int | None = 1000) -> Line:
    lengths = {} if requests is None else {RATE: requests}
    return Line({}, endless=requests is not None, tested={RATE: shares}, judged={RATE: runs}, requests=lengths)


SHORT = run(0.08, 2600, short=True)


def test_runs_that_can_be_judged_are_long_enough() -> None:
    assert longer(ASKED, line([0.95, 0.93], [run(), run()]), RATE) is None
    assert longer(ASKED, line([0.5, 0.4], [run(), run()]), RATE) is None


def test_runs_that_keep_the_target_become_as_long_as_the_shortest_of_them_needs() -> None:
    assert longer(ASKED, line([0.95, 0.93], [run(), SHORT]), RATE) == 2600


def test_a_run_gets_at_least_twice_as_long() -> None:
    little = run(0.06, 1100, short=True)
    unknown = run(0.06, None, short=True)
    assert longer(ASKED, line([0.95], [little]), RATE) == 2000
    assert longer(ASKED, line([0.95], [unknown]), RATE) == 2000


def test_a_target_that_is_kept_under_overload_is_not_believed() -> None:
    assert longer(ASKED, line([0.95, 0.95], [run(), run(depends=True)]), RATE) == 2000
    assert longer(ASKED, line([0.6, 0.6], [run(), run(depends=True)]), RATE) is None


def test_a_miss_counts_once_its_interval_lies_below_the_target() -> None:
    # The mean of four runs known to 8 points is known to 4.
    assert longer(ASKED, line([0.85] * 4, [SHORT] * 4), RATE) is None
    assert longer(ASKED, line([0.87] * 4, [SHORT] * 4), RATE) == 2600
    assert longer(ASKED, line([0.85], [SHORT]), RATE) == 2600


def test_no_run_is_longer_than_the_longest() -> None:
    assert longer(ASKED, line([0.95], [SHORT], requests=8000), RATE) == 10_000
    assert longer(ASKED, line([0.95], [SHORT], requests=10_000), RATE) is None
    assert longer(ASKED._replace(longest=1500), line([0.95], [SHORT]), RATE) == 1500


def test_a_rate_at_which_a_run_failed_is_not_tested_again() -> None:
    assert longer(ASKED, line([0.95, 0.0], [SHORT]), RATE) is None


def metrics(half: float | None, **load: Any) -> dict[str, Any]:
    """Return what 1,000 requests attained, 100 of them of the worst class."""
    block = {"attainment_half_width": half, "needed_requests": 300, "too_short": False}
    return {
        "slo_attainment": 0.95,
        "worst_class": "coding",
        "iterations": 1,
        "classes": {
            "coding": {"requests": 100, "slo_attainment": 0.86},
            "chat": {"requests": 900, "slo_attainment": 0.96},
        },
        "load": {**block, "overloaded": False, "saturated": False, **load},
    }


def alone(met: float, n: int) -> float:
    """Return Agresti and Coull's half width."""
    centre = (met + 2) / (n + 4)
    return Z_975 * sqrt(centre * (1 - centre) / (n + 4))


def test_of_all_requests_the_run_itself_tells() -> None:
    assert judged(metrics(0.03), "all") == Judged(0.95, 0.03, 300, too_short=False, depends_on_length=False)


def test_a_small_class_is_known_less_well_and_needs_more_requests() -> None:
    half = alone(86, 100)
    found = judged(metrics(alone(950, 1000)), "worst")
    assert found == Judged(
        0.86, pytest.approx(half), ceil(1000 * (half / 0.05) ** 2), too_short=True, depends_on_length=False
    )
    assert found == judged(metrics(alone(950, 1000)), "coding")


def test_neighbours_that_miss_together_widen_a_class_as_they_widen_all() -> None:
    found = judged(metrics(3 * alone(950, 1000)), "coding")
    assert found.half_width == pytest.approx(3 * alone(86, 100))


def test_a_run_that_knows_nothing_of_itself_knows_nothing_of_a_class() -> None:
    found = judged(metrics(None, needed_requests=None, too_short=True), "coding")
    assert found == Judged(0.86, 1.0, None, too_short=True, depends_on_length=False)


@pytest.mark.parametrize("kind", ["overloaded", "saturated"])
def test_overload_is_told_of_whomever(kind: str) -> None:
    assert judged(metrics(0.03, **{kind: True}), "all").depends_on_length
    assert judged(metrics(0.03, **{kind: True}), "coding").depends_on_length


def test_of_a_class_without_requests_nothing_is_known() -> None:
    assert judged(metrics(0.03), "poetry") == Judged(1.0, 1.0, None, too_short=True, depends_on_length=False)
