"""Curves of recordings whose truth is known."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.acceptance.curves import (
    by_confidence,
    calibration_error,
    each_round,
    on_path,
    rounds,
    running_rates,
    settling,
)
from profiler.acceptance.trace_file import RecordedTrace
from tests.made import refusal
from tests.profiler.acceptance.traces import acceptance_trace_of, small_trace


def patterned(*patterns: list[int]) -> RecordedTrace:
    """Return texts whose tokens are right where the pattern says so."""
    right = np.concatenate(patterns)
    zero, confidence = np.zeros(len(right), int), np.tile([0.5, 0.25], (len(right), 1))
    sequence = np.repeat(np.arange(len(patterns)), [len(each) for each in patterns])
    position = np.concatenate([np.arange(len(each)) for each in patterns])
    return acceptance_trace_of(zero, sequence, position, zero - 1, confidence, np.where(right, 0, 2), ("chat",))


def test_rows_of_a_category_leave_out_what_lies_off_the_path() -> None:
    rows = on_path(small_trace(), "code")
    assert (rows.row.tolist(), rows.text.tolist()) == ([3], [0])
    assert "category 'cod' was not recorded; did you mean 'code'?" in refusal(on_path, small_trace(), "cod")


def test_a_round_begins_behind_the_bonus_token_of_the_last() -> None:
    rows = on_path(patterned([1, 1, 0, 1, 1, 1, 1, 0], [0, 0, 1], [1]), "chat")
    # Chains of 2: 2 accepted from 0, 2 from 3, 1 from 6; none from 0 and none from 1; the last text has no room.
    assert rounds(rows, 2) == (pytest.approx(5 / 5), pytest.approx(2 / 5))
    assert [each.tolist() for each in each_round(rows, 2)] == [[2, 2, 1, 0, 0], [0, 0, 0, 1, 1]]
    assert np.isnan(rounds(rows, 9)).all()
    assert np.isnan(settling(rows, np.array([5])).distance).all()


def test_bins_hold_mean_confidence_and_acceptance() -> None:
    confidence = np.array([0.05, 0.05, 0.72, 0.78, 1.0])
    bins = by_confidence(confidence, np.array([False, True, True, False, True]))
    assert bins.rows.tolist() == [2, 0, 0, 0, 0, 0, 0, 2, 0, 1]
    assert bins.confidence[[0, 7, 9]] == pytest.approx([0.05, 0.75, 1.0])
    assert bins.accepted[[0, 7, 9]] == pytest.approx([0.5, 0.5, 1.0])
    assert calibration_error(bins) == pytest.approx((2 * 0.45 + 2 * 0.25 + 0) / 5)


def test_running_rates_are_noted_every_ten_accepted_tokens() -> None:
    rows = on_path(patterned([0] * 30, [1, 0] * 10 + [1] * 15), "chat")
    at, rate = running_rates(rows, 1)
    assert at.tolist() == [19, 30]
    assert rate == pytest.approx([10 / 19, 20 / 30])
