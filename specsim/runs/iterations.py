"""Iterations of a run, seen from inside: the run is made again, and its scheduler listened to."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import shown
from specsim.results.iteration import Iteration
from specsim.results.stand_in import STAND_IN
from specsim.runs.prepare import prepare
from specsim.runs.run import Run
from specsim.runs.watched import Kept, Watched
from specsim.simulation import run as run_simulation
from specsim.store.runs import StoredRun


def iterations(run: Run | StoredRun, numbers: Iterable[int], *, plugins: Sequence[str] = ()) -> list[Iteration]:
    """Return some iterations of a run, by number from 0, in that order; docs/python.md shows one.

    The run is made again in memory, with the same settings, and its scheduler listened to. Nothing is written.

    Parameters
    ----------
    plugins : those of a stored run, by the names that it was given: its files admit no code.

    Raises
    ------
    SpecsimError
        When a number is none of the run's, an object was handed in, or the run comes out differently: specsim, a
        plug-in or a file that it read has changed since.

    Examples
    --------
    >>> run = simulate("adaserve", "poisson", requests=20)
    >>> (step,) = iterations(run, [100])
    >>> bool(step.nodes["accepted"].sum() == step.requests["accepted_tokens"].sum())
    True
    """
    wanted = _checked(numbers, int(run.metrics["specsim"]["iterations"]))
    config = dict(run.config)
    for group, values in config.items():
        if isinstance(values, dict) and "object" in values:
            raise SpecsimError(f"iterations: {group} was given as an object; expected a run by names, to make it again")
    if isinstance(run, StoredRun):
        _check_admitted(run, plugins)
    made = prepare(config).simulation
    kept = Kept(wanted, made.requests.class_names)
    watched = replace(made, scheduler=lambda: Watched(made.scheduler(), kept), keep_passes=False, fast_forward=False)
    record = run_simulation(replace(watched, step_limit_s=None))
    if not np.array_equal(record.progress.finish_s, run.requests["finish_s"], equal_nan=True):
        raise SpecsimError(
            "iterations: the run comes out differently: specsim, a plug-in, the trace or the recording has changed; "
            "expected a run of today: make it again"
        )
    said = run.metrics["specsim"].get(STAND_IN)
    return [replace(kept.found[number], stand_in=said) for number in wanted]


def _check_admitted(run: StoredRun, plugins: Sequence[str]) -> None:
    """Refuse to load code for no other reason than that the files of a run, maybe somebody else's, name it."""
    held = run.config.get("plugins", [])
    named = [held] if isinstance(held, str) else held
    admitted = [plugins] if isinstance(plugins, str) else list(plugins)
    if not isinstance(named, list) or not all(each in admitted for each in named):
        raise SpecsimError(f"iterations: {run.folder}: its plugins are {shown(named)}; expected them in plugins=, too")


def _checked(numbers: Iterable[int], there: int) -> list[int]:
    """Return the numbers as a list; refuse what is no iteration of a run that has so many."""
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise SpecsimError(f"iterations: {numbers!r:.60}: expected a list of numbers")
    wanted = list(numbers)
    if not there:
        raise SpecsimError("iterations: no request was served: the run has none")
    for each in wanted:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not 0 <= each < there:
            raise SpecsimError(f"iterations: {each!r:.60}: the run has those from 0 to {there - 1}")
    return [int(each) for each in wanted]
