"""The highest rate that keeps a target attainment, found by sweeps that close in on it."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.results.capacity import Asked, Capacity, capacity, next_rate
from specsim.results.failure import Failure
from specsim.results.scan import AnyRun
from specsim.results.sweeps import Sweep
from specsim.runs.plan import checked, plan
from specsim.runs.sweep import run_all
from specsim.settings.configured import Configured, labels_of
from specsim.settings.identity import identity, settings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

RATE, SEED = "rps", "seed"
WORST, ALL = "worst", "all"
Key = tuple[str, ...]
At = Callable[[float], Sequence[Configured]]
"""Returns the points of a rate: every line's, with every seed."""
Say = Callable[[str], None]


@dataclass(slots=True)
class Line:
    """One of the systems that are compared.

    Attributes
    ----------
    label : the settings in which it differs from the others, or its scheduler. gpus : of all its replicas.
    tested : by rate in requests/s, the attained share of each seed.
    load : by rate, the block ``load`` of each seed's metrics; what failed has none.
    errors : of failed runs.
    """

    label: Mapping[str, str]
    gpus: int = 1
    tested: dict[float, list[float]] = field(default_factory=dict)
    load: dict[float, list[Mapping[str, Any]]] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)

    @property
    def name(self) -> str:
        """The values in which it differs."""
        return ", ".join(self.label.values())


@dataclass(frozen=True, slots=True)
class Found:
    """What a search has found.

    Attributes
    ----------
    asked : the target, and the rates to look in. of : whose attainment: ``worst``, ``all`` or a class.
    lines : the systems. sweep : every run that was made.
    """

    asked: Asked
    of: str
    lines: Sequence[Line]
    sweep: Sweep

    def capacity(self, line: Line) -> Capacity:
        """Return what the tested rates of a line say."""
        return capacity(self.asked, line.tested)

    @property
    def whose(self) -> str:
        """Whose attainment it is, in words."""
        return {ALL: "all requests", WORST: "the worst class"}.get(self.of, f"class {self.of}")

    @property
    def table(self) -> DataFrame:
        """A row a line: the settings in which it differs, and the answer; rates in requests/s, NaN where there is none.

        ``keeps_rps`` is the highest tested rate up to which every tested rate keeps the target in the mean over seeds,
        ``misses_rps`` the lowest that does not. ``mean_rps`` and ``half_width_rps`` are of the rates at which the seeds
        fall below it, each on a line between tested rates, and of their 95% interval.
        """
        from pandas import DataFrame

        rows = []
        for line in self.lines:
            each = self.capacity(line)
            answer = {"keeps_rps": each.keeps, "misses_rps": each.misses, "mean_rps": each.mean}
            answer |= {"half_width_rps": each.half_width, "gpus": line.gpus, "seeds": len(each.by_seed)}
            rows.append({**line.label, "target": self.asked.target, "of": self.of, **answer})
        return DataFrame(rows).astype({"keeps_rps": float, "misses_rps": float})

    def notes(self) -> Iterator[str]:
        """Yield what the table does not show."""
        asked = self.asked
        for line in self.lines:
            each = self.capacity(line)
            if each.keeps is None:
                yield f"{line.name}: misses the target at {asked.first:g} requests/s, the lowest tested"
            if each.misses is None:
                yield f"{line.name}: keeps the target at {asked.last:g} requests/s, the highest tested"
            if each.again:
                again = ", ".join(f"{rate:g}" for rate in each.again)
                yield f"{line.name}: not monotonic: the target is met again at {again} requests/s"
            if each.keeps is not None:
                yield from _length(line, each.keeps)
        if any(len(self.capacity(line).by_seed) < 2 for line in self.lines):
            yield "no interval: one seed"

    def figure(self) -> Figure:
        """Return a figure of attainment against the rate.

        Raises
        ------
        SpecsimError
            When there are more lines than can be told apart.
        """
        from specsim.figures.capacity import attained_up_to

        whose = "Requests" if self.of == ALL else f"Requests of {self.whose}"
        lines = {line.name: (line.tested, self.capacity(line)) for line in self.lines}
        return attained_up_to(self.asked, f"{whose}\nthat meet their objectives (%)", lines)


def _length(line: Line, rate: float) -> Iterator[str]:
    """Yield how long runs at this rate would have to be, if they are too short or overloaded."""
    loads = line.load[rate]
    short = [load for load in loads if load["too_short"]]
    if short:
        needed = max(load["needed_requests"] or 0 for load in short)
        cure = f"; requests={needed} would do" if needed else ""
        yield f"{line.name}: too short to judge at {rate:g} requests/s, {len(short)} of {len(loads)} runs{cure}"
    elif any(load["overloaded"] for load in loads):
        yield f"{line.name}: overloaded at {rate:g} requests/s: a longer run would attain less"


def search(asked: Asked, of: str, at: At, root: Path | None, *, jobs: int = 1, say: Say = lambda _: None) -> Found:
    """Test rates until every line's answer is as narrow as was asked for.

    Every line meets the same requests and texts at each rate (common random numbers). What is stored below `root` is
    not run again, so that a search which was stopped goes on where it was.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given; when no run of a line can be made.
    """
    lines: dict[Key, Line] = {}
    runs: list[AnyRun] = []
    failures: list[Failure] = []
    wanted: dict[float, Sequence[Key]] = {asked.first: ()}
    while wanted:
        say(f"testing {', '.join(f'{rate:g}' for rate in wanted)} requests/s")
        points = [each for rate, who in wanted.items() for each in at(rate) if not who or _key(each) in who]
        for each, label in zip(points, labels_of([each.point for each in points]), strict=True):
            told = {key: value for key, value in label.items() if key not in (RATE, SEED)}
            told = told or {"scheduler": str(each.config["choices"]["scheduler"])}
            lines.setdefault(_key(each), Line(told, _gpus(each.config)))
            _check_whose(of, each.config)
        made = run_all(plan(checked(points, jobs=jobs), root, keep="summary"), root, jobs=jobs)
        ended = _in_order(points, made)
        for each, run in zip(points, ended, strict=True):
            _hear(lines[_key(each)], of, each.config, run)
        failures += made.failures
        runs += made
        wanted = {}
        for key, line in lines.items():
            rate = next_rate(asked, line.tested)
            if rate is not None:
                wanted[rate] = (*wanted.get(rate, ()), key)
    return Found(asked, of, list(lines.values()), Sweep(runs, failures=failures))


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
