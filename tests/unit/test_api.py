"""The same from Python: what the docstrings promise, typed settings, nothing written unless asked, one error type."""

import doctest
import json

import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal

from specsim import SpecsimError, load_run, load_sweep, simulate, sweep

SMALL = {"trace": "poisson", "requests": 8, "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}


@pytest.fixture(autouse=True)
def _elsewhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize("function", [simulate, sweep])
def test_the_examples_in_the_docstrings_run(function, tmp_path):
    finder, runner = doctest.DocTestFinder(recurse=False), doctest.DocTestRunner()
    (example,) = finder.find(function, function.__name__, globs={function.__name__: function})
    assert len(example.examples) >= 2
    told: list[str] = []
    assert runner.run(example, out=told.append).failed == 0, "".join(told)
    assert list(tmp_path.iterdir()) == []


def test_what_python_shows_of_a_damaged_run_is_its_damage(tmp_path):
    simulate("fcfs", out="mine", **SMALL)
    stored = load_run("mine")
    (tmp_path / "mine" / "config.yaml").unlink()
    assert repr(stored).startswith("<Run in mine: mine/config.yaml: no such file")


def test_without_out_nothing_is_written(tmp_path):
    run = simulate("continuous", passes=True, **SMALL)
    sweep({"rps": [2, 4]}, scheduler="continuous", **SMALL)
    assert run.folder is None
    assert repr(run).startswith("<Run: scheduler=continuous, trace=poisson, ")
    assert list(tmp_path.iterdir()) == []


def test_a_run_in_memory_is_the_run_on_disk(tmp_path):
    run = simulate("vllm_spec", out=tmp_path / "run", passes=True, **SMALL)
    stored = load_run(tmp_path / "run")
    assert run.folder == stored.folder == tmp_path / "run"
    assert json.dumps(run.metrics) == json.dumps(stored.metrics)
    assert run.config == stored.config
    assert run.provenance == stored.provenance
    for mine, theirs in ((run.requests, stored.requests), (run.passes, stored.passes)):
        assert_frame_equal(mine, theirs, check_exact=True, check_dtype=False)


def test_a_home_folder_is_expanded(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    run = simulate("continuous", out="~/run", **SMALL)
    assert run.folder == tmp_path / "home" / "run"
    assert load_run("~/run").metrics == run.metrics
    assert list(tmp_path.iterdir()) == [tmp_path / "home"]


@pytest.mark.parametrize(("value", "stored"), [(2, 2), (np.int64(3), 3), (None, None), (1e-7 + 2, 2.0000001)])
def test_values_keep_their_type(value, stored):
    assert simulate("continuous", rps=value, **SMALL).config["rps"] == stored


@pytest.mark.parametrize(
    "values", [[2, 4], range(2, 5, 2), np.array([2, 4]), pd.Series([2, 4])], ids=lambda values: type(values).__name__
)
def test_axes_may_be_what_holds_several_values(values):
    runs = sweep({"rps": values}, scheduler="continuous", **SMALL)
    assert [run.config["rps"] for run in runs] == [2, 4]


@pytest.mark.usefixtures("unrendered")
def test_a_run_in_memory_must_be_told_where_to_plot(tmp_path):
    run = simulate("continuous", **SMALL)
    with pytest.raises(SpecsimError, match="folder"):
        run.plot()
    assert run.plot("here")


class Textless:
    def __str__(self):
        raise RuntimeError("no text")


ITSELF: list = []
ITSELF.append(ITSELF)


@pytest.mark.parametrize("value", [10**5000, Textless(), ITSELF], ids=["digits", "textless", "itself"])
def test_a_value_without_a_text_of_its_own_is_one_line(value):
    for call in (lambda: simulate(rps=value), lambda: sweep({"rps": [value]})):
        with pytest.raises(SpecsimError, match=r"rps: a \w+ that cannot be written as text") as caught:
            call()
        assert len(str(caught.value).splitlines()) == 1


MISTAKES = [
    (lambda: simulate("continuos"), "'continuous'"),
    (lambda: simulate("fcfs", rps="2,3", **SMALL), "rps"),
    (lambda: simulate("fcfs", out="file", **SMALL), "file"),
    (lambda: sweep({"rps": []}, scheduler="fcfs", **SMALL), "rps"),
    (lambda: sweep({"rps": [2, 2.0]}, scheduler="fcfs", **SMALL), "rps=2: stands twice"),
    (lambda: sweep(None, scheduler="fcfs", **SMALL), "expected values by key"),
    (lambda: load_sweep("nope"), "nope"),
]


@pytest.mark.parametrize(("call", "named"), MISTAKES, ids=range(len(MISTAKES)))
def test_a_mistake_is_one_line_and_starts_nothing(call, named, tmp_path, started):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(SpecsimError) as raised:
        call()
    assert named in str(raised.value)
    assert len(str(raised.value).splitlines()) <= 2
    assert not started
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
