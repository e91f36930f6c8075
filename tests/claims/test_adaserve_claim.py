"""AdaServe's attainment is at least that of its ablations and of continuous batching, on its own mix at high load."""

from __future__ import annotations

import pytest

from tests.claims.paired import attainment
from tests.claims.settings import ABLATIONS, ADASERVE, ADASERVE_RATES, BASELINES, FIGURE_1

pytestmark = pytest.mark.slow

CASES = [(other, rps) for other in (*ABLATIONS, *BASELINES, *FIGURE_1) for rps in ADASERVE_RATES]
ROUNDING = 1e-12
"""Of the mean of shares; one request is 3e-3."""
LEVEL = {("equal_greedy", 4.8), ("global_greedy", 4.8)}
"""Ablations that come out a hair above it."""


def marks(other: str, rps: float) -> list[pytest.MarkDecorator]:
    if other == "priority":
        return [
            pytest.mark.xfail(reason="urgent requests alone in small batches win: docs/schedulers.md, Claims, row 4c")
        ]
    if (other, rps) not in LEVEL:
        return []
    return [pytest.mark.xfail(reason="level to a tenth of a point: docs/schedulers.md, Claims, row 4b")]


@pytest.mark.parametrize(("other", "rps"), [pytest.param(*case, marks=marks(*case)) for case in CASES])
def test_adaserve_attains_at_least_as_much_as(other: str, rps: float) -> None:
    settings = {**ADASERVE, "trace__point": rps, "rps": rps}
    assert (attainment("adaserve", **settings) - attainment(other, **settings)).mean() >= -ROUNDING
