"""What ends a process without a word is a line of the part that raised it, at every door of a user's own code."""

import sys
from pathlib import Path

import pytest

from specsim.cli import main

PARTS = """\
import sys

import numpy as np

from specsim.plugin import AcceptanceTrace, ModelLatency, stream_keys, trace_of
from specsim.schedulers.loading import scheduler_factory
from specsim.config.configured import from_words


class Left(BaseException):
    pass


def door(name, later=0, calls={{}}):
    calls[name] = calls.get(name, 0) + 1
    if name == "{door}" and calls[name] > later:
        {leave}


door("module")


class Part:
    def __init__(self):
        door(type(self).__name__)


class Trace(Part):
    drawn = ()

    def read(self, seed, requests):
        door("Trace.read")
        lengths = [40, 50, 60, 70]
        return trace_of({{"arrival_s": [0.0, 1.0, 2.0, 3.0], "prompt_tokens": lengths, "output_tokens": lengths}}, "t")


class Slow(ModelLatency):
    def seconds(self, shape):
        door("Slow.seconds")
        door("Slow.seconds,later", later=9)
        return 0.004


class Drafter(Part):
    def of(self, profile):
        door("Drafter.of")
        draft = profile.draft
        names = [name for name, each in draft.__dataclass_fields__.items() if each.init]
        return Slow(**{{name: getattr(draft, name) for name in names}})


class Acceptance(Part):
    evidence, sha256 = "assumed", None

    def acceptance_trace(self, category, slo_class, rows, seed):
        door("Acceptance.acceptance_trace")
        confidence = np.tile([0.6, 0.3], (8, 1))
        return AcceptanceTrace(confidence, np.zeros(8, dtype=np.int64), Layout(), stream_keys(seed, "text", rows))


class Layout:
    def rows(self, requests, keys, hashed, on, depth):
        door("Layout.rows")
        return (hashed % np.uint64(8)).astype(np.int64)

    def text_rows(self, requests, depth=0):
        door("Layout.text_rows")
        return np.arange(8)


class Router(Part):
    def plan(self, classes, servers):
        door("Router.plan")
        door("Router.plan,later", later=1)

    def route(self, coming, servers):
        door("Router.route")
        return 0


class Scheduler(Part):
    def __init__(self):
        super().__init__()
        (chosen,) = from_words(["scheduler=vllm_spec"], sweep=False)
        self.inner = scheduler_factory(chosen.config["scheduler"], "inner")()

    @property
    def max_width(self):
        door("Scheduler.max_width")
        return 1

    def step(self, view):
        door("Scheduler.step")
        return self.passes(view)

    def passes(self, view):
        door("Scheduler.passes")
        yield from self.inner.step(view)

    def noted(self, requests):
        door("Scheduler.noted")
        return {{}}
"""
GROUPS = ("trace", "drafter", "acceptance", "router", "scheduler")
LEAVES = ("sys.exit(0)", "raise GeneratorExit", "raise Left('with a word')", "raise SystemExit('several\\nlines')")
CHECKED = (
    "module Trace Trace.read Drafter Drafter.of Slow.seconds Acceptance Acceptance.acceptance_trace Router Router.plan "
    "Scheduler Scheduler.max_width"
)
"""Doors that are asked before anything runs."""
RUNNING = (
    "Slow.seconds,later Layout.rows Layout.text_rows Router.plan,later Router.route Scheduler.step Scheduler.passes "
    "Scheduler.noted"
)


@pytest.fixture
def words(here):
    for group in GROUPS:
        more = "pair: {target: any, draft: any}\n" if group == "acceptance" else ""
        (here / f"{group}.yaml").write_text(f"_target_: parts.{group.capitalize()}\n{more}")
    chosen = [f"{group}=./{group}.yaml" for group in GROUPS]
    return ["plugins=[./parts.py]", *chosen, "replicas=2", "profile=llama8b_1b_h100", "out=out"]


def write(door, leave):
    Path("parts.py").write_text(PARTS.format(door=door, leave=leave))


def test_the_parts_run_where_none_leaves(words, capsys):
    write("none", "pass")
    assert main(["run", *words]) == 0
    assert Path("out/metrics.json").is_file()
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize("leave", LEAVES)
@pytest.mark.parametrize("door", f"{CHECKED} {RUNNING}".split())
def test_a_run_ends_in_a_line_that_names_the_part(door, leave, words, refused):
    write(door, leave)
    said = refused("run", *words)
    assert any(each in said for each in ("SystemExit", "GeneratorExit", "Left"))
    assert "parts.py" in said or f"{door.partition('.')[0].lower()}=./" in said


@pytest.mark.parametrize("door", RUNNING.replace("Router.plan,later", "").split())
def test_a_point_of_a_sweep_fails_and_the_others_run(door, words, capsys, monkeypatch):
    write(door, "sys.exit(0)")
    monkeypatch.syspath_prepend(".")
    monkeypatch.delitem(sys.modules, "parts", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    assert main(["run", "-m", *words[1:], "plugins=[parts]", "seed=0,1"]) == 1
    said = capsys.readouterr().err.splitlines()
    assert [each.partition(" failed: ")[0] for each in said] == ["specsim: seed=0", "specsim: seed=1"]
    assert all("SystemExit" in each for each in said), said
