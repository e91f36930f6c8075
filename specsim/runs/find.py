"""The highest rate that keeps a target attainment, found by sweeps that close in on it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError, nearest
from specsim.results.capacity import Asked, next_rate
from specsim.results.failure import Failure
from specsim.results.found import ALL, WORST, Found, Line
from specsim.results.scan import AnyRun
from specsim.results.sweeps import Sweep
from specsim.runs.plan import checked, plan
from specsim.runs.resume import made_again
from specsim.runs.sweep import run_all
from specsim.settings.configured import Configured, labels_of
from specsim.settings.identity import flat, identity, settings_of

RATE, SEED = "rps", "seed"
AGAIN = re.compile(r"(\d+) runs? made again: (.*)")
Key = tuple[str, ...]
At = Callable[[float], Sequence[Configured]]
"""Returns the points of a rate: every line's, with every seed."""
Say = Callable[[str], None]


def search(
    asked: Asked,
    of: str,
    at: At,
    root: Path | None,
    *,
    jobs: int = 1,
    say: Say = lambda _: None,
    progress: bool = False,
) -> Found:
    """Test rates until every line's answer is as narrow as was asked for.

    Every line meets the same requests and texts at each rate (common random numbers). What is stored below `root` is
    not run again, so that a search which was stopped goes on where it was. `say` hears which rates are tested next;
    `progress` tells how many of their runs have ended, as in a sweep.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given; when no run of a line can be made.
    """
    lines: dict[Key, Line] = {}
    runs: list[AnyRun] = []
    failures: list[Failure] = []
    notes: list[str] = []
    wanted: dict[float, Sequence[Key]] = {asked.first: ()}
    searched = ""
    while wanted:
        points = [each for rate, who in wanted.items() for each in at(rate) if not who or _key(each) in who]
        _add_lines(lines, points, of)
        searched = searched or _identity(asked, of, points)
        planned = plan(checked(points, jobs=jobs), root, keep="summary")
        say(f"testing {', '.join(f'{rate:g}' for rate in wanted)} requests/s")
        made = run_all(planned, root, progress=progress, jobs=jobs)
        for each, run in zip(points, _in_order(points, made), strict=True):
            _hear(lines[_key(each)], of, each.config, run)
        failures += made.failures
        runs += made
        notes += made.whole_notes
        wanted = _next_rates(asked, lines)
    return Found(asked, of, list(lines.values()), Sweep(runs, _together(notes), failures=failures), searched)


def _add_lines(lines: dict[Key, Line], points: Sequence[Configured], of: str) -> None:
    """Add the lines that no point before has shown."""
    for each, label in zip(points, labels_of([each.point for each in points]), strict=True):
        told = {key: value for key, value in label.items() if key not in (RATE, SEED)}
        told = told or {"scheduler": str(each.config["choices"]["scheduler"])}
        lines.setdefault(_key(each), Line(told, _gpus(each.config)))
        _check_whose(of, each.config)


def _next_rates(asked: Asked, lines: Mapping[Key, Line]) -> dict[float, Sequence[Key]]:
    """Return which lines are to be tested next, by rate."""
    wanted: dict[float, Sequence[Key]] = {}
    for key, line in lines.items():
        rate = next_rate(asked, line.tested)
        if rate is not None:
            wanted[rate] = (*wanted.get(rate, ()), key)
    return wanted


def _together(notes: Iterable[str]) -> list[str]:
    """Return the notes of several sweeps, each once; those on runs that were made again with their sum."""
    others, again = dict[str, None](), Counter[str]()
    for note in notes:
        count = AGAIN.fullmatch(note)
        if count is None:
            others[note] = None
        else:
            again[count[2]] += int(count[1])
    return [*others, *made_again(again.elements())]


def _identity(asked: Asked, of: str, points: Sequence[Configured]) -> str:
    """Return what two searches share that ask the same of the same points, in whatever order."""
    runs = sorted(identity(settings_of(each.config)) for each in points)
    return identity(flat({**asked._asdict(), "of": of, "runs": runs}))


def _key(each: Configured) -> Key:
    """Return what tells a line from others: all its settings but the rate and the seed."""
    return tuple(f"{key}={value}" for key, value in each.point.items() if key not in (RATE, SEED))


def _gpus(config: Mapping[str, Any]) -> int:
    profiles = config.get("profiles") or {}
    names = config.get("replica_profiles") or [None] * int(config["replicas"])
    return sum(int(profiles.get(name, config["profile"])["gpus"]) for name in names)


def _in_order(points: Sequence[Configured], made: Sweep) -> list[AnyRun | Failure]:
    """Return what came of each point."""
    failed = {identity(settings_of(each.config)): each for each in made.failures}
    runs = iter(made)
    return [failed.get(identity(settings_of(each.config))) or next(runs) for each in points]


def _hear(line: Line, of: str, config: Mapping[str, Any], run: AnyRun | Failure) -> None:
    """Note what a run attained; one that failed attained nothing."""
    rate = float(config[RATE])
    shares, load = line.tested.setdefault(rate, []), line.load.setdefault(rate, [])
    if isinstance(run, Failure):
        line.errors.append(f"{rate:g} requests/s, seed {config[SEED]}: {run.error}")
        shares.append(0.0)
        return
    metrics = run.metrics["specsim"]
    shares.append(_share(metrics, of))
    load.append(metrics["load"])


def _check_whose(of: str, config: Mapping[str, Any]) -> None:
    known = [WORST, ALL, *config["slo"]["classes"]]
    if of not in known:
        raise SpecsimError(f"of={of}: no class of the requests{nearest(of, known)}")


def _share(metrics: Mapping[str, Any], of: str) -> float:
    """Return the share that was attained by all, by the worst class, or by a class."""
    if of == ALL:
        return float(metrics["slo_attainment"])
    if of == WORST:
        return float(metrics["worst_class_attainment"])
    if of not in metrics["classes"]:
        raise SpecsimError(f"of={of}: no request of it arrived; expected one of {', '.join(metrics['classes'])}")
    return float(metrics["classes"][of]["slo_attainment"])
