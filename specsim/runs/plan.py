"""A sweep before it runs: every point composed, checked, named, and given the folder that it is stored in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specsim.errors import SpecsimError
from specsim.results.checksums import damage
from specsim.results.run_folder import readable_name, run_folders
from specsim.runs.places import check_same_run, check_writable, settings_in, told_by_name
from specsim.runs.prepare import prepare
from specsim.settings.compose import compose
from specsim.settings.identity import identity, settings_of
from specsim.settings.idle import check_idle
from specsim.settings.points import Point

Config = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class PlannedRun:
    """One point of a sweep.

    Attributes
    ----------
    config : resolved and checked. label : the settings, as typed, in which the points of the sweep differ.
    folder : where the run is stored or will be, None where it stays in memory.
    """

    config: Config
    label: Mapping[str, str]
    folder: Path | None


def plan(chosen: Sequence[Point], ready: Sequence[Config], root: Path | None) -> list[PlannedRun]:
    """Return the runs of a sweep, from its points as typed and as composed by `configs`.

    A run that lies below `root` already keeps its folder, whatever its name. A new one is named by its label and by
    the hash of its settings, so that no other run takes its place.

    Raises
    ------
    SpecsimError
        When two points are one configuration, or a folder cannot be written or holds another run.
    """
    labels = labels_of(chosen)
    keys = [identity(settings_of(config)) for config in ready]
    _check_distinct(keys, labels)
    if root is None:
        return [PlannedRun(config, named, None) for config, named in zip(ready, labels, strict=True)]
    stored = _stored(root)
    places = [stored.get(key, root / f"{readable_name(named)}-{key}") for key, named in zip(keys, labels, strict=True)]
    new = [(config, place) for key, config, place in zip(keys, ready, places, strict=True) if key not in stored]
    for config, place in new:
        check_same_run(place, config)
    check_writable({place for _, place in new})
    return [PlannedRun(*each) for each in zip(ready, labels, places, strict=True)]


def configs(chosen: Sequence[Point]) -> list[dict[str, Any]]:
    """Compose and check every point, before any of them runs."""
    ready = [compose(point) for point in chosen]
    for config in ready:
        prepare(config)
    check_idle(chosen, ready)
    return ready


def labels_of(chosen: Sequence[Point]) -> list[dict[str, str]]:
    """Return for each point the settings in which the points of a sweep differ."""
    told = [key for key in chosen[0] if len({point[key] for point in chosen}) > 1]
    return [{key: point[key] for key in told} for point in chosen]


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
