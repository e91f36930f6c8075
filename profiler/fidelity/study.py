"""A study: which pairs serve which text under which schedulers at which loads; by name, or from a file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from math import inf
from pathlib import Path
from typing import Any, Literal, NamedTuple

from profiler.latency.points import Grid, shipped
from profiler.typed import typed
from specsim.config.points import check_typed
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import is_path, read_yaml
from specsim.files.yaml_file import shipped as shipped_folder

Drafter = Literal["separate", "skip", "lookup"]
Text = Literal["model", "drawn"]
MEASURED, WALL = "measured", "wall"
LOADS = (0.5, 1.0, 1.5)
DTYPES = {"cpu": "float32", "cuda": "bfloat16"}
Words = tuple[str, ...]
SIMULATED, REAL, REVERSE = "simulated", "real", "reverse"


class StudyCell(NamedTuple):
    """One run; its side is simulated, real (measured seconds), or reverse: real passes on the simulated clock."""

    pair: str
    scheduler: str
    load: float
    side: str
    repeat: int

    @property
    def label(self) -> str:
        """The cell in words."""
        turn = f" {self.repeat + 1}" if self.side == REAL else ""
        return f"{self.pair}, {self.scheduler}, load {self.load:g}, {self.side}{turn}"


@dataclass(frozen=True, slots=True)
class StudyPair:
    """Two models and their text.

    Attributes
    ----------
    text : ``model`` (what the target says) or ``drawn`` (acceptance is drawn; the models only take their time).
    target, draft : a model by name, folder or GGUF file, or ``package:NAME`` for the folder of an installed package;
        empty where `random_weights`, the shapes of target and draft, say it.
    drafter : separate, skip (the target without `skip_layers`) or lookup (of matches of `lookup_ngrams` tokens, fewest
        and most).
    prompts : files of texts; empty: the shipped ones. settings : words of a run, for this pair alone.
    schedulers : further words by scheduler.
    """

    name: str
    text: Text
    target: str = ""
    draft: str = ""
    random_weights: Words = ()
    drafter: Drafter = "separate"
    skip_layers: tuple[int, ...] = ()
    lookup_ngrams: tuple[int, int] = (1, 3)
    prompts: tuple[Path, ...] = ()
    settings: Words = ()
    schedulers: Mapping[str, Words] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.name or self.name.startswith(".") or set(self.name) & set("/\\"):
            raise SpecsimError(f"pair {self.name}: names files; expected a name without separators")
        drafts = bool(self.draft) or len(self.random_weights) > (0 if self.target else 1)
        if not self.target and not self.random_weights:
            raise SpecsimError(f"pair {self.name}: target: missing; expected a model, or shapes of random weights")
        if drafts != (self.drafter == "separate"):
            raise SpecsimError(f"pair {self.name}: a draft model goes with the drafter separate, and only with it")
        if bool(self.skip_layers) != (self.drafter == "skip"):
            raise SpecsimError(f"pair {self.name}: skip_layers go with the drafter skip, and only with it")
        if len(self.lookup_ngrams) != 2 or not 1 <= self.lookup_ngrams[0] <= self.lookup_ngrams[1]:
            raise SpecsimError(f"pair {self.name}: lookup_ngrams {self.lookup_ngrams}: expected fewest and most tokens")


@dataclass(frozen=True, slots=True)
class Study:
    """The runs of a study, and their hardware.

    Attributes
    ----------
    loads : arrivals as multiples of the rate at which the first scheduler serves. repeats : real runs of each cell.
    schedulers : words of each beside ``scheduler=NAME``. settings : words of every run.
    typed : words of every run that hold against all others.
    reverse_from : the least load at which the models also run on the simulated clock; None: at none.
    clock : of real runs: ``measured`` (moved on by the seconds of passes) or ``wall``.
    device, dtype, threads : of the models; an empty type is the device's own, 0 threads are torch's choice.
    cache_tokens : tokens that both models cache.
    graphs : whether passes whose shapes come again are captured as CUDA graphs and replayed.
    grid : sizes at which the profile is measured.
    """

    name: str
    description: str
    loads: tuple[float, ...]
    schedulers: Mapping[str, Words]
    pairs: tuple[StudyPair, ...]
    settings: Words = ()
    typed: Words = ()
    repeats: int = 2
    reverse_from: float | None = 0.0
    clock: Literal["measured", "wall"] = "measured"
    device: Literal["cpu", "cuda"] = "cpu"
    dtype: str = ""
    threads: int = 0
    cache_tokens: int = 16384
    graphs: bool = False
    grid: Grid = field(default_factory=lambda: shipped("cpu", quick=False))

    def __post_init__(self) -> None:
        if not self.loads or not all(0 < each < inf for each in self.loads) or len(set(self.loads)) < len(self.loads):
            raise SpecsimError(f"loads: {list(self.loads)} is not a list of different numbers above 0")
        for name in ("repeats", "cache_tokens"):
            if getattr(self, name) < 1:
                raise SpecsimError(f"{name} {getattr(self, name)}: expected 1 or more")
        if self.graphs and self.device != "cuda":
            raise SpecsimError(f"graphs: CUDA captures them; expected device cuda, not {self.device}")
        for pair in self.pairs:
            for scheduler in pair.schedulers:
                if scheduler not in self.schedulers:
                    said = f"not one of the study's{nearest(scheduler, self.schedulers)}"
                    raise SpecsimError(f"pairs.{pair.name}.schedulers.{scheduler}: {said}")
        object.__setattr__(self, "dtype", self.dtype or DTYPES[self.device])

    def words(self, pair: StudyPair, scheduler: str) -> list[str]:
        """Return the settings of a run; of a key given twice the last one holds."""
        every = [
            *self.settings,
            *pair.settings,
            f"scheduler={scheduler}",
            *self.schedulers[scheduler],
            *pair.schedulers.get(scheduler, ()),
            *self.typed,
        ]
        return merged(every)

    def cells(self, pair: StudyPair) -> list[StudyCell]:
        """Return the cells of a pair: real ones first, whose repeats and loads take turns, so that drift meets all."""
        sides = [*((REAL, repeat) for repeat in range(self.repeats)), (SIMULATED, 0), (REVERSE, 0)]
        return [
            StudyCell(pair.name, scheduler, load, side, repeat)
            for side, repeat in sides
            for load in self.loads
            if side != REVERSE or (self.reverse_from is not None and load >= self.reverse_from)
            for scheduler in self.schedulers
        ]

    def only(self, names: Sequence[str]) -> Study:
        """Return the study of these pairs alone.

        Raises
        ------
        SpecsimError
            When it has none of that name.
        """
        known = {pair.name: pair for pair in self.pairs}
        for name in names:
            if name not in known:
                raise SpecsimError(f"pair {name}: unknown{nearest(name, known)}")
        if not names:
            return self
        return replace(self, pairs=tuple(each for each in self.pairs if each.name in names))


def described(study: Study) -> dict[str, Any]:
    """Return a study as plain values for its report; files by name alone."""
    told = asdict(study)
    told["pairs"] = [{name: value for name, value in pair.items() if value} for pair in told["pairs"]]
    plain: dict[str, Any] = json.loads(json.dumps(told, default=lambda file: file.name))
    return {"name": plain.pop("name"), "description": plain.pop("description"), "study": plain}


def merged(words: Iterable[str]) -> list[str]:
    """Return settings of which the last one holds where a key is given twice."""
    return list({word.lstrip("+").partition("=")[0]: word for word in words}.values())


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
    every = [typed(StudyPair, each, name=name) for name, each in node.children("pairs", "pairs").items()]
    pairs = tuple(replace(each, prompts=tuple(file.parent / prompts for prompts in each.prompts)) for each in every)
    grid = shipped(node.values.get("device", "cpu"), quick=False)
    if "grid" in node.values:
        grid = typed(Grid, node.child("grid"), grid)
    rest = {key: value for key, value in node.values.items() if key not in ("pairs", "grid")}
    study = typed(Study, CheckedMapping(node.source, "", rest), name=file.stem, pairs=pairs, grid=grid)
    words = [*study.settings, *(word for each in study.schedulers.values() for word in each)]
    words += [word for pair in pairs for each in (pair.settings, *pair.schedulers.values()) for word in each]
    check_typed((word.partition("=")[0].strip().lstrip("+") for word in words), node.source)
    return study
