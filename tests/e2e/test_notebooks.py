"""Notebooks read results and define nothing: they run top to bottom on what their own commands make."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from specsim.settings.groups import names

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))


def cells(notebook: Path, kind: str) -> list[str]:
    found = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


def commands(notebook: Path) -> list[str]:
    """Return the commands that the first cell names, shell variables put in."""
    lines = [line[2:] for line in cells(notebook, "markdown")[0].splitlines() if line.startswith("$ ")]
    values = dict(line.split("=", 1) for line in lines if re.match(r"[A-Z]+=", line))
    said = [line for line in lines if not re.match(r"[A-Z]+=", line)]
    for name, value in values.items():
        said = [line.replace(f"${name}", value) for line in said]
    return said


def test_there_are_two() -> None:
    assert [each.stem for each in NOTEBOOKS] == ["attainment", "tour"]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_it_is_committed_without_outputs_and_defines_nothing(notebook: Path) -> None:
    for cell in json.loads(notebook.read_text())["cells"]:
        assert not cell.get("outputs")
        assert cell.get("execution_count") is None
    for source in cells(notebook, "code"):
        plain = "\n".join(line for line in source.splitlines() if not line.startswith("%"))
        kinds = {type(node) for node in ast.walk(ast.parse(plain))}
        assert not kinds & {ast.FunctionDef, ast.ClassDef, ast.Lambda}


def test_the_comparison_holds_every_scheduler() -> None:
    (line,) = [line for line in cells(NOTEBOOKS[0], "markdown")[0].splitlines() if line.startswith("$ S=")]
    assert line.removeprefix("$ S=").split(",") == names("scheduler")


@pytest.mark.slow
@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_it_runs_top_to_bottom(notebook: Path, tmp_path: Path) -> None:
    nbclient, nbformat = pytest.importorskip("nbclient"), pytest.importorskip("nbformat")
    assert commands(notebook)
    for line in commands(notebook):
        assert "requests=1000 " in line
        # Whether the cells run does not depend on how long the runs are.
        short = line.replace("requests=1000 ", "requests=40 ")
        made = subprocess.run(
            [sys.executable, "-m", *shlex.split(short)], cwd=tmp_path, capture_output=True, text=True, check=False
        )
        assert made.returncode == 0, made.stderr
    document = nbformat.read(notebook, as_version=4)
    nbclient.NotebookClient(document, timeout=300, resources={"metadata": {"path": str(tmp_path)}}).execute()
    shown = [output for cell in document.cells if cell.cell_type == "code" for output in cell.outputs]
    assert not [each for each in shown if each.output_type == "stream" and each.name == "stderr"]
    assert any("image/png" in each.get("data", {}) for each in shown)
