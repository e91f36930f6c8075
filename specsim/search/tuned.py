"""The answer of `tune`: the configurations that were judged and what each attained, as tables, text and files."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Floats
from specsim.files.staging import in_one_step, remove
from specsim.files.yaml_file import yaml_text
from specsim.metrics.capacity import LEAST_SEEDS, mean_interval
from specsim.metrics.requests import NOTED
from specsim.metrics.tables import WIDTH, aligned, header, in_digits, number, places
from specsim.search.found import ALL, FOOTNOTES, FULL, TOO_SHORT, WORST, Found, judged

if TYPE_CHECKING:
    from pandas import DataFrame

AS_GIVEN = "as given"
"""The conditions that the settings describe."""
SPEEDUP_OFF = 0.038
"""By how much predicted speed-ups are off, the median over the measured ones of docs/speedups.md."""
COMPOSED_OFF = {"dense": 0.044, "MoE": 0.075}
"""By how much TPOT of composed profiles is off, the median over the unseen served points of docs/composing.md."""
COMPOSED, HELD_OUT = "error of composed profiles against servers, docs/composing.md", "held-out error of the profile"
"""The sources of `Tuned.error`, in words."""
PASSES, SPEEDUP = "passes", "speed-up"
"""The first words of conditions under which passes take longer or less long, and drafts bring less or more."""
THROUGHPUT, TOKENS_PER_S = "output_throughput", "output tokens/s"
"""The measure that is no share of the requests: tokens/s."""
PLAIN = "vllm"
"""The scheduler that never drafts."""
RATE, LOAD, HIGHER = "rate", "load", "higher"
"""Words of the conditions under which there are more requests/s, or more clients."""
WIDE = 0.02
"""Half of an interval beyond which a lead that does not show is not level: of the requests, or the best's tokens/s."""


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
    tuned : its mean measure on the part that tuned it. word : which one it is, where its scheduler has several.
    shown : its scheduler in short.
    """

    scheduler: str
    settings: Mapping[str, Any]
    keys: Mapping[str, Any] = field(repr=False)
    tuned: float
    word: str = ""
    shown: str = ""

    @property
    def label(self) -> str:
        """The scheduler, and which of its configurations it is where it has several."""
        name = self.shown or self.scheduler
        return f"{name} ({self.word})" if self.word else name

    @property
    def name(self) -> str:
        """The scheduler with its settings."""
        said = ", ".join(f"{key.rpartition('.')[2]}={_shown(value)}" for key, value in self.settings.items())
        name = self.shown or self.scheduler
        return f"{name} ({said})" if said else name


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
    of : the place of the candidate. measure : what was measured when it was run back, (seeds,). servers : to start,
        behind the `router`.
    """

    engine: str
    text: str
    files: Mapping[str, str]
    scheduler: str
    settings: Mapping[str, Any]
    of: int = 0
    measure: Floats = np.empty(0)
    servers: int = 1
    router: str | None = None


def overtaker(judgements: Mapping[str, Mapping[int, Judgement]]) -> tuple[str, int]:
    """Return the condition of a higher load, and the place of the candidate that surely leads there; 0: the best."""
    higher = (said for said in judgements if said.startswith((RATE, LOAD)) and said.endswith(HIGHER))
    said = next(higher, AS_GIVEN)
    of = judgements[said]
    ahead = {place: mean_interval(each.measure - of[0].measure) for place, each in of.items()}
    sure = [place for place, (lead, half_width) in ahead.items() if lead > half_width]
    return said, max(sure, key=lambda place: ahead[place], default=0)


def _named(name: str, pair: tuple[float, float]) -> dict[str, float]:
    half = "half_width" if name == "mean" else f"{name}_half_width"
    return {name: pair[0], half: pair[1]}


class Judgement(NamedTuple):
    """The measures of a candidate under some conditions, a value a seed, (seeds,), and each class's attainment.

    `overloaded` is the number of runs that are so, or near saturation: longer ones would attain less. `too_short` is
    the number of runs that are too short to judge. `drafts` is the last draft position that was ever right.
    """

    measure: Floats
    quickness: Floats
    classes: Mapping[str, Floats]
    overloaded: int
    too_short: int
    drafts: int = 0


@dataclass(frozen=True, slots=True)
class Tuned:
    """The result of `specsim.tune`.

    Attributes
    ----------
    of : the measure. target : share of the requests that is to be kept. rate : requests/s; None: clients that wait.
    trials : by scheduler how many configurations were tried. candidates : those that were judged, the best first.
    judgements : by conditions, then by the place of a candidate, what was measured on the judging part.
    error : relative error of the profile, `error_of` says whose; None: it states none.
    found : highest rates of the candidates in the places `searched`. gpus : of one server.
    replicas : the fewest servers that keep the target at the rate; None where no number was found. carrier : the place
        of the candidate that they, or as many as were `tried`, run. fleet : what these measured at the rate; None where
        the settings alone say how many servers there are. known_drafts : the last draft position that the acceptance
        knows; None: it says nothing of that.
    export : the first candidate that a serving engine can express, in its settings; None where none was asked for or
        can be. stand_ins : a note for a trace that ships in the place of another. notes : lines worth reading.
    """

    of: str
    target: float
    rate: float | None
    trials: Mapping[str, int]
    candidates: Sequence[Candidate]
    judgements: Mapping[str, Mapping[int, Judgement]]
    error: float | None
    error_of: str
    found: Found | None
    searched: Sequence[int]
    gpus: int
    replicas: int | None
    carrier: int
    fleet: Judgement | None
    tried: int
    known_drafts: int | None
    export: Export | None
    stand_ins: Sequence[str]
    notes: Sequence[str]

    @property
    def sensitivity(self) -> bool:
        """Whether other conditions than the given ones were judged."""
        return len(self.judgements) > 1

    @property
    def is_share(self) -> bool:
        """Whether the measure is a share of the requests."""
        return self.of != THROUGHPUT

    @property
    def whose(self) -> str:
        """The requests whose attainment is the measure, in words."""
        return {ALL: "all requests", WORST: "the worst class", THROUGHPUT: TOKENS_PER_S}.get(self.of, self.of)

    @property
    def best(self) -> Candidate:
        """The configuration that does best on the judging part."""
        return self.candidates[0]

    @property
    def plain(self) -> int:
        """The place of the candidate that never drafts."""
        return next(place for place, each in enumerate(self.candidates) if each.scheduler == PLAIN)

    @property
    def few_seeds(self) -> str:
        """How many seeds judged, in words, where they are too few for an interval that is believed."""
        seeds = len(self.judgements[AS_GIVEN][0].measure)
        return f"over {seeds} seed{'s' * (seeds > 1)}" if seeds < LEAST_SEEDS else ""

    def measured(self, place: int, conditions: str = AS_GIVEN) -> tuple[float, float]:
        """Return the mean of a candidate over the seeds, and half the width of its 95% interval."""
        return mean_interval(self.judgements[conditions][place].measure)

    def lead(self, place: int, conditions: str = AS_GIVEN) -> tuple[float, float]:
        """Return by how much the best exceeds a candidate, and half the 95% interval of that, paired by seed."""
        of = self.judgements[conditions]
        return mean_interval(of[0].measure - of[place].measure) if place in of else (nan, nan)

    @property
    def wide(self) -> float:
        """Half of an interval beyond which seeds cannot tell."""
        return WIDE * (1 if self.is_share else self.measured(0)[0])

    def undecided(self, place: int) -> str:
        """Return what the seeds say of a lead of the best that does not show; an empty text where it does."""
        lead, half_width = self.lead(place)
        if lead > half_width:
            return ""
        if half_width <= self.wide:
            return "level, no difference shows beyond the noise"
        seeds = len(self.judgements[AS_GIVEN][0].measure)
        return f"{seeds} seed{'s' * (seeds > 1)} cannot tell"

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

    def guessed(self, place: int) -> str:
        """Return a remark on a candidate's drafts behind the positions that the acceptance knows, if it has any."""
        known, drafts = self.known_drafts, self.judgements[AS_GIVEN][place].drafts
        if known is None or drafts <= known:
            return ""
        guessed = f"drafts {known + 1} to {drafts} are" if drafts > known + 1 else f"draft {drafts} is"
        return f"{guessed} guessed: the acceptance knows {known}"

    def band(self) -> tuple[float, float]:
        """Return the least and the most that the best measures where the profile or speed-ups are off; else NaN."""
        means = [self.measured(0, said)[0] for said in self.judgements if said.startswith((PASSES, SPEEDUP))]
        return min(means, default=nan), max(means, default=nan)

    def no_drafts_from(self) -> float | None:
        """Return the lowest rate, of those at which both were tested, from which on plain decoding attains as much.

        None where the best never drafts, drafts attain more at the highest of these rates, or none was tested.
        """
        if self.found is None or self.plain == 0:
            return None
        best, plain = (self.found.lines[list(self.searched).index(each)].tested for each in (0, self.plain))
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
        scale, unit = (100, "% of ") if self.is_share else (1, " ")
        interval = "" if self.few_seeds else f" \u00b1 {scale * half:.2g}"
        return f"<Tuned: {self.best.name}: {in_digits(scale * mean)}{interval}{unit}{self.whose}>"


def export_lines(tuned: Tuned) -> Iterator[str]:
    """Yield whose settings the export is and, of several servers, their number and router, then what to paste."""
    if tuned.export is not None:
        best = f", not of {tuned.best.label}, which it cannot express" if tuned.export.of else ""
        behind = f"; start {tuned.export.servers} such servers behind router={tuned.export.router}"
        servers = behind if tuned.export.servers > 1 else ""
        doubts = f"{servers}; {guessed}" if (guessed := tuned.guessed(tuned.export.of)) else servers
        yield f"settings of {tuned.candidates[tuned.export.of].label} for {tuned.export.engine}{best}{doubts}:"
        yield from tuned.export.text.splitlines()


def write_tuned(tuned: Tuned, root: Path) -> list[Path]:
    """Write the best configuration of each scheduler as a scheduler's file, the tables, and the export; return them."""
    texts: dict[str, str] = {}
    for each in tuned.candidates:
        mean = in_digits(each.tuned)
        described = {**each.keys, "description": f"{each.name}: tuned for {tuned.of}, {mean} on the part that tuned it"}
        texts.setdefault(f"{Path(each.scheduler).stem}.yaml", yaml_text(described, sort_keys=False))
    texts["tuned.csv"] = tuned.table.to_csv(index=False)
    if tuned.sensitivity:
        texts["conditions.csv"] = tuned.conditions.to_csv(index=False)
    else:
        # That of another search in the folder would not be of these configurations.
        remove(root / "conditions.csv")
    texts |= {} if tuned.export is None else tuned.export.files
    for name, text in texts.items():
        with in_one_step(root / name) as partial:
            partial.write_text(text, encoding="utf-8")
    return [root / name for name in texts]


def answer(tuned: Tuned) -> Iterator[str]:
    """Yield the answer: sentences, the configurations, other conditions, and what follows."""
    yield from _sentences(tuned)
    yield ""
    yield from header(tuned.stand_ins, WIDTH)
    yield from _configurations(tuned)
    if tuned.sensitivity:
        yield ""
        yield from _conditions(tuned)
        yield ""
        yield from _follows(tuned)


def _sentences(tuned: Tuned) -> Iterator[str]:
    load = "With these clients" if tuned.rate is None else f"At {tuned.rate:g} requests/s"
    yield f"{load} the best is {tuned.best.name}: {_of(tuned, *tuned.measured(0), unit=True)}."
    if guessed := tuned.guessed(0):
        yield f"Its {guessed}."
    if tuned.sensitivity:
        low, high = (_of(tuned, each, nan) for each in tuned.band())
        off = f"{100 * (tuned.error or 0):.2g}%"
        passes = f"its passes take {off} more or less ({tuned.error_of}), or "
        drafts = f"drafts bring {100 * SPEEDUP_OFF:.2g}% less or more (median error of predicted speed-ups)"
        yield f"{low} to {high}{'%' if tuned.is_share else ''} if {passes if tuned.error else ''}{drafts}."
    points = " points" if tuned.is_share else f" {TOKENS_PER_S}"
    for place in dict.fromkeys((1, tuned.plain)):
        if 0 < place < len(tuned.candidates):
            lead, name = _of(tuned, *tuned.lead(place), sign="+"), tuned.candidates[place].name
            level = f": {unsure}" if (unsure := tuned.undecided(place)) else ""
            yield f"{lead}{points} against {name}{level}."
    said, ahead = overtaker(tuned.judgements)
    if ahead:
        behind, half_width = tuned.lead(ahead, said)
        yield f"At a {said} {tuned.candidates[ahead].label} leads by {_of(tuned, -behind, half_width)}{points}."


def _configurations(tuned: Tuned) -> Iterator[str]:
    given = tuned.judgements[AS_GIVEN]
    classes = list(given[0].classes)
    rows = [["", "tuned on", "judged on", "lead", *classes]]
    for place, each in enumerate(tuned.candidates):
        lead = _of(tuned, *tuned.lead(place), sign="+") if place else ""
        attained = [number(given[place].classes[name].mean(), 100, 1) for name in classes]
        rows.append([each.label, _of(tuned, each.tuned, nan), _of(tuned, *tuned.measured(place)), lead, *attained])
    settings = ["settings", *(each.name.partition(" ")[2].strip("()") for each in tuned.candidates)]
    yield from _titled(f"{tuned.whose}{', %' if tuned.is_share else ''}; classes, %", rows, settings)


def _conditions(tuned: Tuned) -> Iterator[str]:
    second = tuned.candidates[1].label if len(tuned.candidates) > 1 else "the second"
    rows = [["", "best", f"lead over {second}", "over no drafts"]]
    for said, of in tuned.judgements.items():
        leads = [_of(tuned, *tuned.lead(at, said), sign="+") if at and at in of else "" for at in (1, tuned.plain)]
        rows.append([said, _of(tuned, *tuned.measured(0, said)), *leads])
    yield from _titled(f"{tuned.whose}{', %' if tuned.is_share else ''}, if", rows)


def _titled(title: str, rows: Sequence[Sequence[str]], behind: Sequence[str] = ()) -> Iterator[str]:
    """Yield a table, a title above its first column, with texts behind its lines."""
    (_, *head), *body = rows
    lines = aligned([[title, *head], *body], left=1)
    wide = max(map(len, lines))
    yield from (f"{line.ljust(wide)}  {each}" for line, each in zip(lines, behind, strict=True)) if behind else lines


def _of(tuned: Tuned, mean: float, half_width: float, *, sign: str = "", unit: bool = False) -> str:
    """Return a measure with half its interval, in per cent where it is a share."""
    if not isfinite(mean):
        return ""
    if not tuned.is_share:
        shown = f"{mean:{sign},.1f}"
        half, said = f"{half_width:,.1f}", f" {TOKENS_PER_S}"
    else:
        shown, half = f"{100 * mean:{sign}.{places(mean, 100, 1)}f}", f"{100 * half_width:.1f}"
        said = (
            f"%, the mean of {tuned.of}" if tuned.of.startswith(NOTED) else f"% of {tuned.whose} meet their objectives"
        )
    said += f" {tuned.few_seeds}" if tuned.few_seeds else ""
    known = f" \u00b1 {half}" if isfinite(half_width) and not tuned.few_seeds else ""
    return f"{shown}{known}{said if unit else ''}"


def _follows(tuned: Tuned) -> Iterator[str]:
    """Yield the highest rate, the servers for the rate, and when not to speculate."""
    if tuned.found is not None:
        yield from _capacities(tuned, tuned.found)
    if tuned.plain == 0:
        if len(tuned.candidates) > 1:
            level = tuned.undecided(1)
            yield f"whether drafts gain: {level}" if level else "do not speculate: decoding without drafts does best"
        return
    since, drafts = tuned.no_drafts_from(), f"drafts of {tuned.best.label}"
    leads = {said: tuned.lead(tuned.plain, said) for said in tuned.judgements}
    lose = [said for said, (lead, half_width) in leads.items() if lead < -half_width]
    when = [said for said, (lead, half_width) in leads.items() if -lead <= half_width <= tuned.wide and lead <= 0]
    unsure = [said for said, (lead, half_width) in leads.items() if not lead > half_width and said not in lose + when]
    when += [] if since is None else [f"from {since:g} requests/s on"]
    told = {
        f"{drafts} lose": lose,
        f"{drafts} gain nothing": when,
        f"no gain of {drafts} shows beyond the noise": unsure,
    }
    for said, those in told.items():
        if those:
            yield f"{said}: {'all of these conditions' if those == [*leads] else '; '.join(those)}"
    if not (lose or when or unsure):
        yield f"{drafts} gain under all of these conditions"


def _capacities(tuned: Tuned, found: Found) -> Iterator[str]:
    """Yield the highest rates, the servers for the rate with what they attain, and what the marks at these mean."""
    kept, seen = f"highest rate with {found.asks}", ""
    for line, place in zip(found.lines, tuned.searched, strict=True):
        each, marks = found.capacity(line), found.marks(line)
        rate = f"below {found.asked.first:g}" if each.keeps is None else f"{each.keeps:.3g}"
        if isfinite(each.half_width):
            rate = f"{each.mean:.3g}" + ("" if tuned.few_seeds else f" \u00b1 {each.known_to:.2g}")
        elif each.keeps is not None and each.misses is None:
            rate = f"at least {rate}"
        yield f"{kept}: {rate}{marks} requests/s with {tuned.candidates[place].label}"
        seen += marks
    if tuned.fleet is not None:
        marks = TOO_SHORT * bool(tuned.fleet.too_short) + FULL * bool(tuned.fleet.overloaded)
        none = "" if tuned.replicas else "no number of servers was found; "
        count = f"{none}{tuned.tried * tuned.gpus}{marks} ({tuned.tried} x {tuned.gpus})"
        attained = _of(tuned, *mean_interval(tuned.fleet.measure), unit=True)
        yield f"GPUs for {tuned.rate:g} requests/s: {count} with {tuned.candidates[tuned.carrier].label}: {attained}"
        seen += marks
    yield from (f"{mark} {meaning}" for mark, meaning in FOOTNOTES.items() if mark in seen)
