"""Replicas share what is written down of each request: memory grows with requests and replicas, not their product."""

import tracemalloc
from dataclasses import replace

import numpy as np
import pytest

from specsim.core.request import Prefixes
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation

COUNT = 500
SLACK_BYTES = 2
"""Of a request and replica, less than a number has."""


def peak(count, replicas, prefixes=None):
    told = requests((1e-3 * np.arange(count)).tolist(), [5] * count, [2] * count)
    made = simulation(told, [1] * count, factory_of("continuous"), truth=hardware(1e-9, 1e-8, 1e-6), keep_passes=False)
    made = replace(made, prefixes=prefixes)
    tracemalloc.start()
    try:
        run(replace(made, replicas=replicas))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("shared", [False, True])
def test_memory_grows_with_the_sum_of_requests_and_replicas(shared):
    """A further replica takes as many bytes of a run of ten times the requests."""

    def of_a_replica(count):
        each = np.arange(count)
        prefixes = Prefixes(each, each, np.ones_like(each), 16) if shared else None
        return (peak(count, 18, prefixes) - peak(count, 2, prefixes)) / 16

    peak(10, 18)  # What the first run of a process keeps is no replica's.
    assert of_a_replica(COUNT) - of_a_replica(COUNT // 10) < SLACK_BYTES * COUNT
