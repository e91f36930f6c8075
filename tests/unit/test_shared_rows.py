"""Replicas share what is written down of each request: memory grows with requests and replicas, not their product."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from specsim.replica.ledger import Ledger
from specsim.replica.state import Rows
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, memory, requests, simulation

COUNT = 5000
OWN_BYTES = 16
"""The prompt of each request, by which a replica knows that it was sent there, and whether it waits, with slack."""
OF_A_REPLICA = 400_000
"""Bytes of a replica whatever the requests."""


def peak(replicas: int) -> int:
    told = requests((1e-3 * np.arange(COUNT)).tolist(), [5] * COUNT, [2] * COUNT)
    made = simulation(told, [1] * COUNT, factory_of("continuous"), truth=hardware(1e-9, 1e-8, 1e-6), keep_passes=False)
    run(made)
    tracemalloc.start()
    try:
        run(replace(made, replicas=replicas))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_further_replica_takes_few_bytes_a_request():
    more = (peak(18) - peak(2)) / 16
    assert more < OWN_BYTES * COUNT + OF_A_REPLICA


def test_a_request_is_at_one_of_the_replicas_that_share_its_rows():
    told = requests([0.0, 0.0], [3, 5], [4, 4])
    rows = Rows.of(2)
    first, second = (Ledger(2, memory(told), rows=rows, place=place) for place in range(2))
    first.arrive(0, told, 0.0)
    second.arrive(1, told, 0.0)
    both = np.arange(2)
    assert first.roster.here(both).tolist() == [True, False]
    assert second.roster.here(both).tolist() == [False, True]
    assert (first.roster.ids.tolist(), second.roster.ids.tolist()) == ([0], [1])
    assert first.facts.prompt_tokens.tolist() == [3, 0]
    assert second.facts.prompt_tokens.tolist() == [0, 5]
    assert first.roster.waits.tolist() == [True, False]


@pytest.mark.parametrize("mine", [0, 1])
def test_what_another_replica_holds_cannot_be_evicted(mine):
    told = requests([0.0, 0.0], [3, 5], [4, 4])
    rows = Rows.of(2)
    ledgers = [Ledger(2, memory(told), rows=rows, place=place) for place in range(2)]
    for place, ledger in enumerate(ledgers):
        ledger.arrive(place, told, 0.0)
        ledger.roster.admit(np.array([place]))
    other = np.array([1 - mine])
    assert ledgers[mine].roster._why_not_evicted(other, np.array([mine])) == f"request {1 - mine} holds none"
