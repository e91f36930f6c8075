import numpy as np
import pytest

from specsim.errors import SpecsimError
from specsim.workload.trace import Trace, TraceSource


def made(arrival_s, **columns):
    n = len(arrival_s)
    return Trace(
        np.array(arrival_s, float),
        np.arange(1, n + 1),
        np.arange(11, n + 11),
        np.arange(n),
        TraceSource("made", "file"),
        **columns,
    )


def test_window_is_half_open_moves_to_zero_and_keeps_row_numbers():
    cut = made([0, 5, 7, 10, 12]).window(5, 10)
    assert cut.arrival_s.tolist() == [0, 2]
    assert cut.row.tolist() == [1, 2]
    assert cut.prompt_tokens.tolist() == [2, 3]


def test_window_without_arrivals_and_windows_that_are_none_are_refused():
    with pytest.raises(SpecsimError, match="nothing arrives in it"):
        made([0, 5]).window(1, 2)
    for start, stop in ((3, 3), (4, 2), (-1, 2), (float("nan"), 2)):
        with pytest.raises(SpecsimError, match="0 <= start_s < stop_s"):
            made([0, 5]).window(start, stop)


@pytest.mark.parametrize("rps", [0.01, 1 / 3, 2.5664, 1e4])
def test_at_rate_gives_the_true_mean_rate_and_keeps_the_shape(rps):
    trace = made([0, 0.25, 4, 4, 10])
    scaled = trace.at_rate(rps)
    assert scaled.rate_per_s == pytest.approx(rps, rel=1e-15)
    assert scaled.arrival_s / scaled.arrival_s[-1] == pytest.approx(trace.arrival_s / 10, rel=1e-12)
    assert scaled.prompt_tokens is trace.prompt_tokens


def test_no_arrival_lies_beyond_what_a_clock_holds_to_a_microsecond():
    """At 1e17 s neighbouring float64 lie 16 s apart: a pass took no time there, and every objective was met."""
    limit = r"expected at most 8\.59e\+09 s, up to which a clock of float64 holds a microsecond$"
    with pytest.raises(SpecsimError, match=rf"^trace 'made': arrivals span 1e\+17 s; {limit}"):
        made([0, 1e17])
    with pytest.raises(SpecsimError, match=rf"^rps=1e-12: arrivals span 2e\+12 s; {limit}"):
        made([0, 1, 3]).at_rate(1e-12)
    assert made([0, 2.0**33]).arrival_s[-1] == made([0, 1]).at_rate(2.0**-33).arrival_s[-1] == 2.0**33


def test_a_trace_must_start_at_zero_rise_and_have_even_columns():
    for arrivals in ([1, 2], [0, 2, 1], [0, float("nan")]):
        with pytest.raises(SpecsimError, match="start at 0"):
            made(arrivals)
    with pytest.raises(SpecsimError, match="holds no request"):
        made([])
    with pytest.raises(SpecsimError, match="differ in length"):
        made([0, 1], ttft_slo_s=np.zeros(3))
    with pytest.raises(SpecsimError, match="at least 1 token"):
        Trace(np.zeros(1), np.zeros(1, int), np.ones(1, int), np.zeros(1, int), TraceSource("made", "file"))


def test_at_rate_refuses_bad_rates_and_traces_without_a_span():
    for rps in (0, -1, float("nan"), float("inf")):
        with pytest.raises(SpecsimError, match="expected a rate above 0"):
            made([0, 1]).at_rate(rps)
    for arrivals in ([0], [0, 0]):
        with pytest.raises(SpecsimError, match="no span"):
            made(arrivals).at_rate(1)
