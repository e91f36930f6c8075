"""Scripts of examples/ and notebooks run anywhere with what ships; they and what pages show have what they are to."""

import ast
import json
import os
import re
import subprocess
import sys

import pytest

from tests import MYPY_CACHE
from tests.e2e.test_python_page import BLOCKS
from tests.e2e.test_your_scheduler import MODULES, POLICY, block_of
from tests.files import ROOT, page

EXAMPLES = sorted((ROOT / "examples").glob("*.py"))
PRINTS = {
    "choose_deployment": [
        "llama70b_1b_4xa100 adaserve",
        "4 GPUs: llama70b_1b_4xh100 x 1, vllm_spec scheduler.max_num_batched_tokens=",
    ],
    "compare_schedulers": [
        *("At 6 requests/s the best is ", "difference_half_width", "vllm_spec    4 ", "vllm_spec    7 ")
    ],
    "own_scheduler": ["mean TPOT, ms", "\n512 ", "share of requests that attain"],
}
ARGUMENTS = {"compare_schedulers": ["100", "50 points", "2"]}
SHORTER = '"requests": 1100', '"requests": 200'
"""Short runs of what takes minutes."""
WRITES = {
    "choose_deployment": {"mix.yaml"},
    "compare_schedulers": {"compare_schedulers", "compare_schedulers.csv", "compare_schedulers.png"},
    "own_scheduler": {"own_scheduler.yaml"},
}


def test_each_script_is_short_and_named_on_its_page():
    assert [path.stem for path in EXAMPLES] == sorted(PRINTS)
    for path in EXAMPLES:
        assert len(path.read_text(encoding="utf-8").splitlines()) < 60, path.name
        assert f"(../examples/{path.name})" in page("examples")
    assert "(docs/examples.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.name)
def test_a_script_runs_in_an_empty_directory(path, tmp_path):
    environment = {key: value for key, value in os.environ.items() if key != "SPECSIM_DATA"} | {"MPLBACKEND": "agg"}
    script, here = tmp_path / path.name, tmp_path / "here"
    script.write_text(path.read_text(encoding="utf-8").replace(*SHORTER))
    here.mkdir()
    command = [sys.executable, "-W", "error", str(script), *ARGUMENTS.get(path.stem, ())]
    done = subprocess.run(command, cwd=here, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert [line for line in PRINTS[path.stem] if line not in done.stdout] == []
    assert not re.search(r"\bnan\b", done.stdout, re.IGNORECASE)
    assert {each.name for each in here.iterdir()} == WRITES[path.stem]


PROTOCOLS = {"log_lines.LogLines": "TraceReader", "two_kinds.TwoKinds": "AcceptanceModel", "remote.Remote": "Drafter"}
WRONG = {
    "calls.py": ("from specsim import simulate\n\nsimulate(7, slo=3.5, rps='2')\n", ["[arg-type]"] * 3),
    "view.py": ("from specsim.plugin import View\ndef f(v: View) -> str:\n    return v.now_s\n", ['expected "str"']),
}
CONFIG = """
[mypy]
follow_imports = silent
[mypy-IPython.*,dask.*,distributed.*,optuna.*,ray.*,scipy.*,torch.*,transformers.*]
follow_imports = skip
"""
"""Of the package, which `make lint` checks, the types are read, and no library of which it shows none."""


def protocols() -> str:
    """Return a module that takes each class for its protocol, and a drafter for a trace reader, too."""
    lines = [f"from specsim.plugin import {', '.join(PROTOCOLS.values())}"]
    lines += [f"import {each.partition('.')[0]}" for each in PROTOCOLS]
    lines += [f"def f_{name}(made: {target}) -> {name}:\n    return made" for target, name in PROTOCOLS.items()]
    return "\n".join([*lines, "def wrong(made: remote.Remote) -> TraceReader:\n    return made"]) + "\n"


@pytest.mark.slow
def test_every_module_that_is_shown_is_typed(tmp_path):
    shown = dict(BLOCKS) | {f"{module}.py": block_of(group, "python", "class") for group, module in MODULES.items()}
    shown |= {"shortest_first.py": POLICY, "protocols.py": protocols()}
    shown |= {path.name: path.read_text(encoding="utf-8") for path in EXAMPLES}
    expected = {"protocols.py": ['expected "TraceReader"']} | {name: said for name, (_, said) in WRONG.items()}
    for name, text in (shown | {name: text for name, (text, _) in WRONG.items()}).items():
        (tmp_path / name).write_text(text)
    names = sorted(shown.keys() | WRONG.keys())
    (tmp_path / "mypy.ini").write_text(CONFIG)
    command = [sys.executable, "-m", "mypy", "--strict", "--cache-dir", str(MYPY_CACHE), *names]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    errors = re.findall(r"^(\w+\.py):\d+: error: (.*)$", done.stdout, re.MULTILINE)
    assert sorted({name for name, _ in errors}) == sorted(expected), done.stdout + done.stderr
    for name, said in expected.items():
        found = [line for file, line in errors if file == name]
        assert len(found) == len(said), found
        assert all(each in line for each, line in zip(said, found, strict=True)), found


NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DEFINITIONS = {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda}
SHORT = {"attainment": (30, 2), "acceptance": (30, 1), "tour": (40, 1)}
"""Requests and seeds of the quick runs, by notebook; `anatomy` is quick as it stands."""
MOST_CELL_LINES = 20


def cells(notebook, kind):
    found = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_a_notebook_is_committed_without_outputs_defines_nothing_and_is_linked(notebook):
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    for source in cells(notebook, "code"):
        plain = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
        assert not {type(node) for node in ast.walk(ast.parse(plain))} & DEFINITIONS
        assert len(source.splitlines()) <= MOST_CELL_LINES
    for link in re.findall(r"\]\(([^)#]+)", "\n".join(cells(notebook, "markdown"))):
        assert (notebook.parent / link).is_file(), link
    assert f"({notebook.name})" in (ROOT / "notebooks" / "tour.ipynb").read_text() or notebook.stem == "tour"
    assert f"../notebooks/{notebook.name}" in page("examples")


def shortened(source, requests, seeds):
    """Return a cell with fewer requests, trials and seeds: whether it runs does not depend on how long its runs are."""
    source = re.sub(r'(requests=|"requests": )\d+', rf"\g<1>{requests}", source)
    source = re.sub(r'("trials": )\d+', r"\g<1>2", source)
    return re.sub(r"range\(\d\)", f"range({seeds})", source)


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_a_notebook_runs_top_to_bottom(notebook, tmp_path):
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    document = nbformat.read(notebook, as_version=4)
    code = [cell for cell in document.cells if cell.cell_type == "code"]
    if notebook.stem in SHORT:
        before = [cell.source for cell in code]
        for cell in code:
            cell.source = shortened(cell.source, *SHORT[notebook.stem])
        assert [cell.source for cell in code] != before
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in code for output in cell.outputs]
    said = "".join(each.text for each in shown if each.output_type == "stream" and each.name == "stderr")
    # A progress bar is no complaint.
    assert not [line for line in re.split(r"[\r\n]+", said) if line.strip() and "%|" not in line]
    assert any("image/png" in each.get("data", {}) for each in shown)
