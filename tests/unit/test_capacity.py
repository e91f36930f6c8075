"""The search for the highest rate: it ends, narrows what it should, and makes runs longer that tell too little."""

from math import ceil, sqrt

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.metrics.capacity import Asked, capacity, next_rate
from specsim.metrics.statistics import Z_975
from specsim.search.found import Judged, Line, judged, longer


def searched(asked, attained):
    """Search as it goes on after each rate: by what is tested so far alone."""
    tested = {}
    while (rate := next_rate(asked, tested)) is not None:
        assert rate not in tested
        assert asked.first <= rate <= asked.last
        tested[rate] = attained(rate)
        assert len(tested) < 60
    return capacity(asked, tested), tested


@given(st.floats(0.1, 500), st.floats(0.5, 1), st.floats(0.01, 0.3))
def test_it_finds_where_a_falling_line_crosses(true, target, within):
    asked = Asked(target, 0.5, 64.0, within)
    found, _ = searched(asked, lambda rate: (target * (1 - 1e-10) if rate <= true else target - 0.1,) * 3)
    if true < asked.first:
        assert (found.keeps, found.misses) == (None, asked.first)
    elif true >= asked.last:
        assert (found.keeps, found.misses) == (asked.last, None)
    else:
        assert found.keeps <= true < found.misses <= found.keeps * (1 + within)
        assert found.mean == pytest.approx(found.keeps), "its seeds keep the target but for its rounding, too"


def test_what_is_met_again_is_said_and_not_counted():
    asked = Asked(0.9, 1.0, 32.0, 0.1)
    found, tested = searched(asked, lambda rate: (0.95 if rate < 3 or 7 < rate < 12 else 0.5,))
    assert found.keeps < 3
    assert (found.again, max(tested)) == ((8.0,), 32.0)


def test_the_interval_is_that_of_the_seeds_own_crossings():
    asked = Asked(0.9, 1.0, 32.0, 0.02)
    found, _ = searched(asked, lambda rate: tuple(1 - rate / scale for scale in (40.0, 50.0, 60.0)))
    assert (found.by_seed, found.mean) == (pytest.approx([4.0, 5.0, 6.0]), pytest.approx(5.0))
    assert found.known_to == found.half_width == pytest.approx(4.302653 * 1.0 / np.sqrt(3), rel=1e-6)


def run(half=0.02, needed=400, *, short=False, depends=False):
    return Judged(0.9, half, needed, short, depends)


SHORT, FAR = run(0.08, 2600, short=True), run(0.06, 1100, short=True)
UNKNOWN = run(0.06, None, short=True)


@pytest.mark.parametrize(
    ("shares", "runs", "requests", "longest", "needed"),
    [
        pytest.param([0.95, 0.93], [run(), run()], 1000, 10_000, None, id="a run that can be judged is long enough"),
        pytest.param([0.5, 0.4], [run(), run()], 1000, 10_000, None, id="also where it misses the target"),
        pytest.param([0.95, 0.93], [run(), SHORT], 1000, 10_000, 2600, id="as long as the shortest of them needs"),
        pytest.param([0.95], [FAR], 1000, 10_000, 2000, id="at least twice as long"),
        pytest.param([0.95], [UNKNOWN], 1000, 10_000, 2000, id="also where its need is unknown"),
        pytest.param([0.95, 0.95], [run(), run(depends=True)], 1000, 10_000, 2000, id="kept under overload"),
        pytest.param([0.6, 0.6], [run(), run(depends=True)], 1000, 10_000, None, id="missed under overload"),
        # The mean of four runs known to 8 points is known to 4.
        pytest.param([0.85] * 4, [SHORT] * 4, 1000, 10_000, None, id="its interval lies below the target"),
        pytest.param([0.87] * 4, [SHORT] * 4, 1000, 10_000, 2600, id="its interval holds the target"),
        pytest.param([0.85], [SHORT], 1000, 10_000, 2600, id="the interval of one run is wider"),
        pytest.param([0.95], [SHORT], 8000, 10_000, 10_000, id="no longer than the longest"),
        pytest.param([0.95], [SHORT], 10_000, 10_000, None, id="is the longest already"),
        pytest.param([0.95], [SHORT], 1000, 1500, 1500, id="the longest is short"),
        pytest.param([0.95, 0.0], [SHORT], 1000, 10_000, None, id="a rate at which a run failed"),
    ],
)
def test_runs_that_tell_too_little_become_longer(shares, runs, requests, longest, needed):
    line = Line({}, endless=True, tested={2.0: shares}, judged={2.0: runs}, requests={2.0: requests})
    assert longer(Asked(0.9, 1.0, 8.0, 0.02)._replace(longest=longest), line, 2.0) == needed


def metrics(half, **load):
    """Return what 1,000 requests attained, 100 of them of the worst class."""
    block = {"attainment_half_width": half, "needed_requests": 300, "too_short": False}
    counts = (("coding", 100, 0.86), ("chat", 900, 0.96))
    classes = {name: {"requests": requests, "slo_attainment": share} for name, requests, share in counts}
    told = {"slo_attainment": 0.95, "worst_class": "coding", "iterations": 1, "classes": classes}
    return told | {"load": {**block, "overloaded": False, "saturated": False, **load}}


def alone(met, n):
    """Return Agresti and Coull's half width."""
    centre = (met + 2) / (n + 4)
    return Z_975 * sqrt(centre * (1 - centre) / (n + 4))


ALL, CODING = alone(950, 1000), alone(86, 100)
BLIND = metrics(None, needed_requests=None, too_short=True)


def coding(half, depends=False):
    """Return the class known to `half`, and the requests after which it is known to 5 points."""
    return Judged(0.86, half, ceil(1000 * (half / 0.05) ** 2), True, depends)


@pytest.mark.parametrize(
    ("given", "of", "found"),
    [
        pytest.param(metrics(0.03), "all", Judged(0.95, 0.03, 300, False, False), id="of all the run itself tells"),
        pytest.param(metrics(ALL), "worst", coding(CODING), id="a small class is known less well"),
        pytest.param(metrics(ALL), "coding", coding(CODING), id="by its name"),
        pytest.param(metrics(3 * ALL), "coding", coding(3 * CODING), id="neighbours together"),
        pytest.param(BLIND, "coding", Judged(0.86, 1.0, None, True, False), id="a run that knows nothing of itself"),
        pytest.param(metrics(0.03), "poetry", Judged(1.0, 1.0, None, True, False), id="a class without requests"),
        pytest.param(metrics(ALL, overloaded=True), "all", Judged(0.95, ALL, 300, False, True), id="overload of all"),
        pytest.param(metrics(ALL, saturated=True), "coding", coding(CODING, True), id="saturation of a class"),
    ],
)
def test_a_class_is_judged_as_well_as_its_requests_tell(given, of, found):
    assert judged(given, of) == found._replace(half_width=pytest.approx(found.half_width))
