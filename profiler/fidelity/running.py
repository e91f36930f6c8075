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
from profiler.fidelity.models import Ready, Shelf
from profiler.fidelity.serving import Scene, outcome_of, service_rate, with_texts
from profiler.fidelity.study import SIMULATED, Cell, Study
from profiler.fidelity.tables import ABOUT
from profiler.latency.samples import read_samples
from profiler.passes.versions import versions
from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import expanded
from specsim.files.paths import is_path, shipped
from specsim.files.yaml_file import read_yaml
from specsim.results.staging import in_one_step


class Told(Protocol):
    """Hears of what happens."""

    def __call__(self, line: str, cells: int = 0) -> None:
        """Take a line, empty for none, and how many cells have ended."""
        ...


def run_study(study: Study, root: Path, told: Told, clock: Callable[[], float] = time.monotonic) -> list[Path]:
    """Run what is missing of a study in the folder `root`; return the files of its cells.

    A pair whose models cannot be had is left out, with a line. A cell that fails holds its error, and is run again the
    next time.
    """
    if study.threads:
        torch.set_num_threads(study.threads)
    shelf, about, files = Shelf(study), dict[str, Any](), list[Path]()
    for pair in study.pairs:
        try:
            ready = shelf.ready(pair)
        except SpecsimError as error:
            told(f"{pair.name}: left out: {error}")
            about[pair.name] = {"left_out": str(error)}
            continue
        mine, about[pair.name] = _pair_run(study, ready, root, told, clock)
        files += mine
    if not files:
        raise SpecsimError(f"fidelity {study.name}: no pair could be served")
    _write(root / ABOUT, {"name": study.name, "description": study.description, **_machine(study), "pairs": about})
    return files


def _pair_run(
    study: Study, ready: Ready, root: Path, told: Told, clock: Callable[[], float]
) -> tuple[list[Path], dict[str, Any]]:
    pair = ready.pair
    other = root / CELLS / pair.profile_of
    place = other if other.with_suffix(".yaml").exists() else root / CELLS / pair.name
    first = next(iter(study.schedulers))
    words = study.words(pair, first)
    profile = given_profile(words)
    if profile is None:
        told(f"{pair.name}: profile")
        profile = measuring.profile_of(ready, study.grid, place, lambda line: told(f"{pair.name}: {line}"))
    scene = _scene(study, ready, place, profile)
    if pair.text == "model":
        told(f"{pair.name}: each text alone")
        scene = with_texts(scene, words)
    rate = service_rate(scene, words)
    told(f"{pair.name}: {first} serves {rate:.3g} requests/s where all come at once")
    shared = {"profile": measuring.checksum(profile), "words": scene.words[1:], "versions": versions()}
    measured = place.with_suffix(".samples.parquet")
    samples = read_samples(measured)[1] if measured.exists() else []
    cells, files = study.cells(pair), list[Path]()
    for number, cell in enumerate(cells, start=1):
        run_words = [*study.words(pair, cell.scheduler), f"rps={cell.load * rate!r}"]
        file = place_of(root, cell, {**shared, "run": run_words})
        files.append(file)
        if file.exists():
            told("", 1)
            continue
        started = clock()
        pace = measuring.pace(ready, study.grid, samples) if samples and cell.side != SIMULATED else math.nan
        outcome = _outcome(scene, cell, run_words, pace)
        store(file if "error" not in outcome.numbers else file.with_suffix(".failed.parquet"), cell, outcome)
        said = outcome.numbers.get("error", "done")
        told(f"{number} of {len(cells)}: {cell.label}: {said}, {clock() - started:.1f} s", 1)
    return [each if each.exists() else each.with_suffix(".failed.parquet") for each in files], {
        "text": pair.text,
        "rate": rate,
        "held_out": _held_out(profile),
        "target": ready.models.target.shape.name,
        "drafter": _drafter(ready),
    }


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


def _scene(study: Study, ready: Ready, place: Path, profile: Path) -> Scene:
    """Return the scene of a pair; its lookup is timed once, since each file of a cell names what it rests on."""
    words = [f"profile={profile}", "any_fit=true"]
    if isinstance(ready.models.draft, LookupMatch):
        kept = place.with_name(f"{ready.pair.name}.lookup.json")
        if not kept.exists():
            _write(kept, measuring.lookup_s(ready, study.grid))
        prices = json.loads(kept.read_text(encoding="utf-8"))
        words += ["drafter=lookup", *(f"drafter.{key}={value!r}" for key, value in prices.items())]
    return Scene(ready, tuple(words), study.cache_tokens, None, None)


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
        partial.write_text(json.dumps(told, indent=1, sort_keys=True) + "\n", encoding="utf-8")
