"""Texts in easy and hard stretches: which rows their positions have, and what that does to runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.acceptance.curves import Acceptance, Curve
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.acceptance.trace import STRETCHES, AcceptanceTrace
from specsim.rng import mix
from tests.made import refusal

CURVE = Curve(0.7, 2.0, 0.3, 0.5, stretch_tokens=16, stretch_spread=1.0)
TEXTS, TOKENS = 300, 256


def drawn(curve: Curve, texts: int = TEXTS) -> AcceptanceTrace:
    return Acceptance({"x": curve}, 4, 16).acceptance_trace(["x"], np.zeros(texts, np.int64), np.arange(texts), 3)


def rows_at(acceptance_trace: AcceptanceTrace, request: np.ndarray, keys: np.ndarray, on: bool) -> np.ndarray:
    return acceptance_trace.rows(request, keys, mix(keys), np.full(len(keys), on), np.zeros_like(request))


def rows_of(acceptance_trace: AcceptanceTrace, texts: int = TEXTS) -> np.ndarray:
    """Return the row of each position, (texts, TOKENS)."""
    request, position = np.divmod(np.arange(texts * TOKENS), TOKENS)
    return rows_at(acceptance_trace, request, acceptance_trace.on_path(request, position), True).reshape(texts, TOKENS)


def test_a_stretch_is_of_one_kind_and_they_begin_anywhere() -> None:
    acceptance_trace = drawn(CURVE)
    layout: Any = acceptance_trace.layout
    kind = (rows_of(acceptance_trace) - layout.start[:, None]) // layout.pool_rows
    assert (kind.min(), kind.max()) == (0, STRETCHES - 1)
    changes = np.diff(kind, axis=1) != 0
    places = [set((np.flatnonzero(each) + 1) % CURVE.stretch_tokens) for each in changes]
    assert all(len(each) == 1 for each in places)
    assert {place for each in places for place in each} == set(range(CURVE.stretch_tokens))
    shares = np.bincount(kind[:, ::16].ravel(), minlength=STRETCHES) / kind[:, ::16].size
    assert shares == pytest.approx(1 / STRETCHES, abs=0.02)


def test_neighbours_are_alike_as_far_as_a_stretch_reaches() -> None:
    """The covariance of two positions is that of the stretches' means, times the chance that one holds both."""
    acceptance_trace = drawn(CURVE, 2000)
    right = (acceptance_trace.rank[rows_of(acceptance_trace, 2000)] == 0) - 0.7
    covariance = [float((right[:, lag:] * right[:, :-lag]).mean()) for lag in (1, 8, 16, 40)]
    between = covariance[3]
    assert covariance[2] == pytest.approx(between, abs=0.002)
    assert covariance[1] - between == pytest.approx((covariance[0] - between) * (8 / 16) / (15 / 16), rel=0.1)
    assert covariance[0] - between > 0.02


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"stretch_tokens": 16}, "categories.x.stretch_spread: None is not a number beside stretch_tokens"),
        ({"stretch_spread": 1.0}, "categories.x.stretch_tokens: None is not a number beside stretch_spread"),
        ({"stretch_tokens": -1, "stretch_spread": 1.0}, "stretch_tokens: -1 is not a whole number between 0 and"),
        ({"stretch_tokens": 16, "stretch_spread": 21}, "stretch_spread"),
    ],
)
def test_bad_stretches_are_one_line(more: dict[str, float], said: str) -> None:
    body = {"agreement": 0.7, "concentration": 2.0, "spread": 0.3, "tail": 0.5} | more
    mapping = {"kind": "curves", "width": 4, "levels": 4, "categories": {"x": body}}
    assert said in refusal(acceptance_from_mapping, mapping, "mine")


def test_off_the_path_any_kind_may_follow() -> None:
    acceptance_trace = drawn(CURVE)
    layout: Any = acceptance_trace.layout
    keys = mix(np.arange(5000, dtype=np.uint64))
    request = np.zeros(5000, np.int64)
    rows = rows_at(acceptance_trace, request, keys, False)
    assert np.bincount((rows - layout.start[0]) // layout.pool_rows, minlength=STRETCHES).min() > 200
    assert set(np.unique(rows)) <= set(acceptance_trace.text_rows(np.zeros(1, np.int64)))
