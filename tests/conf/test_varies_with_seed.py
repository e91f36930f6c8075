"""What is said to change with the seed is what changes: held against the simulations that two seeds prepare."""

import numpy as np
import pytest

from specsim.config import compose
from specsim.experiment import prepare
from specsim.workload.seeding import varies_with_seed

POISSON = {"trace": "poisson", "requests": "60"}
FIXED = {
    "trace.prompt_tokens": "{distribution: fixed, mean: 9, cv: null, low: null, high: null}",
    "trace.output_tokens": "{distribution: uniform, mean: null, cv: null, low: 7, high: 7}",
}
POINTS = {
    "recorded": {"trace": "azure_code", "requests": "60"},
    "recorded, one class": {"trace": "azure_code", "requests": "60", "slo": "specserve"},
    "recorded, its own classes": {"trace": "adaserve_fig8", "requests": "60"},
    "synthetic": POISSON,
    "synthetic, one class": {**POISSON, "slo": "specserve"},
    "synthetic, lengths fixed": {**POISSON, **FIXED},
}


def drawn(point, seed):
    """Return what the seed may change of a prepared simulation, as bytes by name."""
    simulation = prepare(compose({**point, "seed": str(seed)})).simulation
    told, world = simulation.requests, simulation.world
    return {
        "arrivals": told.arrival_s.tobytes(),
        "lengths": np.stack((told.prompt_tokens, world.output_tokens)).tobytes(),
        "classes": told.slo_class.tobytes(),
        "acceptance": world.tape.keys.tobytes(),
    }


@pytest.mark.parametrize("name", POINTS)
def test_what_is_said_to_vary_is_what_varies(name):
    first, second = (drawn(POINTS[name], seed) for seed in (0, 1))
    changed = tuple(each for each in first if first[each] != second[each])
    assert varies_with_seed(compose(POINTS[name])) == changed
