"""A study's file: its keys, checked."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from profiler.fidelity.study import (
    CACHE_TOKENS,
    CLOCKS,
    DRAFTERS,
    MEASURED,
    TEXTS,
    Pair,
    Study,
    Words,
)
from profiler.latency.grids import grid_of, shipped
from specsim.config.points import check_typed
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import is_path, read_yaml
from specsim.files.yaml_file import shipped as shipped_folder

KEYS = ("description", "loads", "schedulers", "pairs")
OPTIONS = (
    "settings",
    "repeats",
    "reverse_from",
    "clock",
    "device",
    "dtype",
    "threads",
    "cache_tokens",
    "graphs",
    "grid",
)
PAIR_OPTIONS = (
    "target",
    "draft",
    "random_weights",
    "drafter",
    "skip_layers",
    "lookup_ngrams",
    "prompts",
    "settings",
    "schedulers",
)


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
    return study_from_mapping(CheckedMapping(str(file), "", read_yaml(file, "study")), file)


def study_from_mapping(node: CheckedMapping, file: Path) -> Study:
    """Return the study of checked keys of a file."""
    node.only(KEYS, OPTIONS)
    given = node.values
    device = node.choice("device", ("cpu", "cuda")) if "device" in given else "cpu"
    base = shipped(device, quick=False)
    schedulers = _schedulers(node)
    pairs = tuple(_pair(each, name, file.parent, schedulers) for name, each in node.children("pairs", "pairs").items())
    return Study(
        name=file.stem,
        description=node.text("description"),
        loads=_loads(node),
        schedulers=schedulers,
        pairs=pairs,
        settings=_settings(node, "settings"),
        repeats=node.whole("repeats") if "repeats" in given else 2,
        reverse_from=_reverse_from(node) if "reverse_from" in given else 0.0,
        clock=node.choice("clock", CLOCKS) if "clock" in given else MEASURED,
        device=device,
        dtype=node.text("dtype") if "dtype" in given else ("bfloat16" if device == "cuda" else "float32"),
        threads=node.whole("threads", 0) if "threads" in given else 0,
        cache_tokens=node.whole("cache_tokens") if "cache_tokens" in given else CACHE_TOKENS,
        graphs=node.flag("graphs") if "graphs" in given else False,
        grid=grid_of(node.child("grid"), base) if "grid" in given else base,
    )


def _loads(node: CheckedMapping) -> tuple[float, ...]:
    loads = node.numbers("loads", 1)
    if min(loads) <= 0 or len(set(loads)) < len(loads):
        node.fail("loads", "a list of different numbers above 0")
    return loads


def _reverse_from(node: CheckedMapping) -> float | None:
    return None if node.values["reverse_from"] is None else node.number("reverse_from")


def _schedulers(node: CheckedMapping) -> dict[str, Words]:
    held = node.child("schedulers", "schedulers, each with a list of settings", 1)
    return {str(name): _settings(held, str(name)) for name in held.values}


def _texts(node: CheckedMapping, name: str) -> Words:
    return node.texts(name) if name in node.values else ()


def _settings(node: CheckedMapping, name: str) -> Words:
    """Return settings of a run, none of which a file may not set."""
    words = _texts(node, name)
    check_typed((word.partition("=")[0].strip().lstrip("+") for word in words), node.source)
    return words


def _pair(node: CheckedMapping, name: str, folder: Path, known: Mapping[str, Words]) -> Pair:
    node.only(("text",), PAIR_OPTIONS)
    given = node.values
    further = _schedulers(node) if "schedulers" in given else {}
    for scheduler in further:
        if scheduler not in known:
            node.refuse(f"schedulers.{scheduler}", f"not one of the study's{nearest(scheduler, known)}")
    ngrams = node.wholes("lookup_ngrams") if "lookup_ngrams" in given else (1, 3)
    if len(ngrams) != 2:
        node.fail("lookup_ngrams", "two whole numbers, fewest and most tokens")
    return Pair(
        name=name,
        text=node.choice("text", TEXTS),
        target=node.text("target") if "target" in given else "",
        draft=node.text("draft") if "draft" in given else "",
        random_weights=_texts(node, "random_weights"),
        drafter=node.choice("drafter", DRAFTERS) if "drafter" in given else "separate",
        skip_layers=node.wholes("skip_layers", 0) if "skip_layers" in given else (),
        lookup_ngrams=(ngrams[0], ngrams[1]),
        prompts=tuple(folder / expanded(each) for each in _texts(node, "prompts")),
        settings=_settings(node, "settings"),
        schedulers=further,
    )
