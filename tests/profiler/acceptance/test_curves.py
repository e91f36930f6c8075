"""Curves, rounds and accepted lengths against brute force and theory; curves that traces were drawn from come back."""

from dataclasses import replace

import numpy as np
import pytest

from profiler.acceptance import analysis, curves
from profiler.acceptance.analysis import fit_curve
from profiler.acceptance.trace_file import RecordedTrace
from specsim.acceptance.curves import Acceptance, Curve
from specsim.rng import mix
from tests.made import refusal
from tests.profiler.acceptance.traces import acceptance_trace_of, drawn_trace, small_trace


def naive_beam(walks: curves.Walks, walk: int, depth: int, width: int) -> int:
    """Return the accepted tokens of one walk whose off-path pool is one row."""
    leaves, accepted = [(1.0, True)], 0
    for level in range(depth):
        grown = []
        for probability, right in leaves:
            row = walks.on[walk, level] if right else walks.off_start[walk]
            for rank in range(width):
                grown.append((probability * walks.confidence[row, rank], right and walks.rank[row] == rank))
        leaves = sorted(grown, key=lambda leaf: -leaf[0])[:width]
        accepted += any(right for _, right in leaves)
    return accepted


@pytest.mark.parametrize("width", [1, 3])
def test_beams_equal_a_beam_by_hand(width):
    rng = np.random.default_rng(2)
    acceptance_trace = drawn_trace(rng, sequences=12, tokens=30, confidence=np.array([0.35, 0.5, 0.8]))
    walks = curves.recorded_walks(acceptance_trace, "chat")
    first = np.full(len(walks.on), 7)
    walks = walks._replace(off_start=first, off_rows=np.ones_like(first))
    lengths = curves.accepted_lengths(walks, width)
    for depth in (1, 3, 8):
        by_hand = [naive_beam(walks, walk, depth, width) for walk in range(len(walks.on))]
        assert lengths[:, depth - 1].tolist() == by_hand


def test_walks_stay_within_a_text_and_take_the_off_path_pool_of_their_category():
    columns = [0] * 9 + [0] + [1] * 3, [0] * 8 + [1, 1, 2, 2, 2], [*range(8), 0, 4, 0, 1, 2], [-1] * 9 + [2] + [-1] * 3
    confidence = np.linspace(0.9, 0.1, 13)[:, None]
    acceptance_trace = acceptance_trace_of(*columns, confidence, np.ones(13, int), ("chat", "code"))
    walks = curves.recorded_walks(acceptance_trace, "chat")
    assert walks.on.tolist() == [list(range(8))]
    pool = walks.confidence[walks.off_start[0] : walks.off_start[0] + walks.off_rows[0], 0]
    assert pool.tolist() == [confidence[9, 0]]


def as_recorded(curve: Curve, texts: int, tokens: int, seed: int = 0) -> RecordedTrace:
    """Return a recording of texts drawn from a curve."""
    drawn = Acceptance({"x": curve}, 4, 16).acceptance_trace(["x"], np.zeros(texts, int), np.arange(texts), seed)
    sequence, position = np.divmod(np.arange(texts * tokens), tokens)
    keys = drawn.on_path(sequence, position)
    row = drawn.rows(sequence, keys, mix(keys), np.ones(len(keys), np.bool_), np.zeros_like(sequence))
    zero = np.zeros(len(row), int)
    return acceptance_trace_of(zero, sequence, position, zero - 1, drawn.confidence[row], drawn.rank[row], ("chat",))


@pytest.mark.parametrize("curve", [Curve(0.5, 1.0, 0.0, 0.3), Curve(0.85, 5.0, 1.0, 0.6)], ids=str)
def test_a_fit_finds_the_curves_that_a_trace_was_drawn_from_and_no_stretches(curve):
    fitted = fit_curve(as_recorded(curve, 400, 200), "chat")
    assert fitted.agreement == pytest.approx(curve.agreement, abs=0.02)
    assert fitted.concentration == pytest.approx(curve.concentration, rel=0.15)
    assert fitted.spread == pytest.approx(curve.spread, abs=0.12)
    assert fitted.tail == pytest.approx(curve.tail, abs=0.05)
    assert fitted.stretch_spread < 0.15


def test_a_fit_finds_stretches():
    assert analysis.spread_of(0.6, 0.0) == 0.0
    curve = Curve(0.7, 3.0, 0.4, 0.5, stretch_tokens=16, stretch_spread=1.0)
    fitted = fit_curve(as_recorded(curve, 600, 200), "chat")
    assert (fitted.stretch_tokens, fitted.stretch_spread) == (16, pytest.approx(1.0, rel=0.1))
    assert (fitted.concentration, fitted.spread) == (pytest.approx(3.0, rel=0.15), pytest.approx(0.4, abs=0.12))


def test_traces_drawn_from_the_right_curves_differ_little_and_from_wrong_ones_much():
    curve = Curve(0.7, 2.0, 0.6, 0.5)
    acceptance_trace = as_recorded(curve, 300, 100)
    same = curves.compare(acceptance_trace, Acceptance({"chat": curve}, 4, 16), "chat")
    assert [(each.depth, each.width) for each in same] == [(n, width) for width in (1, 2, 3) for n in range(1, 9)]
    assert max(each.total_variation for each in same) < 0.03
    assert all(abs(each.mean - each.mean_drawn) < 4 * each.error + 0.05 for each in same)
    other = curves.compare(acceptance_trace, Acceptance({"chat": replace(curve, agreement=0.5)}, 4, 16), "chat")
    assert min(each.total_variation for each in other if each.width == 1) > 0.15


def test_calibrated_confidence_rises_and_keeps_the_mean():
    rng = np.random.default_rng(4)
    claimed = rng.random(5000)
    right = rng.random(5000) < claimed**2
    found = analysis.calibrated(claimed, right)
    assert found.mean() == pytest.approx(right.mean())
    assert (np.diff(found[np.argsort(claimed)]) >= 0).all()
    assert np.abs(found - claimed**2).mean() < 0.04
    nothing = [analysis.calibrated_variance(rng.random(500), rng.random(500) < 0.7) for _ in range(50)]
    assert np.mean(nothing) == pytest.approx(0, abs=6e-4)


def patterned(*patterns: list[int]) -> RecordedTrace:
    """Return texts whose tokens are right where the pattern says so."""
    right = np.concatenate(patterns)
    zero, confidence = np.zeros(len(right), int), np.tile([0.5, 0.25], (len(right), 1))
    sequence = np.repeat(np.arange(len(patterns)), [len(each) for each in patterns])
    position = np.concatenate([np.arange(len(each)) for each in patterns])
    return acceptance_trace_of(zero, sequence, position, zero - 1, confidence, np.where(right, 0, 2), ("chat",))


def test_texts_of_uneven_length_have_no_stretches():
    """In a fifth of such recordings long texts counted for more in the covariance than in what is taken off it."""
    rng = np.random.default_rng(3)
    for _ in range(30):
        lengths, levels = rng.exponential(130, 32).astype(int) + 1, 1 / (1 + np.exp(-1.6 - 0.8 * rng.normal(size=32)))
        texts = [rng.random(tokens) < level for tokens, level in zip(lengths, levels, strict=True)]
        rows = curves.on_path(patterned(*texts), "chat")
        assert analysis.stretches_of(rows, analysis.between_texts(rows)) == (0, 0.0)


def test_rows_of_a_category_leave_out_what_lies_off_the_path():
    rows = curves.on_path(small_trace(), "code")
    assert (rows.row.tolist(), rows.text.tolist()) == ([3], [0])
    assert "category 'cod' was not recorded; did you mean 'code'?" in refusal(curves.on_path, small_trace(), "cod")


def test_a_round_begins_behind_the_bonus_token_of_the_last():
    rows = curves.on_path(patterned([1, 1, 0, 1, 1, 1, 1, 0], [0, 0, 1], [1]), "chat")
    # Chains of 2: 2 accepted from 0, 2 from 3, 1 from 6; none from 0 and none from 1; the last text has no room.
    assert curves.rounds(rows, 2) == (pytest.approx(5 / 5), pytest.approx(2 / 5))
    assert [each.tolist() for each in curves.each_round(rows, 2)] == [[2, 2, 1, 0, 0], [0, 0, 0, 1, 1]]
    assert np.isnan(curves.rounds(rows, 9)).all()
    assert np.isnan(curves.settling(rows, np.array([5])).distance).all()
    assert np.isnan(curves.half_width(np.ones(2), np.zeros(2, dtype=int)))
    two_texts = np.array([0, 1, 1, 1]), np.array([3, 3, 4, 4])
    assert curves.half_width(*two_texts) == pytest.approx(12.7062 * curves.clustered_error(*two_texts), rel=1e-5)


def test_bins_hold_mean_confidence_and_acceptance():
    bins = curves.by_confidence(np.array([0.05, 0.05, 0.72, 0.78, 1.0]), np.array([False, True, True, False, True]))
    assert bins.rows.tolist() == [2, 0, 0, 0, 0, 0, 0, 2, 0, 1]
    assert bins.confidence[[0, 7, 9]] == pytest.approx([0.05, 0.75, 1.0])
    assert bins.accepted[[0, 7, 9]] == pytest.approx([0.5, 0.5, 1.0])
    assert curves.calibration_error(bins) == pytest.approx((2 * 0.45 + 2 * 0.25 + 0) / 5)
