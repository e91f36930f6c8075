"""The clock of a run run again, and verdicts of tables, by hand: errors, noise, shares, and the worst first."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from profiler.fidelity.verdicts import Step, accounted, pass_errors, run_verdicts, shares

KEYS = {"pair": "p", "load": 1.0}
METRICS = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "slo_attainment")


def cell(scheduler, side, repeat=0, *, numbers=(100.0, 10.0, 200.0, 0.9), own=0.2, other=None):
    named = dict(zip(METRICS, numbers, strict=True)) | {"own.e2el_s": own, "other.e2el_s": other}
    return {**KEYS, "scheduler": scheduler, "side": side, "repeat": repeat, **named}


def test_a_number_is_kept_within_its_target_or_twice_the_noise():
    cells = [
        cell("a", "simulated", numbers=(108.0, 11.0, 230.0, 0.95)),
        cell("a", "real", 0, numbers=(100.0, 10.0, 190.0, 0.9)),
        cell("a", "real", 1, numbers=(100.0, 10.0, 210.0, 0.9)),
    ]
    first, *_ = found = run_verdicts(pd.DataFrame(cells))
    by_metric = {each.metric: each for each in found}
    assert (first.metric, first.kept) == ("mean_tpot_ms", False)
    assert by_metric["mean_ttft_ms"].kept
    assert by_metric["mean_e2el_ms"][4:] == pytest.approx((200, 230, 0.15, 0.05, 0.1))
    assert by_metric["mean_e2el_ms"].allowed == pytest.approx(0.2)
    assert (by_metric["mean_e2el_ms"].kept, by_metric["mean_e2el_ms"].bare) == (True, False)
    assert by_metric["mean_ttft_ms"].bare
    assert by_metric["slo_attainment"].error == pytest.approx(0.05)
    assert not by_metric["slo_attainment"].kept
    assert [each.times for each in found] == sorted((each.times for each in found), reverse=True)


def noise_of(*cells):
    """Return the noise of mean E2E latency by scheduler, of real runs of these seconds, all simulated as 200."""
    rows = [
        cell(name, "real", turn, numbers=(1.0, 1.0, ms, 1.0))
        for name, *all_ms in cells
        for turn, ms in enumerate(all_ms)
    ]
    rows += [cell(name, "simulated", numbers=(1.0, 1.0, 200.0, 1.0)) for name, *_ in cells]
    return {each.scheduler: each.noise for each in run_verdicts(pd.DataFrame(rows)) if each.metric == "mean_e2el_ms"}


def test_noise_is_of_further_runs_and_a_disturbed_run_allows_its_cell_nothing():
    assert noise_of(("a", 190.0)) == pytest.approx({"a": float("nan")}, nan_ok=True)
    assert noise_of(("a", 196.0, 204.0, 196.0, 204.0)) == pytest.approx({"a": 0.04 * 4 / 6})
    disturbed = noise_of(("a", 100.0, 300.0), ("b", 198.0, 202.0), ("c", 196.0, 204.0))
    assert disturbed == pytest.approx(dict.fromkeys("abc", 0.04))


def test_one_real_run_is_held_to_the_target_and_cells_that_failed_have_no_verdict():
    verdict, *_ = run_verdicts(pd.DataFrame([cell("a", "real"), cell("a", "simulated")]))
    assert verdict.allowed == verdict.target
    failed = cell("a", "simulated", numbers=(None,) * 4, own=None) | {"error": "no"}
    assert run_verdicts(pd.DataFrame([failed, cell("a", "real")])) == []
    assert run_verdicts(pd.DataFrame([cell("b", "real")])) == []


def test_a_gap_is_seconds_and_decisions_and_text():
    cells = [
        cell("a", "simulated", own=0.26),
        cell("a", "real", own=0.2, other=0.21),
        cell("a", "reverse", own=0.25, other=0.22),
        cell("two_layers", "simulated", own=0.30),
        cell("two_layers", "real", own=0.2, other=0.23),
    ]
    two_layers, model = shares(pd.DataFrame(cells))
    again = pd.DataFrame([*cells, cell("two_layers", "real", 1, own=0.4, other=0.25)])
    mean = next(each for each in shares(again) if each.scheduler == "two_layers")
    unknown = float("nan")
    assert mean[3:] == pytest.approx((0.0, -0.2, 0.2, unknown, unknown), nan_ok=True)
    assert two_layers[3:] == pytest.approx((0.5, 0.15, 0.35, unknown, unknown), nan_ok=True)
    assert model[3:] == pytest.approx((0.3, 0.05, 0.2, 0.05, 0.1))


def test_passes_by_kind_and_by_size_the_worst_first():
    rows = [
        ("target decode", 1, 1.0, 1.1),
        ("target decode", 1, 1.2, 1.1),
        ("target decode", 3, 1.0, 1.5),
        ("draft step", 1, 1.0, 1.0),
        ("draft lookup", 1, 0.0, 0.0),
    ]
    fixed = {"pair": "p", "requests": 1.0, "context_tokens": 7.0, "attention_pairs": 8.0}
    table = pd.DataFrame(rows, columns=["kind", "batched_tokens", "measured_s", "predicted_s"]).assign(**fixed)
    decode, draft = pass_errors(table, by_size=False)
    assert (decode.kind, decode.passes, draft.kind, draft.passes) == ("target decode", 3, "draft step", 1)
    assert (decode.median, draft.median) == pytest.approx((0.1, 0.0))
    assert decode.mean == pytest.approx((0.1 - 1 / 12 + 0.5) / 3)
    assert decode.noise == pytest.approx((0.1 / 1.1) * 2**0.5)
    assert draft.noise != draft.noise
    by_size = [(each.kind, each.size) for each in pass_errors(table, by_size=True)]
    assert by_size == [("target decode", "3-4"), ("target decode", "1"), ("draft step", "1")]


ARRIVAL_S = np.array([0.0, 1.0, 10.0])


def test_tokens_come_at_the_ends_of_passes_and_the_clock_waits_for_who_runs():
    steps = [Step((0,), (1,), 2.0), Step((0, 1), (), 0.5), Step((0, 1), (2, 1), 1.0), Step((1, 2), (3, 1), 4.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [2.0, 3.5, 14.0])
    np.testing.assert_allclose(times.finish_s, [3.5, 14.0, 14.0])
    np.testing.assert_allclose(times.tokens, [3, 4, 1])
    assert times.means(ARRIVAL_S) == pytest.approx(
        {"ttft_s": (2 + 2.5 + 4) / 3, "tpot_s": (1.5 / 2 + 10.5 / 3) / 2, "e2el_s": (3.5 + 13 + 4) / 3}
    )


def test_a_row_that_emits_nothing_has_no_first_token_yet_and_without_tokens_there_are_no_means():
    steps = [Step((0, 1), (0, 2), 1.0), Step((0, 1), (1, 0), 1.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [3.0, 2.0, np.nan])
    np.testing.assert_allclose(times.finish_s, [3.0, 2.0, np.nan])
    assert np.isnan(list(accounted([], ARRIVAL_S).means(ARRIVAL_S).values())).all()
