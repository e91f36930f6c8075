"""The greatest rate that attains a target, for each scheduler."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.config.configured import Configured, from_point, labels_of
from specsim.config.identity import flat, identity
from specsim.config.points import is_several
from specsim.errors import SpecsimError, represented
from specsim.metrics.any_run import AnyRun
from specsim.metrics.capacity import Asked, next_rate
from specsim.metrics.load import Recorded
from specsim.metrics.requests import NOTED
from specsim.metrics.sweep_table import short_labels
from specsim.runs.execute import OBJECT
from specsim.runs.executors import LOCAL
from specsim.runs.objects import NO_OBJECTS, Objects
from specsim.runs.plan import checked, plan
from specsim.runs.sweep import in_order, run_all, together
from specsim.search.found import ALL, WORST, Found, Line, judged, longer
from specsim.store.summaries import Failure
from specsim.store.sweeps import Sweep

RATE, SEED, REQUESTS, CLIENTS = "rps", "seed", "requests", "concurrency"
DRAWN = "synthetic"
"""The kind of a trace that has no end."""
LineKey = tuple[str, ...]
Place = tuple[LineKey, float]
Test = tuple[float, int | None]
"""A rate in requests/s, and how many requests the runs at it have; None: what their settings say."""
At = Callable[[float], Sequence[Configured]]
"""Returns the points of a rate: every line's, with every seed."""
Say = Callable[[str], None]
Result = tuple[Configured, AnyRun | Failure]
"""A point, and what came of it."""


def check_asked(target: float, rates: tuple[float, float], within: float, longest: int) -> Asked:
    """Return the question of a search between two rates, requests/s; SpecsimError where it is none."""
    check_share("find: target", target)
    check_share("find: within", within)
    try:
        first, last = rates
        sound = 0 < first < last < float("inf")
    except (TypeError, ValueError):
        sound = False
    if not sound:
        raise SpecsimError(f"find: rates={rates!r}: expected two rates in requests/s, the lower first")
    if type(longest) is not int or longest < 1:
        raise SpecsimError(f"find: longest={represented(longest)}: expected a whole number of requests, at least 1")
    return Asked(target, first, last, within, longest)


def check_share(name: str, value: Any) -> None:
    """Refuse what is no share above 0; SpecsimError with its name."""
    try:
        sound = not isinstance(value, bool) and 0 < value <= 1
    except TypeError:
        sound = False
    if not sound:
        raise SpecsimError(f"{name}={represented(value)}: expected a share in (0, 1]; 0.9 is 90%")


def check_seeds(seeds: Iterable[Any]) -> list[int]:
    """Return the seeds that judge a tuning; SpecsimError where they are not whole numbers, each once."""
    told = [str(each) for each in seeds] if is_several(seeds) else []
    found = [int(each) for each in told if each.isdecimal()]
    if not found or not len(told) == len(found) == len(set(found)):
        said = "expected seeds in a list, whole numbers, each once: range(5)"
        raise SpecsimError(f"tune: seeds={represented(seeds)}: {said}")
    return found


def search(
    asked: Asked,
    of: str,
    at: At,
    root: Path | None,
    objects: Objects = NO_OBJECTS,
    *,
    jobs: int = 1,
    executor: str = LOCAL,
    say: Say = lambda _: None,
    progress: bool = False,
    idle: bool = True,
) -> Found:
    """Test rates until every line's answer is as narrow as was asked for.

    Every line meets the same requests and texts at each rate (common random numbers). A rate at which a line's runs do
    not say enough is tested again with longer ones, if their trace has no end and no setting says their length. Runs
    stored below `root` are not run again, so that a search which was stopped goes on where it was. `say` is told which
    rates are tested next; `progress` tells how many of their runs have ended, and `jobs` and `executor` run them, as in
    a sweep. `objects` are those that the points name. A setting that changes no line is refused where `idle` is true;
    where it is false, `root` holds runs of these objects.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given; when no run of a line can be made.
    """
    lines: dict[LineKey, Line] = {}
    heard: dict[Place, list[Result]] = {}
    notes: list[str] = []
    wanted: dict[Test, Sequence[LineKey]] = {(asked.first, None): ()}
    searched = ""
    keys: list[str] = []
    while wanted:
        keyed = [each for test, who in wanted.items() for each in _points(at, test, who, objects)]
        points = [each for _, each in keyed]
        _add_lines(lines, keyed, of)
        searched = searched or _identity(asked, of, points)
        # What matters to some line may be set for all: the first points are of every line, later ones of a few.
        ready = checked(points, objects, jobs=jobs, executor=executor, idle=idle and not heard)
        planned = plan(ready, root, keep="summary", begun=not idle or bool(heard))
        say(f"testing {', '.join(map(_said, wanted))}")
        made = run_all(planned, root, progress=progress, jobs=jobs, executor=executor, beside=keys)
        keys += [each.key for each in planned]
        notes += made.whole_notes
        results: dict[Place, list[Result]] = {}
        for (place, each), run in zip(keyed, in_order(points, made), strict=True):
            results.setdefault(place, []).append((each, run))
        for (key, rate), those in results.items():
            _hear(lines[key], asked, of, rate, those)
        heard |= results
        wanted = _next_tests(asked, lines)
    ended = [run for those in heard.values() for _, run in those]
    runs = [run for run in ended if not isinstance(run, Failure)]
    failures = [run for run in ended if isinstance(run, Failure)]
    return Found(asked, of, list(lines.values()), Sweep(runs, together(notes), failures=failures), searched)


def _points(at: At, test: Test, who: Sequence[LineKey], objects: Objects) -> Iterator[tuple[Place, Configured]]:
    """Yield the points of a test, each with its place: those of the lines `who`, or of all."""
    rate, requests = test
    for each in at(rate):
        key = _key(each)
        if not who or key in who:
            if requests is not None:
                # The first of them are those of a shorter run.
                each = from_point({**each.point, REQUESTS: str(requests)}, objects.described)
            yield (key, rate), each


def _add_lines(lines: dict[LineKey, Line], keyed: Sequence[tuple[Place, Configured]], of: str) -> None:
    """Add the lines that no point before has shown."""
    for ((key, _), each), label in zip(keyed, labels_of([each.point for _, each in keyed]), strict=True):
        told = {name: value for name, value in label.items() if name not in (RATE, SEED)}
        told = told or {"scheduler": each.chosen.scheduler.name}
        lines.setdefault(key, Line(told, endless=_endless(each)))
        check_whose(of, each)
    for line, shown in zip(lines.values(), short_labels([each.label for each in lines.values()]), strict=True):
        line.shown = shown


def _next_tests(asked: Asked, lines: Mapping[LineKey, Line]) -> dict[Test, Sequence[LineKey]]:
    """Return which lines are to be tested next, by test: first lines that say too little, as the next rate follows."""
    wanted: dict[Test, Sequence[LineKey]] = {}
    for key, line in lines.items():
        tests: list[Test] = [(rate, more) for rate in line.tested if (more := longer(asked, line, rate)) is not None]
        rate = next_rate(asked, line.tested)
        if not tests and rate is not None:
            tests = [(rate, None)]
        for test in tests:
            wanted[test] = (*wanted.get(test, ()), key)
    return wanted


def _said(test: Test) -> str:
    rate, requests = test
    return f"{rate:g} requests/s" + ("" if requests is None else f" with {requests:,} requests")


def _identity(asked: Asked, of: str, points: Sequence[Configured]) -> str:
    """Return what two searches share that ask the same of the same points, in whatever order."""
    runs = sorted(each.key for each in points)
    return identity(flat({**asked._asdict(), "of": of, "runs": runs}))


def _key(each: Configured) -> LineKey:
    """Return what tells a line from others: all its settings but the rate and the seed."""
    return tuple(f"{key}={value}" for key, value in each.point.items() if key not in (RATE, SEED))


def _hear(line: Line, asked: Asked, of: str, rate: float, results: Sequence[Result]) -> None:
    """Note what the runs at a rate attained, in place of shorter ones; a failed run attained nothing.

    A run in which no request of the class arrived is refused, unless it is made longer: nothing is known from it.
    """
    shares, runs = line.tested[rate], line.judged[rate] = [], []
    absent = []
    for point, run in results:
        if isinstance(run, Failure):
            line.errors.append(f"{rate:g} requests/s, seed {point.settings.seed}: {run.error}")
            shares.append(0.0)
            continue
        block = run.metrics["specsim"]
        line.gpus = block["gpus"]
        if of not in (ALL, WORST, *block["classes"]) and not of.startswith(NOTED):
            absent.append(point.settings.seed)
        runs.append(judged(block, of)._replace(held=_recorded(run.provenance)))
        shares.append(runs[-1].share)
    point = results[0][0]
    if line.endless:
        line.requests[rate] = point.settings.requests or point.chosen.trace.n
    if absent and longer(asked, line, rate) is None:
        where = f"at {rate:g} requests/s with seed {absent[0]}"
        raise SpecsimError(f"of={of}: no request of it arrived {where}; expected longer runs (requests=)")


def _recorded(provenance: Mapping[str, Any]) -> Recorded | None:
    """Return how many requests a run's recording holds; a search chooses the rates, so no lower one is a way out."""
    trace = provenance["trace"]
    if trace["requests"] is None:
        return None
    return Recorded.of(trace["requests"], ["another trace"], resamples=trace["origin"] != OBJECT)


def _endless(each: Configured) -> bool:
    """Return whether the search may choose how long runs are: their trace is drawn, and no setting says it."""
    drawn = each.chosen.trace.kind == DRAWN and not isinstance(each.settings.warmup, tuple)
    return drawn and each.settings.requests is None and "trace.n" not in each.point


def check_whose(of: str, point: Configured) -> None:
    """Refuse an attainment that is no class's of the mix, as far as it says its classes; SpecsimError as one line."""
    classes = point.chosen.slo.classes
    known = [WORST, ALL, *(classes or ())]
    if of not in known and not of.startswith(NOTED) and classes is not None:
        raise SpecsimError(f"of={of}: no class of the requests; expected {', '.join(known)} or {NOTED}NAME")
