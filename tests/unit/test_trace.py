from dataclasses import replace

import numpy as np
import pytest

from specsim.workload.synthetic import Lengths, gamma, lengths, on_off, poisson
from specsim.workload.trace import Trace, TraceSource
from tests.made import refusal


def made(arrival_s, **columns):
    row, source = np.arange(len(arrival_s)), TraceSource("made", "file")
    return Trace(np.array(arrival_s, float), row + 1, row + 11, row, source, **columns)


def test_window_is_half_open_moves_to_zero_and_keeps_row_numbers():
    cut = made([0, 5, 7, 10, 12]).window(5, 10)
    assert (cut.arrival_s.tolist(), cut.row.tolist(), cut.prompt_tokens.tolist()) == ([0, 2], [1, 2], [2, 3])


REFUSED = [
    (lambda: made([0, 5]).window(1, 2), "nothing arrives in it"),
    *(
        (lambda span=span: made([0, 5]).window(*span), "0 <= start_s < stop_s")
        for span in ((3, 3), (4, 2), (-1, 2), (np.nan, 2))
    ),
    *((lambda rps=rps: made([0, 1]).at_rate(rps), "expected a rate above 0") for rps in (0, -1, np.nan, np.inf)),
    *((lambda at=at: made(at).at_rate(1), "no span") for at in ([0], [0, 0])),
    *((lambda at=at: made(at), "start at 0") for at in ([1, 2], [0, 2, 1], [0, np.nan])),
    (lambda: made([]), "holds no request"),
    (lambda: made([0, 1], ttft_slo_s=np.zeros(3)), "differ in length"),
    (lambda: replace(made([0]), prompt_tokens=np.zeros(1, int)), "at least 1 token"),
]


@pytest.mark.parametrize(("call", "said"), REFUSED)
def test_a_trace_starts_at_zero_and_rises_with_even_columns_and_a_window_or_a_rate_must_fit(call, said):
    assert said in refusal(call)


@pytest.mark.parametrize("rps", [0.01, 1 / 3, 2.5664, 1e4])
def test_at_rate_gives_the_true_mean_rate_and_keeps_the_shape(rps):
    trace = made([0, 0.25, 4, 4, 10])
    scaled = trace.at_rate(rps)
    assert scaled.rate_per_s == pytest.approx(rps, rel=1e-15)
    assert scaled.arrival_s / scaled.arrival_s[-1] == pytest.approx(trace.arrival_s / 10, rel=1e-12)
    assert scaled.prompt_tokens is trace.prompt_tokens


def test_no_arrival_lies_beyond_what_a_clock_holds_to_a_microsecond():
    """At 1e17 s neighbouring float64 lie 16 s apart: a pass took no time there, and every objective was met."""
    limit = "expected at most 8.59e+09 s, up to which a clock of float64 holds a microsecond"
    assert refusal(made, [0, 1e17]) == f"trace 'made': arrivals span 1e+17 s; {limit}"
    assert refusal(made([0, 1, 3]).at_rate, 1e-12) == f"rps=1e-12: arrivals span 2e+12 s; {limit}"
    assert made([0, 2.0**33]).arrival_s[-1] == made([0, 1]).at_rate(2.0**-33).arrival_s[-1] == 2.0**33


def rng(seed=7):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


@pytest.mark.parametrize(
    "process",
    [
        poisson,
        lambda rps, n, rng: gamma(rps, n, rng, cv=3.0),
        lambda rps, n, rng: on_off(rps, n, rng, burst_requests=40.0, on_share=0.2, off_rate_ratio=0.1),
    ],
)
def test_a_longer_trace_begins_with_the_shorter_one_and_a_rate_rescales_time_and_is_met_in_the_mean(process):
    long, fast = process(2.0, 3000, rng()), process(8.0, 3000, rng())
    assert long[0] == 0
    assert (np.diff(long) >= 0).all()
    assert fast * 4 == pytest.approx(long, rel=1e-12)
    for n in (1, 2, 999):
        assert np.array_equal(process(2.0, n, rng()), long[:n])
    rates = [49_999 / process(4.0, 50_000, rng(seed))[-1] for seed in range(4)]
    assert np.mean(rates) == pytest.approx(4.0, rel=0.05)


@pytest.mark.parametrize("cv", [0.5, 1.0, 3.0])
def test_gamma_gaps_have_the_asked_variation(cv):
    gaps = np.diff(gamma(1.0, 200_000, rng(), cv=cv))
    assert gaps.std() / gaps.mean() == pytest.approx(cv, rel=0.03)


def test_bursts_hold_their_share_of_requests():
    gaps = np.diff(on_off(1.0, 200_000, rng(), burst_requests=40.0, on_share=0.02, off_rate_ratio=0.0))
    # On: 50/s for 0.8 s in the mean; off: 39.2 s. 1 burst in 41 is empty, 2.5% of the pauses last under 1 s.
    breaks = gaps > 1.0
    assert breaks.sum() == pytest.approx(200_000 / 40 * 40 / 41 * np.exp(-1 / 39.2), rel=0.03)
    assert gaps[~breaks].mean() == pytest.approx(1 / 50, rel=0.08)


@pytest.mark.parametrize(
    "spec",
    [
        Lengths("fixed", mean=9),
        Lengths("uniform", low=3, high=12),
        Lengths("lognormal", mean=200, cv=1.5, low=5, high=900),
    ],
)
def test_lengths_are_whole_bounded_and_prefix_stable(spec):
    drawn = lengths(spec, 5000, rng())
    assert drawn.dtype == np.int64
    assert np.array_equal(lengths(spec, 100, rng()), drawn[:100])
    assert drawn.min() >= (spec.low or 9)
    assert drawn.max() <= (spec.high or 9)
    if spec.distribution == "uniform":
        assert set(drawn.tolist()) == set(range(3, 13))
