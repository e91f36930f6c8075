"""A sweep before it runs: every point prepared, named, and given the folder that it is stored in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from specsim.errors import SpecsimError
from specsim.results.checksums import damage
from specsim.results.run_folder import readable_name, run_folders
from specsim.runs.handed import NOTHING, Handed
from specsim.runs.idle import check_idle
from specsim.runs.places import check_same_run, check_writable, settings_in, told_by_name
from specsim.runs.prepare import Experiment, prepare
from specsim.settings.configured import Configured, labels_of
from specsim.settings.identity import identity, settings_of
from specsim.settings.points import Point

Config = Mapping[str, Any]
KEPT_BYTES = 1 << 28
"""What the prepared points of a sweep may hold together; those beyond are prepared again before they run."""
REQUEST_BYTES = 200


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One point of a sweep.

    Attributes
    ----------
    config : resolved and checked. label : the settings, as typed, in which the points of the sweep differ.
    folder : where the run is stored or will be, None where it stays in memory.
    experiment : as it was prepared to check the point, None where that would hold too much memory.
    """

    config: Config
    label: Mapping[str, str]
    folder: Path | None
    experiment: Experiment | None


class Checked(NamedTuple):
    """A point, its configuration, and what was prepared of it: None beyond `KEPT_BYTES`."""

    point: Point
    config: dict[str, Any]
    experiment: Experiment | None


def plan(points: Sequence[Checked], root: Path | None) -> list[PlannedRun]:
    """Return the runs of a sweep, from its `checked` points.

    A run that lies below `root` already keeps its folder, whatever its name. A new one is named by its label and by
    the hash of its settings, so that no other run takes its place.

    Raises
    ------
    SpecsimError
        When two points are one configuration, or a folder cannot be written or holds another run.
    """
    labels = labels_of([each.point for each in points])
    ready, prepared = [each.config for each in points], [each.experiment for each in points]
    keys = [identity(settings_of(config)) for config in ready]
    _check_distinct(keys, labels)
    if root is None:
        return [PlannedRun(*each) for each in zip(ready, labels, [None] * len(ready), prepared, strict=True)]
    stored = _stored(root)
    places = [stored.get(key, root / f"{readable_name(named)}-{key}") for key, named in zip(keys, labels, strict=True)]
    new = [(config, place) for key, config, place in zip(keys, ready, places, strict=True) if key not in stored]
    for config, place in new:
        check_same_run(place, config)
    check_writable({place for _, place in new})
    return [PlannedRun(*each) for each in zip(ready, labels, places, prepared, strict=True)]


def checked(chosen: Sequence[Configured], handed: Handed = NOTHING) -> list[Checked]:
    """Prepare every point before any of them runs, with the objects that were `handed` in.

    Raises
    ------
    SpecsimError
        One line for the first point that is wrong.
    """
    points, held_bytes = [], 0
    for point, config in chosen:
        experiment = prepare(config, handed)
        held_bytes += _bytes_of(experiment)
        points.append(Checked(point, config, experiment if held_bytes <= KEPT_BYTES else None))
    check_idle(chosen)
    return points


def _bytes_of(experiment: Experiment) -> int:
    """Return what an experiment holds for itself, roughly; the runs of a sweep share a tape's rows."""
    simulation = experiment.simulation
    return REQUEST_BYTES * len(simulation.requests) + int(simulation.world.tape.likeliest.nbytes)


def _stored(root: Path) -> dict[str, Path]:
    """Return the folders of runs by the hash of their settings; one whose settings are damaged is found by its name."""
    found = {}
    for place in reversed(run_folders(root)):
        with suppress(SpecsimError):
            key = identity(settings_in(place))
            if told_by_name(place) in (None, key) or damage(place) is None:
                found[key] = place
    return found


def _check_distinct(keys: Sequence[str], labels: Sequence[Mapping[str, str]]) -> None:
    first: dict[str, Mapping[str, str]] = {}
    for key, named in zip(keys, labels, strict=True):
        if key in first:
            one, other = (_words(each) for each in (first[key], named))
            raise SpecsimError(f"sweep: {one} and {other} are one configuration; expected each of them once")
        first[key] = named


def _words(named: Mapping[str, str]) -> str:
    return ",".join(f"{key}={value}" for key, value in named.items())
