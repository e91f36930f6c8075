"""Replicas share what is written down of each request: memory grows with requests and replicas, not their product."""

import tracemalloc
from dataclasses import replace

import numpy as np

from specsim.core.request import Prefixes
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation


def peak(count, replicas):
    told, each = requests((1e-3 * np.arange(count)).tolist(), [5] * count, [2] * count), np.arange(count)
    made = simulation(told, [1] * count, factory_of("continuous"), truth=hardware(1e-9, 1e-8, 1e-6), keep_passes=False)
    tracemalloc.start()
    try:
        run(replace(made, replicas=replicas, prefixes=Prefixes(each, each, np.ones_like(each), 16)))
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_memory_grows_with_the_sum_of_requests_and_replicas():
    """A further replica takes as many bytes of a run of ten times the requests; a process keeps more of its first."""
    _, small, large = ((peak(count, 18) - peak(count, 2)) / 16 for count in (9, 50, 500))
    assert large - small < 2 * 500
