"""A study's file: `Study` and `Pair` as keys."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from profiler.fidelity.study import Pair, Study
from profiler.latency.grids import Grid, shipped
from profiler.typed import typed
from specsim.config.points import check_typed
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import is_path, read_yaml
from specsim.files.yaml_file import shipped as shipped_folder


def study_named(name: str) -> Study:
    """Return the shipped study of that name, or that of a file.

    Raises
    ------
    SpecsimError
        One line naming the file and the key.
    """
    folder = shipped_folder("conf") / "fidelity"
    file = expanded(name) if is_path(name) else folder / f"{name}.yaml"
    if not is_path(name) and not file.is_file():
        known = sorted(each.stem for each in folder.glob("*.yaml"))
        raise SpecsimError(f"fidelity {name}: no such study{nearest(name, known)}")
    node = CheckedMapping(str(file), "", read_yaml(file, "study"))
    pairs = tuple(_pair(each, name, file.parent) for name, each in node.children("pairs", "pairs").items())
    rest = {key: value for key, value in node.values.items() if key not in ("pairs", "grid")}
    study = typed(Study, CheckedMapping(node.source, "", rest), name=file.stem, pairs=pairs, grid=_grid(node))
    words = [*study.settings, *(word for each in study.schedulers.values() for word in each)]
    words += [word for pair in pairs for each in (pair.settings, *pair.schedulers.values()) for word in each]
    check_typed((word.partition("=")[0].strip().lstrip("+") for word in words), node.source)
    return study


def _grid(node: CheckedMapping) -> Grid:
    """Return the grid of a study; keys that it leaves out are those of its device's."""
    base = shipped(node.values.get("device", "cpu"), quick=False)
    return typed(Grid, node.child("grid"), base) if "grid" in node.values else base


def _pair(node: CheckedMapping, name: str, folder: Path) -> Pair:
    pair = typed(Pair, node, name=name)
    return replace(pair, prompts=tuple(folder / each for each in pair.prompts))
