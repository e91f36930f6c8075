"""A study run: each pair served and profiled in one sitting, by turns; a stored run is not run again."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from profiler.backend.served import LookupMatch
from profiler.fidelity.facts import key_of, pair_facts, profile_facts, settings_key
from profiler.fidelity.measuring import ProfileRounds, lookup_s, samples_file, slowdown
from profiler.fidelity.models import ModelCache, Ready
from profiler.fidelity.serving import Scene, outcome_of, predicted_anew, service_rate, with_texts
from profiler.fidelity.study import REAL, SIMULATED, Study, StudyCell, StudyPair, described
from profiler.fidelity.tables import ABOUT, CELLS, CellOutcome, place_of, read_outcome, store
from profiler.latency.hardware import machine_facts
from profiler.latency.points import ROLES
from profiler.latency.samples import read_samples
from profiler.models.loading import torch_device
from profiler.text import Notify, write
from specsim.acceptance.loading import Pair, same_model
from specsim.config.configured import from_words
from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import expanded
from specsim.files.yaml_file import is_path, read_yaml, shipped
from specsim.latency.profile import load_profile


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
    machine = {"threads": torch.get_num_threads(), **machine_facts(torch_device(study.device))}
    machine |= {name: getattr(study, name) for name in ("device", "dtype", "repeats")}
    facts = {**described(study), "command": command, **machine, "pairs": about}
    write(root / ABOUT, json.dumps(facts, indent=1) + "\n")
    return files


def _pair_run(
    study: Study, pair: StudyPair, cache: ModelCache, root: Path, notify: Notify
) -> tuple[list[Path], dict[str, Any]]:
    try:
        ready = cache.ready(pair, block_tokens(study, pair))
    except SpecsimError as error:
        notify(f"{pair.name}: left out: {error}")
        return [], {"left_out": str(error)}
    first = next(iter(study.schedulers))
    words = study.words(pair, first)
    profile, rounds, said = given_profile(words), None, None
    if profile is None:
        place = root / CELLS / f"{pair.name}-{key_of(profile_facts(study, ready))}"
        rounds = ProfileRounds(ready, study.grid, place, lambda line: notify(f"{pair.name}: {line}"))
        profile = rounds.first()
    else:
        said = _mismatch(profile, ready)
        notify(f"{pair.name}: {said}" if said else "")
    any_fit = ["any_fit=true"] if rounds else []
    scene = Scene(study, ready, profile, (*any_fit, *_lookup_words(study, ready, root)))
    if pair.text == "model":
        notify(f"{pair.name}: each text alone")
        scene = with_texts(scene, words)
    scene = replace(scene, rate=service_rate(scene, words))
    notify(f"{pair.name}: {first} serves {scene.rate:.3g} requests/s where all come at once")
    real = [each for each in study.cells(pair) if each.side == REAL]
    files = _cells_run(scene, real, rounds, root, notify)
    if rounds is not None:
        scene = replace(scene, truth=rounds.whole())
        _predict_anew(scene, zip(real, files, strict=True))
    rest = [each for each in study.cells(pair) if each.side != REAL]
    files += _cells_run(scene, rest, None, root, notify)
    draft = ready.models.draft
    if isinstance(draft, LookupMatch):
        drafter = f"prompt lookup of {draft.fewest} to {draft.most} tokens"
    else:
        drafter = draft.shape.name
    return files, {
        "text": pair.text,
        "rate": scene.rate,
        "mismatch": said,
        "held_out": _held_out(scene.truth or scene.profile),
        "samples": samples_file(scene.truth).name if scene.truth else None,
        "target": ready.models.target.shape.name,
        "drafter": drafter,
    }


def _cells_run(
    scene: Scene, cells: Sequence[StudyCell], rounds: ProfileRounds | None, root: Path, notify: Notify
) -> list[Path]:
    """Run the cells that are not there, and between them the rounds of the profile; return the files of all."""
    study, ready = scene.study, scene.ready
    facts = pair_facts(scene, scene.rests_on(study.words(ready.pair, next(iter(study.schedulers))))[0])
    samples = read_samples(samples_file(scene.profile))[1] if rounds or scene.truth else []
    files = list[Path]()
    for number, cell in enumerate(cells, start=1):
        words = scene.words_of(cell)
        settings = [settings_key(each) for each in scene.rests_on(words)]
        file = place_of(root, cell, key_of({"cell": cell._asdict(), "facts": facts, "settings": settings}))
        failed = file.with_name(f"{file.stem}.failed.parquet")
        if file.exists():
            notify("", 1)
        else:
            started = time.monotonic()
            slower = slowdown(ready, study.grid, samples) if samples and cell.side != SIMULATED else math.nan
            outcome = _outcome(scene, cell, words, slower)
            store(file if "error" not in outcome.numbers else failed, cell, outcome)
            told = outcome.numbers
            said = f"{told.get('error', 'done')}, {time.monotonic() - started:.1f} s"
            said += f"; {told['extrapolated']}" if "extrapolated" in told else ""
            notify(f"{number} of {len(cells)}: {cell.label}: {said}", 1)
            if rounds is not None:
                rounds.go_on(number / len(cells))
        files.append(file if file.exists() else failed)
    return files


def _predict_anew(scene: Scene, ran: Iterable[tuple[StudyCell, Path]]) -> None:
    """Have the profile of the rounds between them predict the passes of real runs, in the files of all that ended."""
    for cell, file in ran:
        outcome = read_outcome(file)
        if "error" in outcome.numbers:
            continue
        anew = predicted_anew(scene, scene.words_of(cell), outcome)
        if anew.passes != outcome.passes:
            store(file, cell, anew)


def block_tokens(study: Study, pair: StudyPair) -> set[int]:
    """Return the sizes of the blocks of a pair's runs, in tokens."""
    return {from_words(study.words(pair, each), sweep=False)[0].settings.block_tokens for each in study.schedulers}


def given_profile(words: list[str]) -> Path | None:
    """Return the file of the profile that settings name; None where it is to be measured."""
    names = [word.partition("=")[2] for word in words if word.lstrip("+").startswith("profile=")]
    if not names:
        return None
    return expanded(names[0]) if is_path(names[0]) else shipped("conf") / "profile" / f"{names[0]}.yaml"


def _mismatch(profile: Path, ready: Ready) -> str | None:
    """Return a line where a profile that was given is of other models than the pair."""
    of, models = load_profile(profile), ready.models
    draft = of.draft.name if isinstance(models.draft, LookupMatch) else models.draft.shape.name
    runs = Pair(models.target.shape.name, draft)
    if same_model(of.target.name, runs.target) and same_model(of.draft.name, runs.draft):
        return None
    return f"MISMATCHED PAIR: {profile} is of {Pair(of.target.name, of.draft.name)}, the real passes are of {runs}"


def _outcome(scene: Scene, cell: StudyCell, words: list[str], slower: float) -> CellOutcome:
    """Run a cell, noting how much slower the machine was just before; a failed cell leaves its error alone."""
    try:
        outcome = outcome_of(scene, cell, words)
        return outcome._replace(numbers={**outcome.numbers, "pace": slower})
    except (SpecsimError, RuntimeError, MemoryError) as error:
        return CellOutcome([], {"error": first_line(error) or type(error).__name__}, {})


def _lookup_words(study: Study, ready: Ready, root: Path) -> list[str]:
    """Return the settings of a pair's lookup, which is timed once; none of a draft model."""
    if not isinstance(ready.models.draft, LookupMatch):
        return []
    facts = {**profile_facts(study, ready), "lookup_ngrams": ready.pair.lookup_ngrams}
    kept = root / CELLS / f"{ready.pair.name}-{key_of(facts)}.lookup.json"
    if not kept.exists():
        write(kept, json.dumps(lookup_s(ready, study.grid), indent=1) + "\n")
    prices = json.loads(kept.read_text(encoding="utf-8"))
    return ["drafter=lookup", *(f"drafter.{key}={value!r}" for key, value in prices.items())]


def _held_out(profile: Path) -> dict[str, float]:
    """Return the median held-out error of each kind of pass of a profile."""
    mapping = read_yaml(profile)
    errors = {role: mapping[role].get("held_out_error", {}).get(mapping["form"], {}) for role in ROLES}
    return {f"{role} {kind}": each["median"] for role, held in errors.items() for kind, each in held.items()}
