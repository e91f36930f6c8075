"""LAPS-SD beats LP-SJF and LAS where acceptance varies between requests."""

from __future__ import annotations

import pytest

from tests.claims.paired import mean_e2el_s, surely_positive
from tests.claims.settings import LAPS, LAPS_REQUESTS

pytestmark = pytest.mark.slow

CASES = [(baseline, requests) for baseline in ("lp_sjf", "las") for requests in LAPS_REQUESTS]


def marks(baseline: str) -> list[pytest.MarkDecorator]:
    if baseline != "lp_sjf":
        return []
    return [pytest.mark.xfail(reason="does not reproduce: docs/claims.md, row 3a")]


@pytest.mark.parametrize(("baseline", "requests"), [pytest.param(*case, marks=marks(case[0])) for case in CASES])
def test_laps_sd_beats(baseline: str, requests: int) -> None:
    mine = mean_e2el_s("laps_sd", **LAPS, requests=requests)
    assert surely_positive(mean_e2el_s(baseline, **LAPS, requests=requests) - mine)
