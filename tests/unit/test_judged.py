"""How well a run knows what a search asks for, by hand."""

from __future__ import annotations

from math import ceil, sqrt
from typing import Any

import pytest

from specsim.metrics.batch_means import Z_975
from specsim.search.found import Judged, judged


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
