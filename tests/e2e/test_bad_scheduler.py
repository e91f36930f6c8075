"""A scheduler from outside that is broken: the user gets a line that names it and what it did, never our stack."""

import bisect
import re
import sys

import numpy as np
import pytest

from specsim import simulate
from specsim.cli import main
from specsim.plugin import NOBODY, Sequences, grow
from specsim.schedulers.composed import Composed
from specsim.schedulers.sarathi import TokenBudget
from specsim.schedulers.vllm_spec import FixedChains
from tests.made import refusal

BASE = ["trace=poisson", "requests=5", "acceptance=bernoulli", "profile=llama8b_1b_h100", "engine=profiled", "out=here"]
TOP = """
import numpy as np
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_trees
from specsim.core.passes import DraftPass, TargetPass

def verify(ids, chunks, **more):
    ids = np.array(ids, dtype=np.int64)
    return TargetPass(ids, np.array(chunks, dtype=np.int64), Forest.roots(len(ids)), **more)

class Mine:
    def step(self, view):
"""
HERE = TOP.count("\n") + 1
"""The line of the step's first statement."""
BODIES = {
    "raises": ("raise RuntimeError('boom\\nand more')\n        yield", "boom and more", HERE),
    "raises in a part of specsim": ("yield from grow_trees(view, None, None, 1, 1, 1)", "TypeError", HERE),
    "misspells a field": ("view.runing\n        yield", "did you mean 'running'?", HERE),
    "asks for the future": ("view.output_tokens\n        yield", "'output_tokens'; no scheduler knows", HERE),
    "no generator": ("return None", "step returned None", HERE - 1),
    "a pass returned, not yielded": ("if 0: yield\n        return verify([0], [1])", "returned a TargetPass", HERE - 1),
    "yields no pass": ("yield 'pass'", "step yielded 'pass' (str)", HERE),
    "swallows the refusal": (
        "try:\n            yield verify([-1], [1])\n        except Exception:\n            yield verify([0], [1])",
        "request -1",
        HERE + 1,
    ),
    "writes into the view": ("view.arrival_s[0] = 3.0\n        yield", "read-only", HERE),
    "too wide a tree": (
        "r = np.array(view.waiting[:1]); "
        "yield DraftPass(r, view.draft_pending(r), Forest.roots(1), np.array([0]), width=99)",
        "tree width 99 exceeds the 4 proposals",
        HERE,
    ),
}


@pytest.fixture
def refused(refused):
    return lambda *words: refused("run", *words, *BASE)


def write(folder, source):
    (folder / "theirs.py").write_text(source)
    (folder / "theirs.yaml").write_text("_target_: theirs.Mine\n")
    return "scheduler=./theirs.yaml", "plugins=[./theirs.py]"


@pytest.mark.parametrize("body", BODIES)
def test_a_scheduler_at_fault_is_named(refused, tmp_path, body):
    source, named, line = BODIES[body]
    said = refused(*write(tmp_path, TOP + f"        {source}\n"))
    assert said.startswith("specsim: scheduler Mine at 0 s: ")
    assert named in said
    assert said.endswith(f"(theirs.py:{line})\n")


def test_who_runs_nothing_is_told_what_waits(refused, tmp_path):
    said = refused(*write(tmp_path, TOP + "        yield from ()\n"))
    assert ": runs nothing although" in said
    assert re.search(r"5 requests wait .*: 5 without cache, 0 with; (\S+) GiB of \1 GiB free$", said)


def test_debug_shows_the_users_own_line(here, capsys):
    words = write(here, TOP + "        yield verify([-1], [1])\n")
    assert main(["run", "--debug", *words, *BASE]) == 2
    *trace, last = capsys.readouterr().err.splitlines()
    assert trace[0] == "Traceback (most recent call last):"
    assert f'  File "{here}/theirs.py", line {HERE}, in step' in trace
    assert "    yield verify([-1], [1])" in trace
    assert last.startswith("specsim: scheduler Mine at 0 s: a pass names request -1")


PARTS = [
    ("sequences", lambda self, *_: None, "TypeError: Mine.sequences returned None; expected Sequences"),
    ("sequences", lambda self, *_: Sequences([0], *[NOBODY] * 3), "TypeError: Mine.sequences: requests is [0] (list);"),
    ("grow", lambda self, view, of: grow(of.requests, of.catch_up, np.zeros(1), (1,)), "Mine.grow: TypeError: max_de"),
    ("grow", lambda self, view, of: grow(of.requests, NOBODY, of.catch_up, (1,)), "Mine.grow: a leaf can only be"),
    ("on_verified", lambda self, view: None, "Mine.on_verified: TypeError: "),
    ("begin", lambda self: None, "Mine.begin: TypeError: "),
    ("noted", lambda self, requests: None, "Mine.noted: TypeError: noted returned None; expected arrays by name"),
]


@pytest.mark.parametrize(("method", "body", "said"), PARTS)
def test_a_part_at_fault_is_named_with_its_line(method, body, said):
    body.__name__, own = method, {method: body}
    batching = type("Mine", (TokenBudget,), own if method == "sequences" else {})(8, 512, 0.0)
    speculation = type("Mine", (FixedChains,), {} if method == "sequences" else own)(3)
    told = refusal(simulate, Composed(batching, speculation), "poisson", requests=5)
    assert said in told
    assert told.endswith(f"test_bad_scheduler.py:{body.__code__.co_firstlineno})")


RAISES = "class Mine:\n    def __init__(self):\n        raise RuntimeError('boom\\nand more')\n    step = print\n"


@pytest.mark.parametrize(
    ("source", "file", "named"),
    [
        ("import no_such_module_at_all\n", "theirs.py", "no_such_module_at_all"),
        ("x = 1\ndef f(:\n", "theirs.py", "line 2"),
        (RAISES, "theirs.yaml", "boom"),
        ("class Mine:\n    drafts = property(lambda _: 1 / 0)\n", "theirs.yaml", "division by zero (theirs.py:2)"),
    ],
)
def test_what_cannot_be_imported_or_made_is_named(refused, here, source, file, named):
    said = refused(*write(here, source))
    assert file in said
    assert named in said


def test_a_plugin_named_like_a_module_in_use_does_not_replace_it(here, monkeypatch):
    monkeypatch.setitem(sys.modules, "bisect", bisect)
    (here / "bisect.py").write_text("broken = True\n")
    main(["run", "plugins=[./bisect.py]", "scheduler=fcfs", *BASE])
    assert sys.modules["bisect"] is bisect
