"""The clock of a run run again, and the noise of real runs, by hand. A committed page has the other verdicts."""

import numpy as np
import pandas as pd
import pytest

from profiler.fidelity.verdicts import Step, accounted, run_verdicts

KEYS = {"pair": "p", "load": 1.0}
METRICS = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "slo_attainment")


def cell(scheduler, side, repeat=0, numbers=(100.0, 10.0, 200.0, 0.9)):
    return {**KEYS, "scheduler": scheduler, "side": side, "repeat": repeat, **dict(zip(METRICS, numbers, strict=True))}


def noise_of(*cells):
    """Return the noise of mean E2E latency by scheduler, of real runs of these seconds, all simulated as 200."""
    turns = [(name, turn, ms) for name, *all_ms in cells for turn, ms in enumerate(all_ms)]
    rows = [cell(name, "real", turn, numbers=(1.0, 1.0, ms, 1.0)) for name, turn, ms in turns]
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
    failed = cell("a", "simulated", numbers=(None,) * 4) | {"error": "no"}
    assert run_verdicts(pd.DataFrame([failed, cell("a", "real")])) == []
    assert run_verdicts(pd.DataFrame([cell("b", "real")])) == []


ARRIVAL_S = np.array([0.0, 1.0, 10.0])


def test_tokens_come_at_the_ends_of_passes_and_the_clock_waits_for_who_runs():
    steps = [Step((0,), (1,), 2.0), Step((0, 1), (), 0.5), Step((0, 1), (2, 1), 1.0), Step((1, 2), (3, 1), 4.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [2.0, 3.5, 14.0])
    np.testing.assert_allclose(times.finish_s, [3.5, 14.0, 14.0])
    np.testing.assert_allclose(times.tokens, [3, 4, 1])
    means = {"ttft_s": (2 + 2.5 + 4) / 3, "tpot_s": (1.5 / 2 + 10.5 / 3) / 2, "e2el_s": (3.5 + 13 + 4) / 3}
    assert times.means(ARRIVAL_S) == pytest.approx(means)


def test_a_row_that_emits_nothing_has_no_first_token_yet_and_without_tokens_there_are_no_means():
    steps = [Step((0, 1), (0, 2), 1.0), Step((0, 1), (1, 0), 1.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [3.0, 2.0, np.nan])
    np.testing.assert_allclose(times.finish_s, [3.0, 2.0, np.nan])
    assert np.isnan(list(accounted([], ARRIVAL_S).means(ARRIVAL_S).values())).all()
