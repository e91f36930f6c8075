"""Notebooks define nothing: from any folder they run top to bottom, on results that are made quickly here."""

import ast
import json
import re

import pytest

from tests.files import ROOT, page

NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
DEFINITIONS = {ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef, ast.Lambda}
SHORT = {"attainment": (30, 2), "acceptance": (30, 1), "tour": (40, 1)}
"""Requests and seeds of the quick runs, by notebook; `anatomy` is quick as it stands."""
MOST_CELL_LINES = 20


def cells(notebook, kind):
    found = json.loads(notebook.read_text())["cells"]
    return ["".join(cell["source"]) for cell in found if cell["cell_type"] == kind]


@pytest.mark.parametrize("notebook", NOTEBOOKS, ids=lambda each: each.stem)
def test_it_is_committed_without_outputs_defines_nothing_and_is_linked(notebook):
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
def test_it_runs_top_to_bottom(notebook, tmp_path):
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
