"""The same from Python: what the docstrings promise, typed settings, nothing written unless asked, one error type."""

import doctest
import json

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from specsim import SpecsimError, load_run, load_sweep, simulate, sweep
from tests.made import refusal

SMALL = {"trace": "poisson", "requests": 8, "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}


pytestmark = pytest.mark.usefixtures("here")


@pytest.mark.parametrize("function", [simulate, sweep])
def test_the_examples_in_the_docstrings_run(function, tmp_path):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(function, function.__name__, globs={function.__name__: function})
    assert len(example.examples) >= 2
    told = []
    assert runner.run(example, out=told.append).failed == 0, "".join(told)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("unrendered")
def test_without_out_nothing_is_written_and_a_plot_must_be_told_where(tmp_path):
    run = simulate("continuous", passes=True, **SMALL)
    one, _ = sweep({"rps": [2, 4]}, scheduler="continuous", **SMALL)
    assert run.folder is None
    assert repr(run).startswith("<Run: scheduler=continuous, trace=poisson, ")
    with pytest.raises(SpecsimError, match="folder"):
        run.plot()
    assert list(tmp_path.iterdir()) == []
    assert one.plot("here")


def test_a_run_in_memory_is_the_run_on_disk_in_a_home_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run = simulate("vllm_spec", out="~/run", passes=True, **SMALL)
    stored, damaged = load_run("~/run"), load_run("~/run")
    assert run.folder == stored.folder == tmp_path / "home" / "run"
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]
    assert json.dumps(run.metrics) == json.dumps(stored.metrics)
    assert run.config == stored.config
    assert run.provenance == stored.provenance
    for mine, theirs in ((run.requests, stored.requests), (run.passes, stored.passes)):
        assert_frame_equal(mine, theirs, check_exact=True, check_dtype=False)
    (run.folder / "config.yaml").unlink()
    assert repr(damaged).startswith(f"<Run in {run.folder}: {run.folder}/config.yaml: no such file")


@pytest.mark.parametrize(("value", "stored"), [(2, 2), (np.int64(3), 3), (None, None), (1e-7 + 2, 2.0000001)])
def test_values_keep_their_type(value, stored):
    assert simulate("continuous", rps=value, **SMALL).config["rps"] == stored


@pytest.mark.parametrize(
    "values", [[2, 4], range(2, 5, 2), np.array([2, 4]), pd.Series([2, 4])], ids=lambda values: type(values).__name__
)
def test_axes_may_be_what_holds_several_values(values):
    runs = sweep({"rps": values}, scheduler="continuous", **SMALL)
    assert [run.config["rps"] for run in runs] == [2, 4]


class Textless:
    def __str__(self):
        raise RuntimeError("no text")


ITSELF = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize("value", [10**5000, Textless(), ITSELF], ids=["digits", "textless", "itself"])
def test_a_value_without_a_text_of_its_own_is_one_line(value):
    for call in (lambda: simulate(rps=value), lambda: sweep({"rps": [value]})):
        assert f"rps: a {type(value).__name__} that cannot be written as text" in refusal(call)


@pytest.mark.parametrize(
    ("call", "named"),
    [
        *((lambda: simulate("continuos"), "'continuous'"), (lambda: simulate("fcfs", rps="2,3", **SMALL), "rps")),
        (lambda: simulate("fcfs", out="file", **SMALL), "file"),
        (lambda: sweep({"rps": []}, scheduler="fcfs", **SMALL), "rps"),
        (lambda: sweep({"rps": [2, 2.0]}, scheduler="fcfs", **SMALL), "rps=2: is given twice"),
        (lambda: load_sweep("nope"), "no folder 'nope'"),
    ],
)
def test_a_mistake_is_one_line_and_starts_nothing(call, named, tmp_path, started):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SpecsimError) as raised:
        call()
    assert named in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2
    assert not started
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
