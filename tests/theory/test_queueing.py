"""What queueing theory says exactly: M/D/1 waiting, Lindley's recursion, Little's law."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import simpy

import specsim.simulation
from specsim.server.ledger import Ledger
from specsim.simulation import run
from tests.laws.subjects import KINDS, factory_of
from tests.made import Floats, Hardware, Linear, memory, requests, simulation

SERVICE_S = 0.05
CONSTANT = Hardware(Linear(0.0, 0.0, SERVICE_S), Linear(0.0, 0.0, SERVICE_S))


def waits_s(load: float, seed: int, customers: int) -> tuple[Floats, Floats]:
    """Return arrivals and waiting times of Poisson customers at one server with constant service."""
    gaps_s = np.random.default_rng(seed).exponential(SERVICE_S / load, customers)
    arrival_s = np.cumsum(gaps_s) - gaps_s[0]
    told = requests(arrival_s.tolist(), [3] * customers, [1] * customers)
    single = simulation(told, [1] * customers, factory_of("fcfs", max_num_seqs=1), truth=CONSTANT, keep_passes=False)
    return arrival_s, run(single).progress.finish_s - arrival_s - SERVICE_S


def test_waiting_time_of_m_d_1():
    """Pollaczek-Khinchine: E[W] = load * service / (2 (1 - load)), within the 99.9% t-interval of 20 independent runs.

    The first 50 customers of each run, who find the server emptier than it will be, are left out.
    """
    load, t_999 = 0.3, 3.883  # two-sided 99.9% quantile of Student's t with 19 degrees of freedom
    means_s = np.array([waits_s(load, seed, 350)[1][50:].mean() for seed in range(20)])
    expected_s = load * SERVICE_S / (2 * (1 - load))
    error_s = t_999 * means_s.std(ddof=1) / np.sqrt(len(means_s))
    assert error_s < 0.25 * expected_s, "too wide an interval to tell anything"
    assert abs(means_s.mean() - expected_s) < error_s


def test_each_wait_follows_from_the_one_before():
    """Lindley: W' = max(0, W + service - gap), for every customer."""
    arrival_s, waited_s = waits_s(0.8, 0, 2_000)
    expected_s = np.zeros(len(arrival_s))
    for each in range(1, len(arrival_s)):
        gap_s = arrival_s[each] - arrival_s[each - 1]
        expected_s[each] = max(0.0, expected_s[each - 1] + SERVICE_S - gap_s)
    assert np.abs(waited_s - expected_s).max() < 1e-9


class Surveyor(simpy.Environment):
    """An event clock that adds up live requests times seconds, from the ledgers."""

    def __init__(self, ledgers: list[Ledger]) -> None:
        super().__init__()
        self.area = 0.0
        self._ledgers = ledgers

    def step(self) -> None:
        before_s, live = self.now, sum(ledger.queues.live for ledger in self._ledgers)
        super().step()
        self.area += live * (self.now - before_s)


@pytest.mark.parametrize("name", KINDS)
def test_littles_law(name, monkeypatch):
    """L = lambda W without statistics: live requests integrated over time are the sum of all sojourns.

    Step by step: who looks in the middle of passes that run at once still sees those that have ended.
    """
    rng = np.random.default_rng(5)
    count = 40
    arrival_s, prompts, kinds = np.sort(rng.uniform(0, 2, count)), rng.integers(1, 40, count), rng.integers(0, 3, count)
    told = requests(arrival_s, prompts, [25] * count, kinds)
    simulated = simulation(told, rng.integers(1, 26, count).tolist(), factory_of(name), pool=memory(told, 3.0))
    ledgers: list[Ledger] = []
    clock = Surveyor(ledgers)

    def kept(*arguments: Any) -> Ledger:
        ledgers.append(Ledger(*arguments))
        return ledgers[-1]

    monkeypatch.setattr(specsim.simulation, "Ledger", kept)
    monkeypatch.setattr(specsim.simulation.simpy, "Environment", lambda: clock)
    finish_s = run(replace(simulated, replicas=3, multi_step=False)).progress.finish_s
    sojourns_s = (finish_s - told.arrival_s).sum()
    assert clock.area == pytest.approx(sojourns_s, rel=1e-9)
    assert clock.area > 5
