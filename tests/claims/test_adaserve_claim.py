"""AdaServe's attainment is at least that of its ablations and of continuous batching, on its own mix at high load."""

from __future__ import annotations

import pytest

from tests.claims.paired import MEASURES, attainment
from tests.claims.settings import ABLATIONS, ADASERVE, ADASERVE_RATES, BASELINES, FIGURE_1

pytestmark = pytest.mark.slow

CASES = [
    (measure, other, rps)
    for measure in MEASURES
    for other in (*ABLATIONS, *BASELINES, *FIGURE_1)
    for rps in ADASERVE_RATES
]
ROUNDING = 1e-12
"""Of the mean of shares; one request is 3e-3."""


@pytest.mark.parametrize(("measure", "other", "rps"), CASES)
def test_adaserve_attains_at_least_as_much_as(measure: str, other: str, rps: float) -> None:
    settings = {**ADASERVE, "trace__point": rps, "rps": rps}
    difference = attainment(measure, "adaserve", **settings) - attainment(measure, other, **settings)
    assert difference.mean() >= -ROUNDING
