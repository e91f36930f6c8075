"""docs/python.md, run as it stands, and what happens to objects beside names."""

import json
import re
import runpy
import sys
from dataclasses import dataclass, field, make_dataclass
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from specsim import Run, find, load_run, simulate, sweep, tune
from specsim.files.yaml_file import read_yaml, shipped
from specsim.plugin import Forest, Objectives, SloClass, SloMix, TargetPass, decode, load_profile, trace_of
from specsim.schedulers.fcfs import Fcfs
from specsim.store.runs import StoredRun
from specsim.workload.slo import mix_from_mapping
from tests.files import page
from tests.made import refusal

PAGE = page("python")
BLOCKS = re.findall(r"^```python\n# (\w+\.py)\n(.*?)^```$", PAGE + page("schedulers"), re.DOTALL | re.MULTILINE)
SMALL = {"requests": 8, "acceptance": "bernoulli", "profile": "llama8b_1b_h100"}
COLUMNS = {"arrival_s": [0.0, 0.5, 0.9], "prompt_tokens": [100, 200, 50], "output_tokens": [20, 30, 10]}


pytestmark = pytest.mark.usefixtures("here")


@dataclass
class Counting:
    """One at a time; it counts its steps, so that one that was used is told from a fresh one."""

    steps: int = 0
    seen: list = field(default_factory=list)
    state: object = field(init=False, repr=False, compare=False)

    def step(self, view):
        self.steps += 1
        if len(view.running):
            yield decode(view)
            return
        first = np.array(view.waiting[:1], dtype=np.int64)
        yield TargetPass(first, view.pending(first), Forest.roots(1))


@pytest.mark.parametrize(("name", "text"), BLOCKS, ids=[name for name, _ in BLOCKS])
def test_the_page_runs(name, text, capsys):
    short = text.replace("rates=(1, 8)", "seed=0, rates=(1, 2), within=1.0, longest=15")
    Path(name).write_text(short.replace("requests=50", "requests=15"))
    runpy.run_path(name, run_name="__main__")
    said = capsys.readouterr()
    assert said.err == ""
    assert said.out


def test_the_page_lists_what_a_run_has():
    listed = set(re.findall(r"^\| `(\w+)[`(]", PAGE.partition("attribute of a `Run`")[2], re.MULTILINE))
    listed -= {"scheduler", "trace", "profile", "slo"}
    public = {name for name in (*Run.__dataclass_fields__, *dir(Run)) if not name.startswith("_")}
    assert listed == public
    stored = {name for name in dir(StoredRun) if not name.startswith("_")}
    assert stored == public - {"summary"}


def test_objects_give_what_names_give():
    """The shipped files as objects: the same metrics and requests, to the last byte."""
    mix = mix_from_mapping(read_yaml(shipped("conf") / "slo" / "adaserve.yaml"), "slo=adaserve")
    Path("mine.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,100,20\n0.5,200,30\n0.9,50,10\n")
    names = {"profile": "llama8b_1b_h100", "engine": "profiled", "slo": "adaserve"}
    named = simulate("fcfs", "./mine.csv", acceptance="bernoulli", **names)
    parameters = {key: named.config["scheduler"][key] for key in Fcfs.__dataclass_fields__}
    fcfs, profile = Fcfs(**parameters), load_profile("llama8b_1b_h100")
    for scheduler in (fcfs, partial(Fcfs, **parameters), lambda: fcfs):
        given = simulate(scheduler, pd.DataFrame(COLUMNS), acceptance="bernoulli", profile=profile, slo=mix)
        assert json.dumps(given.metrics) == json.dumps(named.metrics)
        pd.testing.assert_frame_equal(given.requests, named.requests)
        assert given.config["scheduler"]["object"] == "specsim.schedulers.fcfs.Fcfs"


def test_a_scheduler_is_copied_for_each_replica_and_run():
    mine = Counting()
    first, second = (simulate(mine, "poisson", replicas=2, **SMALL) for _ in range(2))
    assert mine == Counting()
    assert json.dumps(first.metrics) == json.dumps(second.metrics)
    assert json.dumps(simulate(Counting, "poisson", replicas=2, **SMALL).metrics) == json.dumps(first.metrics)


def test_provenance_says_what_was_given():
    run = simulate(Counting(), pd.DataFrame(COLUMNS), out="run", acceptance="bernoulli")
    stored = load_run("run")
    said = stored.provenance
    assert set(said["objects"]) == {"scheduler", "trace"}
    assert said["objects"]["scheduler"]["object"].endswith("test_python_page.Counting")
    assert said["objects"] == {group: stored.config[group] for group in ("scheduler", "trace")}
    assert Counting.__module__ in said["plugins"]
    assert said["trace"]["sha256"] == said["objects"]["trace"]["sha256"]
    assert any("config.yaml names it and cannot make it again" in note for note in run.notes)
    assert stored.config["choices"]["scheduler"] == "<Counting>"


def test_a_folder_holds_one_content():
    for _ in range(2):
        assert simulate(Counting(), "poisson", out="run", **SMALL).folder == Path("run")
    few, many = (make_dataclass(name, ["slots"])(2) for name in ("Few", "Many"))
    simulate(Counting(seen=[few]), "poisson", out="few", **SMALL)
    for folder, other in (("run", Counting(steps=1)), ("few", Counting(seen=[many]))):
        assert "holds a run with other settings" in refusal(simulate, other, "poisson", out=folder, **SMALL)


def test_a_trace_that_is_written_to_after_a_run_changes_no_table():
    trace = trace_of(COLUMNS, "mine")
    run = simulate("fcfs", trace, acceptance="bernoulli")
    trace.arrival_s[1:] += 1000
    trace.prompt_tokens[:] = 7
    assert run.requests["arrival_s"].tolist() == [0.0, 0.5, 0.9]
    assert run.requests["prompt_tokens"].tolist() == [100, 200, 50]


def mix(share=1.0, bound=64):
    chat = SloClass("chat", share, Objectives(0.05, None, 2.0, bound), "chat", scaled=True)
    return SloMix("my mix", (chat,), Objectives(None, None, None, None), {}, redraw_classes=False)


def frame(**columns):
    return pd.DataFrame({**COLUMNS, **columns})


MISTAKES = [
    (lambda: simulate(type("M", (Fcfs,), {"drafts": property(lambda _: 1 / 0)})(8)), "drafts: ZeroDivisionError"),
    (lambda: simulate(7), "scheduler: 7; expected a name, a path, a scheduler, or what makes one"),
    (lambda: simulate(Fcfs), "missing 1 required positional argument: 'max_num_seqs'; expected a scheduler, or what"),
    (lambda: simulate(lambda: {}["no such thing"]), "KeyError"),
    (lambda: simulate(Counting(), scheduler__steps=3), "scheduler is an object; expected the value in it"),
    (lambda: simulate("fcfs", frame(output_tokens=[20, 0, 10])), "DataFrame: 1 damaged row: index 1: output_tokens 0"),
    (lambda: simulate("fcfs", slo=mix(share=0.5)), "my mix: classes: shares add up to 0.5, expected 1"),
    (lambda: simulate("fcfs", "poisson", requests="8"), "requests: '8' is not a whole number"),
    (lambda: simulate("fcfs", "poisson", rps=object()), "rps: a object that cannot be written as text"),
    (lambda: simulate("fcfs", frame().drop(columns="output_tokens")), "no column output_tokens; if yours has another"),
    (lambda: sweep({"rps": [2]}, seed=range(2)), "; expected {'seed': range(0, 2)} among the axes"),
    (lambda: find({"slo_scale": [1]}, seeds=[0, 1]), "seeds: unknown key; expected {'seed': [0, 1]} among the"),
    *((partial(tune, "vllm", seeds=each), f"seeds={each!r}: expected") for each in (3, [], ["a"], [0.5], [0, 0])),
    (lambda: simulate("fcfs", frame().drop(columns="arrival_s")), "df.rename(columns={'YOURS': 'arrival_s'})"),
    (lambda: sweep({"rps": [2]}, scheduler="vllm_spec", scheduler__num_speculative_tokens=[2, 4]), "4]} among the"),
    (lambda: simulate("fcfs", "poisson", rps=[2, 4]), "; expected sweep({'rps': [2, 4]})"),
    (lambda: simulate("fcfs", jobs=2), "jobs: unknown key; expected sweep(..., jobs=N)"),
    (lambda: sweep({"rps": [2]}, each=True), "each: unknown key; expected sweep(...).table, or its paired("),
    *((partial(tune, "x", seed=each), "expected seeds=[0") for each in (0, [0, 1])),
    *((partial(tune, *each), ": expected names or files") for each in ([[]], [[Counting(), "vllm"]])),
    (lambda: tune("vllm", scheduler__k=[2, 4]), "tune: scheduler__k=[2, 4]: expected values={'k': [2, 4]}"),
    *((partial(*each, target="9%"), ": target='9%': expected a share in (0, 1]") for each in ((tune, "x"), (find, {}))),
    (lambda: find(["vllm"]), "['vllm']: expected values by key, as {'scheduler': ['vllm', 'fcfs']}"),
    (lambda: sweep({"trace": [frame(), "poisson"]}, trace__window=[0, 1]), "trace.window: some traces are objects"),
]


@pytest.mark.parametrize(("call", "said"), MISTAKES, ids=[said for _, said in MISTAKES])
def test_a_mistake_is_one_line(call, said):
    assert said in refusal(call)


def test_objects_of_a_sweep_go_to_other_processes_and_stand_when_it_is_made_again(tmp_path):
    def made(jobs):
        axes = {"scheduler": [mine(), "fcfs"], "seed": [0, 1]}
        return sweep(axes, trace=frame(), out=tmp_path, jobs=jobs, progress=False, acceptance="bernoulli")

    mine = partial(Counting, seen=[1])
    first = made(2)
    before = {each: each.stat().st_mtime_ns for each in tmp_path.rglob("metrics.json")}
    assert len(first) == 4
    assert not first.failures
    assert [run.metrics for run in made(1)] == [run.metrics for run in first]
    assert {each: each.stat().st_mtime_ns for each in tmp_path.rglob("metrics.json")} == before
    mine = partial(Counting, seen=[{1}])
    assert "was this object cannot be told; expected a new folder, or an object whose attributes" in refusal(made, 1)
    one = {"trace": frame(), "acceptance": "bernoulli", "out": tmp_path / "new", "rates": (1, 2), "within": 1}
    assert len(find({"scheduler": [mine()], "seed": [0]}, progress=False, **one).sweep) > 1


def test_a_run_of_code_that_lies_in_no_file_is_made_again(tmp_path, monkeypatch):
    monkeypatch.delattr(sys.modules[__name__], "__file__")
    for notes in ([], [f"1 run made again: the code of {__name__} lies in no file, and may have changed"]):
        for keep in ("runs", "summary"):
            how = {"keep": keep, "out": tmp_path / keep, "acceptance": "bernoulli", "progress": False}
            assert [*sweep({"scheduler": [Counting]}, trace=frame(), **how).whole_notes] == notes
