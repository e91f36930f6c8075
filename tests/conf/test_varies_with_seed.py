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
POINTS = {
    "recorded": {"trace": "azure_code", "requests": "60"},
    "recorded, one class": {"trace": "azure_code", "requests": "60", "slo": "specserve"},
    "recorded, its own classes": {"trace": "adaserve_fig8", "requests": "60"},
    "recorded, its own classes, a mix": {"trace": "adaserve_fig8", "requests": "60", "slo": "adaserve"},
    "resampled": {"trace": "azure_code", "requests": "60", "trace.resample": "20"},
    "resampled, one class": {"trace": "azure_code", "requests": "60", "trace.resample": "20", "slo": "specserve"},
    "resampled, its own classes": {"trace": "adaserve_fig8", "requests": "60", "trace.resample": "20"},
    "synthetic": POISSON,
    "synthetic, one class": {**POISSON, "slo": "specserve"},
    "synthetic, lengths fixed": {**POISSON, **FIXED},
}


def varies(point):
    """Return what a run of `point` says that its seed changes."""
    return prepare(from_point(point)).varies


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


def test_a_mix_may_deal_the_classes_anew(tmp_path):
    shares = "{coding: {share: 0.5, tpot_s: 0.03}, chat: {share: 0.5, tpot_s: 0.05}}"
    (tmp_path / "mix.yaml").write_text(f"max_tokens: 64\nredraw_classes: true\nclasses: {shares}\n")
    point = {"trace": "adaserve_fig8", "requests": "60", "slo": str(tmp_path / "mix.yaml")}
    assert varies(point) == ("classes", "acceptance")
    assert drawn(point, 0)["classes"] != drawn(point, 1)["classes"]


@pytest.mark.parametrize("column", ["", ",slo_class"])
def test_a_file_is_asked_whether_it_names_classes(column, tmp_path):
    classes = ("coding", "chat", "summarization") * 20
    lines = [f"{i},5,5" + (f",{name}" if column else "") for i, name in enumerate(classes)]
    (tmp_path / "mine.csv").write_text("\n".join([f"arrival_s,prompt_tokens,output_tokens{column}", *lines]))
    point = {"trace": str(tmp_path / "mine.csv")}
    changed = ("acceptance",) if column else ("classes", "acceptance")
    assert varies(point) == changed
    assert (drawn(point, 0)["classes"] != drawn(point, 1)["classes"]) == ("classes" in changed)


@pytest.mark.parametrize("name", POINTS)
def test_what_is_said_to_vary_is_what_varies(name):
    first, second = (drawn(POINTS[name], seed) for seed in (0, 1))
    changed = tuple(each for each in first if first[each] != second[each])
    assert varies(POINTS[name]) == changed
