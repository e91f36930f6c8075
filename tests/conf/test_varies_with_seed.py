"""What is said to change with the seed is what changes: held against the simulations that two seeds prepare."""

import numpy as np
import pytest

from specsim.config.configured import from_point
from specsim.runs.prepare import prepare

POISSON = {"trace": "poisson", "requests": "60"}
FIXED = {
    "trace.prompt_tokens": "{distribution: fixed, mean: 9, cv: null, low: null, high: null}",
    "trace.output_tokens": "{distribution: uniform, mean: null, cv: null, low: 7, high: 7}",
}
CODE = {"trace": "azure_code", "requests": "60"}
CLASSED = {"trace": "adaserve_fig8", "requests": "60"}
RESAMPLED, ONE = {"trace.resample": "20"}, {"slo": "specserve"}
DRAWN, ALL = ("classes", "acceptance"), ("arrivals", "lengths", "classes", "acceptance")
POINTS = {
    "recorded": (CODE, DRAWN),
    "recorded, one class": (CODE | ONE, ("acceptance",)),
    "recorded, its own classes": (CLASSED, ("acceptance",)),
    "recorded, its own classes, a mix": (CLASSED | {"slo": "adaserve"}, ("acceptance",)),
    "recorded, its own classes, a mix that deals them anew": (CLASSED | {"slo": "./mix.yaml"}, DRAWN),
    "a file": ({"trace": "./plain.csv"}, DRAWN),
    "a file that names classes": ({"trace": "./classed.csv"}, ("acceptance",)),
    "resampled": (CODE | RESAMPLED, ALL),
    "resampled, one class": (CODE | RESAMPLED | ONE, ("arrivals", "lengths", "acceptance")),
    "resampled, its own classes": (CLASSED | RESAMPLED, ALL),
    "synthetic": (POISSON, ALL),
    "synthetic, one class": (POISSON | ONE, ("arrivals", "lengths", "acceptance")),
    "synthetic, lengths fixed": (POISSON | FIXED, ("arrivals", "classes", "acceptance")),
}


@pytest.fixture(autouse=True)
def _files(here):
    shares = "{coding: {share: 0.5, tpot_s: 0.03}, chat: {share: 0.5, tpot_s: 0.05}}"
    (here / "mix.yaml").write_text(f"max_tokens: 64\nredraw_classes: true\nclasses: {shares}\n")
    for name, column in (("plain", ""), ("classed", ",slo_class")):
        classes = ("coding", "chat", "summarization") * 20
        lines = [f"{i},5,5" + (f",{name}" if column else "") for i, name in enumerate(classes)]
        text = "\n".join([f"arrival_s,prompt_tokens,output_tokens{column}", *lines])
        (here / f"{name}.csv").write_text(text)


def drawn(point, seed):
    """Return what the seed may change of a prepared simulation, as bytes by name."""
    simulation = prepare(from_point({**point, "seed": str(seed)})).simulation
    told, ground_truth = simulation.requests, simulation.ground_truth
    return {
        "arrivals": told.arrival_s.tobytes(),
        "lengths": np.stack((told.prompt_tokens, ground_truth.output_tokens)).tobytes(),
        "classes": told.slo_class.tobytes(),
        "acceptance": ground_truth.acceptance_trace.keys.tobytes(),
    }


@pytest.mark.parametrize("name", POINTS)
def test_what_is_said_to_vary_is_what_varies(name):
    point, varies = POINTS[name]
    first, second = (drawn(point, seed) for seed in (0, 1))
    assert varies == tuple(each for each in first if first[each] != second[each])
    assert varies == prepare(from_point(point)).varies
