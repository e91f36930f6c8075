"""LAPS-SD beats LP-SJF and LAS where acceptance varies between requests."""

from __future__ import annotations

import pytest

from tests.claims.paired import mean_e2el_s, surely_positive
from tests.claims.settings import LAPS, LAPS_REQUESTS

pytestmark = pytest.mark.slow

CASES = [(baseline, requests) for baseline in ("lp_sjf", "las") for requests in LAPS_REQUESTS]
ROWS = {"lp_sjf": "3a", ("las", 10): "3b"}
"""Rows of the claims that do not hold."""


def marks(baseline: str, requests: int) -> list[pytest.MarkDecorator]:
    row = ROWS.get(baseline) or ROWS.get((baseline, requests))
    return [pytest.mark.xfail(reason=f"does not reproduce: docs/schedulers.md, Claims, row {row}")] if row else []


@pytest.mark.parametrize(("baseline", "requests"), [pytest.param(*case, marks=marks(*case)) for case in CASES])
def test_laps_sd_beats(baseline: str, requests: int) -> None:
    mine = mean_e2el_s("laps_sd", **LAPS, requests=requests)
    assert surely_positive(mean_e2el_s(baseline, **LAPS, requests=requests) - mine)
