"""The examples of docs/traces.md, slo.md, acceptance.md and drafters.md, run as they stand; no key is left out."""

import re
import runpy
import shlex

import pytest

from specsim.acceptance import loading, pinned
from specsim.acceptance.curves import Curve
from specsim.acceptance.recorded import COLUMNS, DEPTH
from specsim.acceptance.reported import CONFIDENCE, KEYS
from specsim.cli import main
from specsim.latency import drafter
from specsim.workload import slo
from specsim.workload.formats import KNOWN
from tests.files import blocks, page

FAST = ("traces", "slo")
LONG, SHORT = '"requests": 2000', '"requests": 100'
"""An example of a minute is tested with fewer requests."""


def consoles(text):
    """Yield each command of a console block and the lines shown behind it."""
    for each in re.split(r"^\$ ", text, flags=re.MULTILINE)[1:]:
        command, *shown = each.splitlines()
        yield shlex.split(command), shown


@pytest.mark.parametrize(
    "name",
    [*FAST, *(pytest.param(each, marks=pytest.mark.slow) for each in ("acceptance", "your-acceptance", "drafters"))],
)
def test_the_examples_of_a_page_run(here, capsys, name):
    runs = 0
    for kind, text in blocks(page(name)):
        if kind in ("yaml", "python"):
            (named,) = re.findall(r"\A# (\w+\.\w+)\n", text)
            (here / named).write_text(text.replace(LONG, SHORT))
            continue
        if kind == "toml":  # tests/e2e/test_kinds.py installs it.
            continue
        assert kind == "console"
        for command, shown in consoles(text):
            if command[0] == "cat":
                (here / command[1]).write_text("".join(f"{line}\n" for line in shown))
            elif command[0] == "python":
                runpy.run_path(command[1])
            else:
                runs += 1
                capsys.readouterr()
                assert main([*command[1:], f"out=run{runs}"]) == 0
                said = capsys.readouterr().out.splitlines()
                assert [line for line in shown if line not in said] == []
    assert runs


def keys_of(name):
    return set(re.findall(r"`(\w+)`", page(name)))


def test_every_key_and_column_that_is_read_stands_on_its_page():
    classes = (*slo.OBJECTIVES, "share", "acceptance", "scaled")
    assert {*slo.MIX_KEYS, *classes, "classes"} <= keys_of("slo")
    of_acceptance = keys_of("acceptance") | keys_of("your-acceptance")
    assert {"kind", "path", "categories", "width", "alpha", "levels", *pinned.KNOBS} <= of_acceptance
    assert {f"acceptance.{CONFIDENCE}.{each}" for each in KEYS} <= set(re.findall(r"[\w.]+", page("acceptance")))
    assert {*Curve.__slots__, *loading.KINDS.built_in} - {"chain"} <= of_acceptance
    assert {*COLUMNS, DEPTH} <= keys_of("your-acceptance")
    drafters = (drafter.Separate, drafter.Lookup, drafter.LayersSkipped, drafter.Heads)
    keys = {key for kind in drafters for key in kind.__slots__} - {"name"} | set(drafter.KINDS.built_in)
    assert keys <= keys_of("drafters")
    named = set(re.findall(r"`([\w .]+)`", page("traces") + page("trace-formats")))
    assert named >= KNOWN
