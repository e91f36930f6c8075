"""The clock of a run run again, by hand."""

import numpy as np
import pytest

from profiler.fidelity.accounting import Step, accounted

ARRIVAL_S = np.array([0.0, 1.0, 10.0])


def test_tokens_come_at_the_ends_of_passes_and_the_clock_waits_for_who_runs():
    steps = [
        Step((0,), (1,), 2.0),
        Step((0, 1), (), 0.5),
        Step((0, 1), (2, 1), 1.0),
        Step((1, 2), (3, 1), 4.0),
    ]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [2.0, 3.5, 14.0])
    np.testing.assert_allclose(times.finish_s, [3.5, 14.0, 14.0])
    np.testing.assert_allclose(times.tokens, [3, 4, 1])
    assert times.means(ARRIVAL_S) == pytest.approx(
        {"ttft_s": (2 + 2.5 + 4) / 3, "tpot_s": (1.5 / 2 + 10.5 / 3) / 2, "e2el_s": (3.5 + 13 + 4) / 3}
    )


def test_a_row_that_emits_nothing_has_no_first_token_yet():
    steps = [Step((0, 1), (0, 2), 1.0), Step((0, 1), (1, 0), 1.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [3.0, 2.0, np.nan])
    np.testing.assert_allclose(times.finish_s, [3.0, 2.0, np.nan])


def test_without_tokens_there_are_no_means():
    assert np.isnan(list(accounted([], ARRIVAL_S).means(ARRIVAL_S).values())).all()
