"""The profile of a pair, measured in rounds: the first before its runs, the others between them."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

from profiler.backend.served import LookupMatch
from profiler.fidelity.measuring import ROUNDS, runs, sample_facts
from profiler.fidelity.models import Ready
from profiler.latency.grids import Grid
from profiler.latency.measure import sample_of
from profiler.latency.points import ROLES, Point, interleaved
from profiler.latency.profile_file import HEADING, profile_mapping
from profiler.latency.samples import WRITE_EVERY_S, SampleFile, read_samples
from profiler.latency.timers import Timing
from profiler.text import write, yaml_text

FIRST = "first"
Turn = tuple[int, str, Point]


class Rounds:
    """Times all points of a grid in each of some rounds, so that a disturbance of the machine meets few runs of any.

    The first round makes a first profile, by which schedulers decide. The seconds of passes are those of the
    later ones, which lie between the runs that they predict. Every timing is kept, share by share.

    Parameters
    ----------
    place : where the profiles are kept, a name without suffix.
    told : hears of each round.
    """

    def __init__(self, ready: Ready, grid: Grid, place: Path, told: Callable[[str], None]) -> None:
        self._ready, self._grid, self._place, self._told = ready, grid, place, told
        self._kept = _named(place, "runs.json")
        self._seconds: dict[str, list[float]] = (
            json.loads(self._kept.read_text(encoding="utf-8")) if self._kept.exists() else {}
        )
        points = list(interleaved({role: grid.passes(role) for role in ROLES}))
        # Behind a lookup the target stands in the place of a draft model, whose price no run pays.
        lasting = points if not isinstance(ready.models.draft, LookupMatch) else [p for p in points if p[0] == "target"]
        self._first: list[Turn] = [(0, *each) for each in points]
        self._later: list[Turn] = [(turn, *each) for turn in range(1, ROUNDS) for each in lasting]

    def first(self) -> Path:
        """Return the profile of the first round."""
        return self._profile(f"{self._place.name}.{FIRST}", self._first, "its first round")

    def go_on(self, share: float) -> None:
        """Time what is missing of the first `share` of the later rounds, 0 to 1."""
        self._time(self._later[: round(share * len(self._later))])

    def whole(self) -> Path:
        """Return the profile of the rounds between the runs, and of the first where there are no others."""
        again = {each[1:] for each in self._later}
        once = [each for each in self._first if each[1:] not in again]
        return self._profile(self._place.name, once + self._later, "the rounds between the runs")

    def _profile(self, name: str, turns: list[Turn], said: str) -> Path:
        """Return the profile's file of that name, measured and fitted unless it is there."""
        file = self._place.with_name(f"{name}.yaml")
        if file.exists():
            return file
        self._told(f"profile: {said}, {len(turns)} passes")
        self._time(turns)
        seconds = defaultdict[tuple[str, Point], list[float]](list)
        for turn, role, point in turns:
            seconds[role, point] += self._seconds[_key(turn, role, point)]
        samples = samples_file(file)
        samples.unlink(missing_ok=True)
        kept = SampleFile(samples, self._facts())
        timings = {key: Timing.of(each) for key, each in seconds.items()}
        kept.samples += [sample_of(*key, "eager", "ok", each) for key, each in timings.items()]
        kept.write()
        mapping, _ = profile_mapping(self._ready.pair.name, [kept.path], "mean")
        # This profile holds the host's time: no engine adds any.
        mapping.pop("suggests", None)
        mapping["assumptions"] = kept.facts["assumptions"]
        write(file, yaml_text(mapping, HEADING.replace("latency", "fidelity")))
        return file

    def _facts(self) -> dict[str, Any]:
        """Return what the samples share; the ceilings of the machine are found once."""
        first = samples_file(self._place.with_name(f"{self._place.name}.{FIRST}.yaml"))
        return read_samples(first)[0] if first.exists() else sample_facts(self._ready, self._grid)

    def _time(self, turns: list[Turn]) -> None:
        """Time what is missing of some turns, and keep it."""
        written_s = time.monotonic()
        missing = [each for each in turns if _key(*each) not in self._seconds]
        for place, (turn, role, point) in enumerate(missing, start=1):
            self._seconds[_key(turn, role, point)] = runs(self._ready, role, point, self._grid, turn)
            if place == len(missing) or time.monotonic() - written_s > WRITE_EVERY_S:
                self._write()
                written_s = time.monotonic()

    def _write(self) -> None:
        write(self._kept, json.dumps(self._seconds) + "\n")


def samples_file(profile: Path) -> Path:
    """Return the file of the points behind a measured profile."""
    return _named(profile.with_suffix(""), "samples.parquet")


def _named(place: Path, suffix: str) -> Path:
    """Return the file of that suffix behind a name that may hold dots."""
    return place.with_name(f"{place.name}.{suffix}")


def _key(turn: int, role: str, point: Point) -> str:
    return f"{turn} {role} {point.key}"
