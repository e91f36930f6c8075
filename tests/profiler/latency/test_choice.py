from dataclasses import astuple, replace

import numpy as np
import pytest

from profiler.latency.choice import as_columns, judge, usable
from profiler.latency.fit import fit_linear
from profiler.latency.points import FULL, QUICK, GridPoint
from specsim.latency.forms import Linear, Roofline
from tests.made import one, refusal
from tests.profiler.latency.made import sample, samples_of

DENSE = replace(FULL, requests=(1, 3, 8, 20, 48, 64, 128, 256), contexts=(128, 1024, 4096), trees=(4, 7, 16))
DENSE = replace(DENSE, chunks=(64, 128, 256, 512, 1024, 2048, 4096), beside=(8, 64))
FEW = replace(FULL, requests=(1, 2, 3, 4, 8, 20, 64), contexts=(128, 1024, 2048), catchup=(2, 4))
CURVED, LINE = Roofline(0.012, 1e-6, 0.002, 7e-5, 2e-8, 2e-9), Linear(3e-8, 5e-5, 0.01)


def test_a_roofline_and_a_line_are_found_again_and_not_taken_for_each_other():
    choice = judge(samples_of(CURVED), "target")
    for key in ("delta_s", "compute_s", "alpha_s"):
        assert getattr(choice.roofline.fitted.form, key) == pytest.approx(getattr(CURVED, key), rel=1e-4)
    assert max(error.worst for error in choice.roofline.errors.values()) < 1e-4
    assert choice.linear.score > 0.05
    choice = judge(samples_of(LINE, "draft", grid=QUICK), "draft")
    assert choice.linear.fitted.form.gamma_s == pytest.approx(5e-5, rel=1e-6)
    assert choice.linear.score < 1e-9


def test_intervals_of_standard_errors_hold_the_law_as_often_as_they_say():
    """A mixed pass weighs as much as a dozen verifications, but its noise is no smaller."""
    samples, rng, held = as_columns(samples_of(LINE)), np.random.default_rng(5), []
    for _ in range(200):
        fitted = fit_linear(replace(samples, seconds=samples.seconds * rng.normal(1, 0.02, len(samples.seconds))))
        apart = np.subtract(astuple(fitted.form), astuple(LINE))
        held.append(np.abs(apart) < 1.96 * np.array([*fitted.standard_errors.values()]))
    assert np.mean(held, axis=0) == pytest.approx(0.95, abs=0.045)


@pytest.mark.parametrize(
    ("law", "tolerance"),
    [({"tile_tokens": 64}, 0), ({"pair_s": 3e-9, "beta_s": 1e-9}, 3e-10), ({"logit_s": 3e-5}, 2e-6)],
)
def test_a_staircase_and_what_costs_on_top_are_found(law, tolerance):
    choice = judge(samples_of(replace(CURVED, **law), noise=0.002), "target")
    (key, value), *_ = law.items()
    assert getattr(choice.roofline.fitted.form, key) == pytest.approx(value, abs=tolerance)
    assert max(error.p95 for error in choice.roofline.errors.values()) < 0.02


@pytest.mark.parametrize(
    ("role", "key", "other"), [("target", "few_s", "few_logits_s"), ("draft", "few_logits_s", "few_s")]
)
def test_passes_of_few_tokens_are_found_and_told_from_those_with_few_logits(role, key, other):
    few_s = (-0.004, 0.003, 0.006, -0.001)
    fitted = judge(samples_of(replace(CURVED, **{key: few_s}), role, noise=0.002, grid=FEW), role).roofline.fitted
    assert getattr(fitted.form, key) == pytest.approx(few_s, abs=2e-4)
    assert getattr(fitted.form, other) == ()
    assert all(0 < each < 1e-4 for each in fitted.standard_errors[key])


def test_what_costs_nothing_on_top_has_no_coefficient():
    form = judge(samples_of(CURVED, noise=0.002, grid=FEW), "target").roofline.fitted.form
    assert (form.few_s, form.few_logits_s, form.tile_tokens) == ((), (), 1)
    assert (form.pair_s, form.logit_s) == pytest.approx((0, 0), abs=3e-10)


def test_a_size_that_was_not_sampled_lies_between_its_neighbours():
    few_s = (-0.004, 0.003, 0.006)
    samples = samples_of(replace(CURVED, few_s=few_s), noise=0.002, grid=replace(FEW, requests=(1, 3, 8, 20)))
    fitted = judge(samples, "target").roofline.fitted
    assert fitted.form.few_s == pytest.approx((-0.004, 0.001, 0.006), abs=2e-4)
    assert fitted.standard_errors["few_s"][1] is None


def test_means_are_fitted_where_asked_for_and_refused_where_not_known():
    samples = [replace(each, mean_s=2 * each.median_s) for each in samples_of(CURVED, grid=QUICK)]
    assert judge(samples, "target", "mean").roofline.fitted.form.delta_s == pytest.approx(2 * CURVED.delta_s)
    samples = [replace(each, mean_s=float("nan")) for each in samples]
    assert "target: samples without the means of their runs" in refusal(judge, samples, "target", "mean")


def test_a_kernel_for_few_rows_is_found_up_to_its_last_row():
    """As on a CPU that multiplies up to 15 rows in steps of three, and more rows in less time than 15."""
    few_s = tuple(0.002 * (size // 3) for size in range(1, 16))
    grid = replace(FEW, requests=(1, 2, 3, 4, 5, 8, 20, 64), trees=(2, 3, 5, 7))
    samples = samples_of(replace(CURVED, few_s=few_s), noise=0.002, grid=grid)
    form = judge(samples, "target").roofline.fitted.form
    for tokens in range(1, 24):
        shape = one(0, tokens, tokens, tokens)
        assert form.seconds(shape) == pytest.approx(replace(CURVED, few_s=few_s).seconds(shape), rel=0.06)


def test_a_held_out_shape_has_not_been_seen():
    """A shape a hundred times as fast as the law weighs a hundred times as much: only a fit without it is unmoved."""
    samples = samples_of(CURVED, grid=DENSE)
    place = next(number for number, each in enumerate(samples) if each.key == "decode/64x1@1024")
    lawful = samples[place].median_s
    samples[place] = replace(samples[place], median_s=lawful / 100)
    judged = judge([*samples, replace(samples[place], measured_at="again")], "target").roofline
    assert judged.held_out_s[place] == pytest.approx(lawful, rel=1e-3)
    assert judged.held_out_s[-1] == pytest.approx(lawful, rel=1e-3)
    moved = judged.fitted.form.seconds(one(samples[place].context_tokens, 64, samples[place].attention_pairs))
    assert moved < 0.5 * lawful


def test_replays_stand_before_launches_failures_are_left_out_and_what_stays_may_be_too_little():
    one, two, three = (GridPoint("decode", n, 128, 1) for n in (1, 2, 3))
    failed = sample(three, status="out of memory", seconds=float("nan"))
    samples = [sample(one, mode="eager"), sample(one), sample(two, mode="eager"), failed, sample(three, role="draft")]
    assert [(each.key, each.mode) for each in usable(samples, "target")] == [(one.key, "graph"), (two.key, "eager")]
    assert "target: 2 measured shapes of pass; expected 8 at least to fit" in refusal(judge, samples, "target")
