"""A study run: each pair served and profiled in one sitting, by turns; what is stored is not run again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from profiler.backend.served import LookupMatch
from profiler.fidelity.facts import key_of, lookup_facts, pair_facts, profile_facts, settings_key
from profiler.fidelity.measuring import ProfileRounds, lookup_s, samples_file, slowdown
from profiler.fidelity.models import ModelCache, Ready
from profiler.fidelity.serving import Scene, outcome_of, predicted_anew, service_rate, with_texts
from profiler.fidelity.study import REAL, SIMULATED, WALL, Cell, Pair, Study, described
from profiler.fidelity.tables import ABOUT, CELLS, Outcome, place_of, read_outcome, store
from profiler.latency.points import ROLES
from profiler.latency.samples import read_samples
from profiler.models.loading import versions
from profiler.text import write
from specsim.config.configured import from_words
from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import is_path, read_yaml, shipped

Notify = Callable[..., None]
"""Shows progress: a line, empty for none, and how many cells have ended."""


def run_study(study: Study, root: Path, notify: Notify, *, command: str) -> list[Path]:
    """Run what is missing of a study in the folder `root`; return the files of its cells.

    `command` is what was typed, for the report. A pair whose models cannot be had is left out, with a line. A cell that
    fails holds its error, and is run again the next time.
    """
    if study.threads:
        torch.set_num_threads(study.threads)
    cache, about, files = ModelCache(study), dict[str, Any](), list[Path]()
    for pair in study.pairs:
        # The cache alone may hold the models when the next pair comes.
        mine, about[pair.name] = _pair_run(study, pair, cache, root, notify)
        files += mine
    if not files:
        raise SpecsimError(f"fidelity {study.name}: no pair could be served")
    facts = {**described(study), "command": command, **_machine(study), "pairs": about}
    write(root / ABOUT, json.dumps(facts, indent=1) + "\n")
    return files


def _pair_run(
    study: Study, pair: Pair, cache: ModelCache, root: Path, notify: Notify
) -> tuple[list[Path], dict[str, Any]]:
    blocks = block_tokens(study, pair)
    try:
        ready = cache.ready(pair, blocks)
    except SpecsimError as error:
        notify(f"{pair.name}: left out: {error}")
        return [], {"left_out": str(error)}
    first = next(iter(study.schedulers))
    words = study.words(pair, first)
    rounds = _rounds(study, ready, root, words, notify)
    scene = _scene(study, ready, root, rounds.first() if rounds else given_profile(words))
    if pair.text == "model":
        notify(f"{pair.name}: each text alone")
        scene = with_texts(scene, words)
    rate = service_rate(scene, words)
    notify(f"{pair.name}: {first} serves {rate:.3g} requests/s where all come at once")
    real = [each for each in study.cells(pair) if each.side == REAL]
    files = _cells_run(study, scene, real, rate, rounds, root, notify)
    if rounds is not None:
        scene = replace(scene, truth=rounds.whole())
        _predict_anew(study, scene, rate, zip(real, files, strict=True))
    rest = [each for each in study.cells(pair) if each.side != REAL]
    files += _cells_run(study, scene, rest, rate, None, root, notify)
    return files, {
        "text": pair.text,
        "rate": rate,
        "held_out": _held_out(scene.truth or scene.profile),
        "samples": samples_file(scene.truth).name if scene.truth else None,
        "target": ready.models.target.shape.name,
        "drafter": _drafter(ready),
    }


def _cells_run(
    study: Study,
    scene: Scene,
    cells: Sequence[Cell],
    rate: float,
    rounds: ProfileRounds | None,
    root: Path,
    notify: Notify,
) -> list[Path]:
    """Run the cells that are not there, and between them the rounds of the profile; return the files of all."""
    ready, pair = scene.ready, scene.ready.pair
    first = scene.merged(study.words(pair, next(iter(study.schedulers))))
    facts = pair_facts(study, ready, first, scene.prompts, scene.texts)
    samples = read_samples(samples_file(scene.profile))[1] if rounds or scene.truth else []
    files = list[Path]()
    for number, cell in enumerate(cells, start=1):
        words = _words(study, cell, pair, rate)
        settings = [settings_key(each) for each in scene.rests_on(words)]
        file = place_of(root, cell, key_of({"cell": cell._asdict(), "facts": facts, "settings": settings}))
        failed = file.with_name(f"{file.stem}.failed.parquet")
        if not file.exists():
            started = time.monotonic()
            slower = slowdown(ready, study.grid, samples) if samples and cell.side != SIMULATED else math.nan
            outcome = _outcome(scene, cell, words, slower)
            store(file if "error" not in outcome.numbers else failed, cell, outcome)
            said = outcome.numbers.get("error", "done")
            notify(f"{number} of {len(cells)}: {cell.label}: {said}, {time.monotonic() - started:.1f} s", 1)
            if rounds is not None:
                rounds.go_on(number / len(cells))
        else:
            notify("", 1)
        files.append(file if file.exists() else failed)
    return files


def _words(study: Study, cell: Cell, pair: Pair, rate: float) -> list[str]:
    return [*study.words(pair, cell.scheduler), f"rps={cell.load * rate!r}"]


def _predict_anew(study: Study, scene: Scene, rate: float, ran: Iterable[tuple[Cell, Path]]) -> None:
    """Have the profile of the rounds between them predict the passes of real runs, in the files of all that ended."""
    for cell, file in ran:
        outcome = read_outcome(file)
        if "error" in outcome.numbers:
            continue
        anew = predicted_anew(scene, _words(study, cell, scene.ready.pair, rate), outcome)
        if anew.passes != outcome.passes:
            store(file, cell, anew)


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


def _outcome(scene: Scene, cell: Cell, words: list[str], slower: float) -> Outcome:
    """Run a cell, noting how much slower the machine was just before; one that fails leaves its error alone."""
    try:
        outcome = outcome_of(scene, cell, words)
        return outcome._replace(numbers={**outcome.numbers, "pace": slower})
    except (SpecsimError, RuntimeError, MemoryError) as error:
        return Outcome([], {"error": first_line(error) or type(error).__name__}, {})


def _rounds(study: Study, ready: Ready, root: Path, words: list[str], notify: Notify) -> ProfileRounds | None:
    """Return what measures the profile of a pair; None where settings name one."""
    if given_profile(words) is not None:
        return None
    pair = ready.pair
    place = root / CELLS / f"{pair.name}-{key_of(profile_facts(study, ready))}"
    return ProfileRounds(ready, study.grid, place, lambda line: notify(f"{pair.name}: {line}"))


def _scene(study: Study, ready: Ready, root: Path, profile: Path | None) -> Scene:
    """Return the scene of a pair; its lookup is timed once."""
    assert profile is not None, "a profile that is not given is measured"
    further = ["any_fit=true"]
    if isinstance(ready.models.draft, LookupMatch):
        kept = root / CELLS / f"{ready.pair.name}-{key_of(lookup_facts(study, ready))}.lookup.json"
        if not kept.exists():
            write(kept, json.dumps(lookup_s(ready, study.grid), indent=1) + "\n")
        prices = json.loads(kept.read_text(encoding="utf-8"))
        further += ["drafter=lookup", *(f"drafter.{key}={value!r}" for key, value in prices.items())]
    wall = study.clock == WALL
    return Scene(ready, profile, tuple(further), study.cache_tokens, None, None, wall=wall)


def _drafter(ready: Ready) -> str:
    draft = ready.models.draft
    if isinstance(draft, LookupMatch):
        return f"prompt lookup of {draft.fewest} to {draft.most} tokens"
    return draft.shape.name


def _held_out(profile: Path) -> dict[str, float]:
    """Return the median held-out error of each kind of pass of a profile."""
    mapping = read_yaml(profile)
    errors = {role: mapping[role].get("held_out_error", {}).get(mapping["form"], {}) for role in ROLES}
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
