import numpy as np
import pytest

from specsim.workload.synthetic import Lengths, gamma, lengths, on_off, poisson

BURSTS = {"burst_requests": 40.0, "on_share": 0.2, "off_rate_ratio": 0.1}
PROCESSES = [
    poisson,
    lambda rps, n, rng: gamma(rps, n, rng, cv=3.0),
    lambda rps, n, rng: on_off(rps, n, rng, **BURSTS),
]
SPECS = [
    Lengths("fixed", mean=9),
    Lengths("uniform", low=3, high=12),
    Lengths("lognormal", mean=200, cv=1.5, low=5, high=900),
]


def rng(seed=7):
    return np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))


@pytest.mark.parametrize("process", PROCESSES)
def test_a_longer_trace_begins_with_the_shorter_one(process):
    long = process(2.0, 3000, rng())
    assert long[0] == 0
    assert (np.diff(long) >= 0).all()
    for n in (1, 2, 999):
        assert np.array_equal(process(2.0, n, rng()), long[:n])


@pytest.mark.parametrize("process", PROCESSES)
def test_a_rate_only_rescales_time_and_is_met_in_the_mean(process):
    slow, fast = process(1.0, 500, rng()), process(8.0, 500, rng())
    assert fast * 8 == pytest.approx(slow, rel=1e-12)
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


@pytest.mark.parametrize("spec", SPECS)
def test_lengths_are_whole_bounded_and_prefix_stable(spec):
    drawn = lengths(spec, 5000, rng())
    assert drawn.dtype == np.int64
    assert np.array_equal(lengths(spec, 100, rng()), drawn[:100])
    assert drawn.min() >= (spec.low or 9)
    assert drawn.max() <= (spec.high or 9)
    if spec.distribution == "uniform":
        assert set(drawn.tolist()) == set(range(3, 13))
