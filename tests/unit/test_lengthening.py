"""Which runs of a search are made longer, by hand."""

from __future__ import annotations

from specsim.metrics.capacity import Asked
from specsim.search.found import Judged, Line, longer

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
