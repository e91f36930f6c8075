"""A study run: each pair profiled and served in one sitting, cell by cell; what is stored is not run again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Protocol

import torch

from profiler.backend.served import LookupMatch
from profiler.fidelity import measuring
from profiler.fidelity.cells import CELLS, Outcome, place_of, store
from profiler.fidelity.facts import key_of, lookup_facts, pair_facts, profile_facts, settings_key
from profiler.fidelity.models import Ready, Shelf
from profiler.fidelity.serving import Scene, outcome_of, service_rate, with_texts
from profiler.fidelity.study import SIMULATED, WALL, Cell, Pair, Study, described
from profiler.fidelity.tables import ABOUT
from profiler.latency.samples import read_samples
from profiler.passes.versions import versions
from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.paths import is_path, shipped
from specsim.files.yaml_file import read_yaml
from specsim.results.staging import in_one_step
from specsim.settings.configured import from_words


class Told(Protocol):
    """Hears of what happens."""

    def __call__(self, line: str, cells: int = 0) -> None:
        """Take a line, empty for none, and how many cells have ended."""
        ...


def run_study(
    study: Study, root: Path, told: Told, clock: Callable[[], float] = time.monotonic, *, command: str
) -> list[Path]:
    """Run what is missing of a study in the folder `root`; return the files of its cells.

    `command` is what was typed, for the report. A pair whose models cannot be had is left out, with a line. A cell that
    fails holds its error, and is run again the next time.
    """
    if study.threads:
        torch.set_num_threads(study.threads)
    shelf, about, files = Shelf(study), dict[str, Any](), list[Path]()
    for pair in study.pairs:
        # Nobody but the shelf may hold the models when the next pair comes.
        mine, about[pair.name] = _pair_run(study, pair, shelf, root, told, clock)
        files += mine
    if not files:
        raise SpecsimError(f"fidelity {study.name}: no pair could be served")
    _write(root / ABOUT, {**described(study), "command": command, **_machine(study), "pairs": about})
    return files


def _pair_run(
    study: Study, pair: Pair, shelf: Shelf, root: Path, told: Told, clock: Callable[[], float]
) -> tuple[list[Path], dict[str, Any]]:
    blocks = block_tokens(study, pair)
    try:
        ready = shelf.ready(pair, blocks)
    except SpecsimError as error:
        told(f"{pair.name}: left out: {error}")
        return [], {"left_out": str(error)}
    first = next(iter(study.schedulers))
    words = study.words(pair, first)
    scene, samples = _scene(study, ready, root, words, told)
    if pair.text == "model":
        told(f"{pair.name}: each text alone")
        scene = with_texts(scene, words)
    rate = service_rate(scene, words)
    told(f"{pair.name}: {first} serves {rate:.3g} requests/s where all come at once")
    files = _cells_run(study, scene, rate, samples, root, told, clock)
    return files, {
        "text": pair.text,
        "rate": rate,
        "held_out": _held_out(scene.profile),
        "samples": samples.name if samples else None,
        "target": ready.models.target.shape.name,
        "drafter": _drafter(ready),
    }


def _cells_run(
    study: Study, scene: Scene, rate: float, measured: Path | None, root: Path, told: Told, clock: Callable[[], float]
) -> list[Path]:
    """Run the cells of a scene that are not there; return the files of all."""
    ready, pair = scene.ready, scene.ready.pair
    first = scene.merged(study.words(pair, next(iter(study.schedulers))))
    facts = pair_facts(study, ready, first, scene.prompts, scene.texts)
    samples = read_samples(measured)[1] if measured else []
    cells, files = study.cells(pair), list[Path]()
    for number, cell in enumerate(cells, start=1):
        words = [*study.words(pair, cell.scheduler), f"rps={cell.load * rate!r}"]
        rests_on = {"cell": cell._asdict(), "facts": facts, "settings": settings_key(scene.merged(words))}
        file = place_of(root, cell, key_of(rests_on))
        failed = file.with_name(f"{file.stem}.failed.parquet")
        if not file.exists():
            started = clock()
            pace = measuring.pace(ready, study.grid, samples) if samples and cell.side != SIMULATED else math.nan
            outcome = _outcome(scene, cell, words, pace)
            store(file if "error" not in outcome.numbers else failed, cell, outcome)
            said = outcome.numbers.get("error", "done")
            told(f"{number} of {len(cells)}: {cell.label}: {said}, {clock() - started:.1f} s", 1)
        else:
            told("", 1)
        files.append(file if file.exists() else failed)
    return files


def block_tokens(study: Study, pair: Pair) -> set[int]:
    """Return the sizes of the blocks of a pair's runs, in tokens."""
    every = (from_words(study.words(pair, each), sweep=False)[0].config for each in study.schedulers)
    return {CheckedMapping("", "", config).whole("block_tokens") for config in every}


def given_profile(words: list[str]) -> Path | None:
    """Return the file of the profile that settings name; None where it is to be measured."""
    names = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("profile=")]
    if not names:
        return None
    return expanded(names[0]) if is_path(names[0]) else shipped("conf") / "profile" / f"{names[0]}.yaml"


def _outcome(scene: Scene, cell: Cell, words: list[str], pace: float) -> Outcome:
    """Run a cell, noting the pace of the machine before it; one that fails leaves its error alone."""
    try:
        outcome = outcome_of(scene, cell, words)
        return outcome._replace(numbers={**outcome.numbers, "pace": pace})
    except (SpecsimError, RuntimeError, MemoryError) as error:
        return Outcome([], {"error": first_line(error) or type(error).__name__}, {})


def _scene(study: Study, ready: Ready, root: Path, words: list[str], told: Told) -> tuple[Scene, Path | None]:
    """Return the scene of a pair, and the points of its profile if that was measured; its lookup is timed once."""
    profile, samples, pair = given_profile(words), None, ready.pair
    if profile is None:
        place = _profile_place(study, ready, root)
        told(f"{pair.name}: profile")
        profile = measuring.profile_of(ready, study.grid, place, lambda line: told(f"{pair.name}: {line}"))
        samples = measuring.samples_file(place)
    further = ["any_fit=true"]
    if isinstance(ready.models.draft, LookupMatch):
        kept = root / CELLS / f"{pair.name}-{key_of(lookup_facts(study, ready))}.lookup.json"
        if not kept.exists():
            _write(kept, measuring.lookup_s(ready, study.grid))
        prices = json.loads(kept.read_text(encoding="utf-8"))
        further += ["drafter=lookup", *(f"drafter.{key}={value!r}" for key, value in prices.items())]
    wall = study.clock == WALL
    return Scene(ready, profile, tuple(further), study.cache_tokens, None, None, wall=wall), samples


def _profile_place(study: Study, ready: Ready, root: Path) -> Path:
    """Return where the profile of a pair is kept, without suffix: that of another pair, if it may and can take it."""
    mine, other = (
        root / CELLS / f"{each.name}-{key_of(profile_facts(study, each, ready))}"
        for each in (ready.pair, study.profiled_as(ready.pair))
    )
    return other if measuring.profile_file(other).exists() else mine


def _drafter(ready: Ready) -> str:
    draft = ready.models.draft
    if isinstance(draft, LookupMatch):
        return f"prompt lookup of {draft.fewest} to {draft.most} tokens"
    return draft.shape.name


def _held_out(profile: Path) -> dict[str, float]:
    """Return the median held-out error of each kind of pass of a profile."""
    mapping = read_yaml(profile)
    errors = {role: mapping[role].get("held_out_error", {}).get(mapping["form"], {}) for role in measuring.ROLES}
    return {f"{role} {kind}": each["median"] for role, held in errors.items() for kind, each in held.items()}


def _machine(study: Study) -> Mapping[str, Any]:
    from profiler.latency.hardware import hardware
    from profiler.models.loading import torch_device

    about = hardware(torch_device(study.device))
    return {
        "hardware": about.name,
        "host": about.host,
        "device": study.device,
        "dtype": study.dtype,
        "threads": torch.get_num_threads(),
        "repeats": study.repeats,
        **versions(),
    }


def _write(file: Path, told: Mapping[str, Any]) -> None:
    with in_one_step(file) as partial:
        partial.write_text(json.dumps(told, indent=1) + "\n", encoding="utf-8")
