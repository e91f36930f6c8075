"""The answer of `find`: what was searched, how far it was judged, and the rates found."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import count
from math import ceil, isfinite, isnan, nan, sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.metrics.capacity import LEAST_SEEDS, Asked, Capacity, capacity, kept, mean_interval
from specsim.metrics.load import TARGET_HALF_WIDTH, Recorded
from specsim.metrics.requests import NOTED
from specsim.metrics.seeds import OVERLOADED, SHORT, depends_on_length
from specsim.metrics.statistics import independent_half_width
from specsim.metrics.sweep_table import short_keys
from specsim.metrics.tables import counted, stand_ins_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.store.sweeps import Sweep


FIRST = "find"


def name_in(root: Path, identity: str, asked: Mapping[str, Any]) -> str:
    """Return the name of a search's files below `root`: its own if it was there before, or the next free one.

    The name's JSON file holds the `identity` of the search and what was `asked`. Files without one are another's.

    Raises
    ------
    SpecsimError
        When the folder cannot be written.
    """
    told = json.dumps({"identity": identity, **asked}, indent=2) + "\n"
    names = (FIRST if number == 1 else f"{FIRST}-{number}" for number in count(1))
    try:
        root.mkdir(parents=True, exist_ok=True)
        return next(name for name in names if _is_own(root, name, identity, told))
    except OSError as error:
        raise SpecsimError(f"{root}: cannot be written: {error.strerror or error}") from None


def _is_own(root: Path, name: str, identity: str, told: str) -> bool:
    """Return whether a name's JSON file tells of this search; where no file has the name, it is written."""
    file = root / f"{name}.json"
    if not file.exists() and any(root.glob(f"{name}.*")):
        return False
    try:
        with file.open("x", encoding="utf-8") as stream:
            stream.write(told)
        return True
    except FileExistsError:
        with suppress(ValueError, TypeError, KeyError):
            return bool(json.loads(file.read_bytes())["identity"] == identity)
        return False


WORST, ALL = "worst", "all"
TOO_SHORT, FULL, FAILED = "*", "+", "!"
FOOTNOTES = {
    TOO_SHORT: "a run at the rates around the answer is too short to judge",
    FULL: "a run at or below the answer is overloaded or near saturation; a longer run would attain less",
    FAILED: "a run at the rates around the answer failed, and counts as 0%",
}
"""The meaning of the mark of an answer."""


class Judged(NamedTuple):
    """One run of a search.

    Attributes
    ----------
    share : that was attained. half_width : half of its 95% interval; 1 where nothing is known.
    needed_requests : how many would do; None where that is not known. held : the recording, if it is of one.
    too_short : whether it has fewer. depends_on_length : whether it is overloaded or near saturation.
    nothing_ran : whether every request was rejected or cancelled before a pass: a longer run tells no more.
    """

    share: float
    half_width: float
    needed_requests: int | None
    too_short: bool
    depends_on_length: bool
    nothing_ran: bool = False
    held: Recorded | None = None


def judged(metrics: Mapping[str, Any], of: str) -> Judged:
    """Return what the block ``specsim`` of a run's metrics says of all, of the worst class, or of a class.

    A class has fewer requests, so its attainment is known less well. Its interval is that of independent requests,
    wider by as much as neighbours that miss together widen the interval of all requests. Of a class of which no request
    arrived none has missed, and nothing is known. A noted column (``noted.NAME``) is judged by its mean, as a share of
    the completed requests.

    Raises
    ------
    SpecsimError
        When nothing notes the column, or its mean is no share.
    """
    found = _judged(metrics, of)
    if metrics["iterations"]:
        return found
    return found._replace(needed_requests=None, too_short=False, nothing_ran=True)


def _judged(metrics: Mapping[str, Any], of: str) -> Judged:
    block = metrics["load"]
    half = block["attainment_half_width"]
    needed, short, depends = block["needed_requests"], bool(block["too_short"]), depends_on_length(block)
    if of == ALL:
        return Judged(float(metrics["slo_attainment"]), 1.0 if half is None else half, needed, short, depends)
    classes = metrics["classes"]
    if of.startswith(NOTED):
        share, counted = _noted_share(metrics, of), int(metrics["completed"])
    else:
        name = metrics["worst_class"] if of == WORST else of
        if name not in classes:
            return Judged(1.0, 1.0, None, too_short=True, depends_on_length=depends)
        share, counted = float(classes[name]["slo_attainment"]), classes[name]["requests"]
    if half is None:
        return Judged(share, 1.0, needed, short, depends)
    arrived = sum(each["requests"] for each in classes.values())
    wider = max(1.0, half / independent_half_width(metrics["slo_attainment"], arrived))
    own = min(1.0, wider * independent_half_width(share, counted))
    if own > TARGET_HALF_WIDTH:
        short, needed = True, max(needed or 0, ceil(arrived * (own / TARGET_HALF_WIDTH) ** 2))
    return Judged(share, own, needed, short, depends)


def _noted_share(metrics: Mapping[str, Any], of: str) -> float:
    """Return the mean of a noted column; 0 where no request completed."""
    noted = metrics.get("noted", {})
    name = of.removeprefix(NOTED)
    if name not in noted:
        raise SpecsimError(
            f"of={of}: no scheduler and no observer notes it{nearest(of, (NOTED + each for each in noted))}"
        )
    share = noted[name] or 0.0
    if not 0 <= share <= 1:
        raise SpecsimError(f"of={of}: its mean is {share:g}; expected a share, 0 to 1")
    return float(share)


GROWTH = 2
"""The least factor by which a run gets longer."""


def longer(asked: Asked, line: Line, rate: float) -> int | None:
    """Return how many requests the runs of a line at a rate should have; None if they say enough, or cannot be longer.

    Runs that keep the target say enough when each is long enough to judge and neither overloaded nor near saturation,
    since a longer run would attain less. Runs that miss it do when their mean misses it by more than they are known to.
    """
    requests, runs, shares = line.requests.get(rate), line.judged[rate], line.tested[rate]
    if requests is None or requests >= asked.longest or len(runs) < len(shares):
        return None
    flattered = kept(asked, shares) and any(run.depends_on_length for run in runs)
    if not flattered and not line.unjudged(rate, asked.target):
        return None
    needed = max((run.needed_requests or 0 for run in runs if run.too_short), default=0)
    return min(asked.longest, max(GROWTH * requests, needed))


def _half_width(runs: Sequence[Judged]) -> float:
    """Return half the 95% interval of the mean of runs' attainments; each run is known as well as it says."""
    return sqrt(sum(run.half_width**2 for run in runs)) / len(runs)


@dataclass(slots=True)
class Line:
    """A system that is compared.

    Attributes
    ----------
    label : the settings in which it differs from the others, or its scheduler. shown : these in short.
    gpus : of all its replicas; 0 as long as no run has told.
    endless : whether its runs may be made longer.
    tested : by rate in requests/s, the attained share of each seed.
    judged : by rate, how well each seed's run knows its share; a failed run has none.
    requests : by rate, how many each run has; of an endless line alone. errors : of failed runs.
    """

    label: Mapping[str, str]
    gpus: int = 0
    endless: bool = False
    tested: dict[float, list[float]] = field(default_factory=dict)
    judged: dict[float, list[Judged]] = field(default_factory=dict)
    requests: dict[float, int] = field(default_factory=dict)
    errors: list[str] = field(default_factory=list)
    shown: Mapping[str, str] = field(default_factory=dict)

    @property
    def keys(self) -> str:
        """The settings in which it differs, each by its last parts, as few as tell them apart."""
        return ", ".join(short_keys(self.label).values())

    @property
    def values(self) -> str:
        """The values of these."""
        return ", ".join((self.shown or self.label).values())

    @property
    def name(self) -> str:
        """Both."""
        return ", ".join(f"{key.rpartition('.')[2]}={value}" for key, value in (self.shown or self.label).items())

    def too_short(self, rate: float | None) -> int:
        """Return how many runs at a rate are too short to judge."""
        return 0 if rate is None else sum(run.too_short for run in self.judged[rate])

    def unjudged(self, rate: float | None, target: float) -> int:
        """Return the same where it leaves open whether the target is kept: 0 where the mean surely misses it."""
        short = self.too_short(rate)
        if not short or rate is None:
            return 0
        surely = float(np.mean(self.tested[rate])) + _half_width(self.judged[rate]) < target
        return 0 if surely else short

    def failed(self, rate: float | None) -> int:
        """Return how many runs at a rate failed, and count as 0%."""
        return 0 if rate is None else len(self.tested[rate]) - len(self.judged[rate])

    def overloaded(self, rate: float | None) -> int:
        """Return how many runs at a rate are overloaded or near saturation."""
        return 0 if rate is None else sum(run.depends_on_length for run in self.judged[rate])

    def nothing_ran(self, rate: float) -> int:
        """Return in how many runs at a rate every request was rejected or cancelled."""
        return sum(run.nothing_ran for run in self.judged[rate])


@dataclass(frozen=True, slots=True)
class Found:
    """The result of a search.

    Attributes
    ----------
    asked : the target, and the rates to look in. of : whose attainment: ``worst``, ``all`` or a class.
    lines : the systems. sweep : every run that was made. identity : what two searches for the same share.
    """

    asked: Asked
    of: str
    lines: Sequence[Line]
    sweep: Sweep
    identity: str

    def __repr__(self) -> str:
        systems = f"{len(self.lines)} system{'s' * (len(self.lines) > 1)}"
        return f"<Found of {systems} in {len(self.sweep)} runs: {self.asks}{counted([*self.notes()])}>"

    def capacity(self, line: Line) -> Capacity:
        """Return what the tested rates of a line say."""
        return capacity(self.asked, line.tested)

    def difference(self, line: Line) -> tuple[float, float]:
        """Return by how much a line's answer exceeds the first's, requests/s, and half the width of its 95% interval.

        Both are of the same seeds, which meet the same requests at each rate; NaN where a seed has no answer.
        """
        one, other = (self.capacity(each).by_seed for each in (line, self.lines[0]))
        return mean_interval(one - other) if len(one) == len(other) else (nan, nan)

    @property
    def stand_ins(self) -> list[str]:
        """A note for each trace that ships in the place of another."""
        return stand_ins_of(self.sweep.table) if self.sweep else []

    @property
    def whose(self) -> str:
        """The requests whose attainment it is, in words."""
        return {ALL: "all requests", WORST: "the worst class"}.get(self.of, f"class {self.of}")

    @property
    def asks(self) -> str:
        """The share that is asked for, in words."""
        share = f"{100 * self.asked.target:g}%"
        return f"a mean {self.of} of {share}" if self.of.startswith(NOTED) else f"{share} of {self.whose}"

    @property
    def title(self) -> str:
        """The answer of a line, in words."""
        return f"highest rate {f'with {self.asks}' if self.of.startswith(NOTED) else f'at which {self.asks} attain'}"

    @property
    def table(self) -> DataFrame:
        """A row a line: the settings in which it differs, and the answer; rates in requests/s, NaN where there is none.

        ``keeps_rps`` is the highest tested rate up to which every tested rate keeps the target in the mean over seeds,
        ``misses_rps`` the lowest that does not. ``mean_rps`` and ``half_width_rps`` are of the rates at which the seeds
        fall below it, each on a line between tested rates, and of their 95% interval. ``difference_rps`` and
        ``difference_half_width_rps`` are of their differences from the first row, seed by seed. ``keeps_requests`` is
        the length of the runs at ``keeps_rps``, if it was the search's to choose. ``keeps_too_short``,
        ``misses_too_short``, ``keeps_overloaded``, ``keeps_failed`` and ``misses_failed`` count the runs at that rate
        which are so, of ``seeds`` runs; none is too short where their mean surely misses the target.
        """
        from pandas import DataFrame

        rows = []
        for line in self.lines:
            each = self.capacity(line)
            more, known = (nan, nan) if line is self.lines[0] else self.difference(line)
            answer = {"keeps_rps": each.keeps, "misses_rps": each.misses, "mean_rps": each.mean}
            answer |= {"half_width_rps": each.half_width, "difference_rps": more, "difference_half_width_rps": known}
            answer |= {"gpus": line.gpus, "seeds": len(each.by_seed)}
            answer |= {"keeps_requests": None if each.keeps is None else line.requests.get(each.keeps)}
            answer |= {"keeps_too_short": line.unjudged(each.keeps, self.asked.target)}
            answer |= {"misses_too_short": line.unjudged(each.misses, self.asked.target)}
            answer |= {"keeps_overloaded": line.overloaded(each.keeps)}
            answer |= {"keeps_failed": line.failed(each.keeps), "misses_failed": line.failed(each.misses)}
            rows.append({**line.label, "target": self.asked.target, "of": self.of, **answer})
        return DataFrame(rows).astype(dict.fromkeys(("keeps_rps", "misses_rps", "keeps_requests"), float))

    def notes(self) -> Iterator[str]:
        """Yield what the table does not show: of each line, then of the runs."""
        for line in self.lines:
            yield from (f"{line.name}: {doubt}" for doubt in self.doubts(line))
        if any(len(self.capacity(line).by_seed) < 2 for line in self.lines):
            yield "no interval: one seed"
        yield from self.sweep.seeds_said() if self.sweep else ()
        yield from self.sweep.notes

    def doubts(self, line: Line) -> Iterator[str]:
        """Yield why the answer of a line is missing or not the whole truth."""
        each, asked = self.capacity(line), self.asked
        if each.keeps is None:
            yield f"misses the target at {asked.first:g} requests/s, the lowest tested"
        if each.misses is None:
            yield f"keeps the target at {asked.last:g} requests/s, the highest tested"
        if each.again:
            again = ", ".join(f"{rate:g}" for rate in each.again)
            yield f"not monotonic: the target is met again at {again} requests/s"
        if isnan(each.mean):
            yield f"no mean over seeds: {_without_edge(asked, line, each)}"
        if short := [
            rate for rate in (each.keeps, each.misses) if rate is not None and line.unjudged(rate, asked.target)
        ]:
            yield f"too short to judge: {_where(line, short, line.too_short)}{_cure(line, short)}"
        if line.overloaded(each.keeps):
            yield f"overloaded or near saturation at {each.keeps:g} requests/s: a longer run would attain less"
        if failed := _where(line, line.tested, line.failed):
            yield f"runs failed, and count as 0%: {failed}"
        if idle := _where(line, line.judged, line.nothing_ran):
            yield f"nothing ran in {idle}: every request was rejected or cancelled"

    def marks(self, line: Line) -> str:
        """Return the marks of the rates around an answer; of the upper one only those that put its miss in doubt."""
        each = self.capacity(line)
        counts = {
            TOO_SHORT: sum(line.unjudged(rate, self.asked.target) for rate in (each.keeps, each.misses)),
            FULL: line.overloaded(each.keeps),
            FAILED: line.failed(each.keeps) + line.failed(each.misses),
        }
        return "".join(mark for mark, count in counts.items() if count)

    def figure(self) -> Figure:
        """Return a figure of attainment against the rate."""
        from specsim.figures.capacity import AttainmentCurve, attained_up_to
        from specsim.figures.style import FAILED_MARK

        lines = {}
        for line in self.lines:
            found = self.capacity(line)
            counts = {SHORT: line.too_short, OVERLOADED: line.overloaded, FAILED_MARK: line.failed}
            doubts = {rate: kind for kind, count in counts.items() for rate in line.tested if count(rate)}
            answer = found.mean if isfinite(found.half_width) else found.keeps
            lines[line.values] = AttainmentCurve(line.tested, answer, doubts)
        known = bool(self.sweep) and len(self.capacity(self.lines[0]).by_seed) >= LEAST_SEEDS
        said = (*self.stand_ins, *(self.sweep.seeds_said() if known else ()))
        failed = sum(line.failed(rate) for line in self.lines for rate in line.tested)
        if failed:
            said = (*said, f"{failed} run{'s' * (failed > 1)} failed and count{'s' * (failed == 1)} as 0%")
        keys = self.lines[0].keys
        whose = "Requests" if self.of == ALL else f"Requests of {self.whose}"
        label = f"Mean of {self.of} (%)" if self.of.startswith(NOTED) else f"{whose}\nthat meet their objectives (%)"
        return attained_up_to(self.asked, label, lines, title=keys, covered=said)


def _without_edge(asked: Asked, line: Line, found: Capacity) -> str:
    """Return why some seeds have no rate at which they fall below the target."""
    below = sum(not kept(asked, [share]) for share in line.tested[asked.first])
    above = sum(map(isnan, found.by_seed)) - below
    parts = [f"{below} of {len(found.by_seed)} miss the target at {asked.first:g} requests/s, the lowest tested"]
    parts += [f"{above} of {len(found.by_seed)} keep it at {max(line.tested):g} requests/s, the highest tested"]
    return "; ".join(part for part, count in zip(parts, (below, above), strict=True) if count)


def _where(line: Line, rates: Iterable[float], count: Callable[[float], int]) -> str:
    """Return at which of some rates how many runs are so; an empty text where none is."""
    counts = {rate: count(rate) for rate in sorted(rates)}
    told = (f"{so} of {len(line.tested[rate])} runs at {rate:g} requests/s" for rate, so in counts.items() if so)
    return ", ".join(told)


def _cure(line: Line, short: Sequence[float]) -> str:
    """Return how long the runs at some rates would have to be."""
    runs = [run for rate in short for run in line.judged[rate]]
    needed = max(run.needed_requests or 0 for run in runs if run.too_short)
    held = min((run.held for run in runs if run.held is not None), default=None)
    if held is not None and needed > held.requests:
        return f"; {held.too_few}"
    return f"; {needed:,} requests would do" if needed else ""
