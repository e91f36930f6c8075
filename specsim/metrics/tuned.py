"""The answer of `tune`: the configurations that were judged, what each attained, and what follows."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import nan
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Floats
from specsim.metrics.capacity import mean_interval
from specsim.metrics.found import ALL, WORST, Found, judged
from specsim.metrics.tuned_text import AS_GIVEN, answer

if TYPE_CHECKING:
    from pandas import DataFrame

PASSES, SPEEDUP = "passes", "speed-up"
"""The first words of conditions under which passes take longer or less long, and drafts bring less or more."""
THROUGHPUT = "output_throughput"
"""The measure that is no share of the requests: tokens/s."""
PLAIN = "vllm"
"""The scheduler that never drafts."""


class Score(NamedTuple):
    """The rank of a run: the greater the measure the better, of equal ones the shorter the time per token."""

    measure: float
    quickness: float


def score(metrics: Mapping[str, Any], of: str) -> Score:
    """Return the score of a run: `THROUGHPUT`, or an attainment as of `judged`."""
    quickness = -float(metrics["mean_tpot_ms"] or 0.0)
    measure = float(metrics[of]) if of == THROUGHPUT else judged(metrics["specsim"], of).share
    return Score(measure, quickness)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A configuration.

    Attributes
    ----------
    scheduler : its name or path. settings : values of keys below it. keys : the scheduler's file with these values.
    tuned : its mean measure on the part that tuned it.
    """

    scheduler: str
    settings: Mapping[str, Any]
    keys: Mapping[str, Any] = field(repr=False)
    tuned: float

    @property
    def name(self) -> str:
        """The scheduler with its settings."""
        said = ", ".join(f"{key.rpartition('.')[2]}={_shown(value)}" for key, value in self.settings.items())
        return f"{self.scheduler} ({said})" if said else self.scheduler


def _shown(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_shown(each)}" for key, each in value.items()) + "}"
    return "null" if value is None else str(value).replace("'", "")


class Export(NamedTuple):
    """A policy in the settings of a serving engine.

    Attributes
    ----------
    engine : its name. text : what to paste. files : by name, the content of files that it names.
    scheduler, settings : the scheduler of specsim that reads these settings as the engine does.
    of : the place of the candidate. measure : what was measured when it was run back, (seeds,).
    """

    engine: str
    text: str
    files: Mapping[str, str]
    scheduler: str
    settings: Mapping[str, Any]
    of: int = 0
    measure: Floats = np.empty(0)


def _named(name: str, pair: tuple[float, float]) -> dict[str, float]:
    half = "half_width" if name == "mean" else f"{name}_half_width"
    return {name: pair[0], half: pair[1]}


class Judgement(NamedTuple):
    """The measures of a candidate under some conditions, a value a seed, (seeds,), and each class's attainment.

    `overloaded` is the number of runs that are so, or near saturation: longer ones would attain less.
    """

    measure: Floats
    quickness: Floats
    classes: Mapping[str, Floats]
    overloaded: int


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of `specsim.tune`.

    Attributes
    ----------
    of : the measure. target : share of the requests that is to be kept. rate : requests/s; None: clients that wait.
    trials : by scheduler how many configurations were tried. candidates : those that were judged, the best first.
    judgements : by conditions, then by the place of a candidate, what was measured on the judging part.
    error : relative held-out error of the profile; None: it states none.
    found : highest rates of the candidates in the places `searched`. gpus : of one server.
    replicas : servers that keep the target at the rate; None where no number was found. carrier : the place of the
        candidate that they run.
    export : the first candidate that a serving engine can express, in its settings; None where none was asked for or
        can be. notes : lines worth reading.
    """

    of: str
    target: float
    rate: float | None
    trials: Mapping[str, int]
    candidates: Sequence[Candidate]
    judgements: Mapping[str, Mapping[int, Judgement]]
    error: float | None
    found: Found | None
    searched: Sequence[int]
    gpus: int
    replicas: int | None
    carrier: int
    export: Export | None
    notes: Sequence[str]

    @property
    def is_share(self) -> bool:
        """Whether the measure is a share of the requests."""
        return self.of != THROUGHPUT

    @property
    def whose(self) -> str:
        """The requests whose attainment is the measure, in words."""
        return {ALL: "all requests", WORST: "the worst class"}.get(self.of, self.of)

    @property
    def best(self) -> Candidate:
        """The configuration that does best on the judging part."""
        return self.candidates[0]

    @property
    def plain(self) -> int:
        """The place of the candidate that never drafts."""
        return next(place for place, each in enumerate(self.candidates) if each.scheduler == PLAIN)

    def measured(self, place: int, conditions: str = AS_GIVEN) -> tuple[float, float]:
        """Return the mean of a candidate over the seeds, and half the width of its 95% interval."""
        return mean_interval(self.judgements[conditions][place].measure)

    def lead(self, place: int, conditions: str = AS_GIVEN) -> tuple[float, float]:
        """Return by how much the best exceeds a candidate, and half the 95% interval of that, paired by seed."""
        of = self.judgements[conditions]
        return mean_interval(of[0].measure - of[place].measure) if place in of else (nan, nan)

    def decided(self, place: int, conditions: str = AS_GIVEN) -> bool:
        """Return whether the best surely exceeds a candidate."""
        lead, half_width = self.lead(place, conditions)
        return lead > half_width

    @property
    def table(self) -> DataFrame:
        """A row a candidate: settings, trials, the measure on either part, its lead, and what each class attains."""
        from pandas import DataFrame

        rows = []
        for place, each in enumerate(self.candidates):
            row = {"scheduler": each.scheduler, "settings": each.name, "trials": self.trials[each.scheduler]}
            row |= {"tuned": each.tuned, **_named("mean", self.measured(place))}
            row |= _named("behind", self.lead(place) if place else (nan, nan))
            of = self.judgements[AS_GIVEN][place].classes
            rows.append(row | {f"class {name}": float(values.mean()) for name, values in of.items()})
        return DataFrame(rows)

    @property
    def conditions(self) -> DataFrame:
        """A row for each change of conditions: what the best attains, and its lead over the runner-up and no drafts."""
        from pandas import DataFrame

        rows = []
        for said, of in self.judgements.items():
            row: dict[str, Any] = {"conditions": said, **_named("mean", self.measured(0, said))}
            for name, place in (("runner_up", 1), ("no_drafts", self.plain)):
                lead = self.lead(place, said) if place in of and place else (nan, nan)
                row |= _named(f"lead_over_{name}", lead)
            rows.append(row)
        return DataFrame(rows)

    def band(self) -> tuple[float, float]:
        """Return the least and the most that the best measures where the profile, or predicted speed-ups, are off."""
        means = [self.measured(0, said)[0] for said in self.judgements if said.startswith((PASSES, SPEEDUP))]
        return min(means), max(means)

    def no_drafts_from(self) -> float | None:
        """Return the lowest rate, of those at which both were tested, from which on plain decoding attains as much.

        None where the best never drafts, drafts attain more at the highest of these rates, or none was tested.
        """
        if self.found is None or self.plain == 0:
            return None
        best, plain = (each.tested for each in self.found.lines[:2])
        since = None
        for rate in sorted(set(best) & set(plain), reverse=True):
            if np.mean(plain[rate]) < np.mean(best[rate]):
                break
            since = rate
        return since

    def __str__(self) -> str:
        """Return the answer as `specsim tune` prints it."""
        return "\n".join(answer(self))

    def __repr__(self) -> str:
        mean, half = self.measured(0)
        return f"<Tuned: {self.best.name}: {self.of} {mean:.4g} \u00b1 {half:.2g}>"

    def drafts_cost(self) -> Iterator[str]:
        """Yield the conditions under which the best, which drafts, attains no more than plain decoding."""
        if self.plain:
            yield from (said for said in self.judgements if self.lead(self.plain, said)[0] <= 0)
