"""Each scheduler's settings searched on one part of the traffic, and judged on another."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from math import ceil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.config.configured import Configured, with_settings
from specsim.config.identity import identity, settings_of
from specsim.config.points import Point
from specsim.config.space import Choice, space_of
from specsim.config.values import python_value
from specsim.errors import SpecsimError
from specsim.metrics.capacity import Asked, mean_interval
from specsim.metrics.found import Found
from specsim.metrics.tuned import AS_GIVEN, PLAIN, Candidate, Export, Judgement, Score, Tuned, is_share, score
from specsim.runs.executors import LOCAL, check_executor
from specsim.runs.exports import Inexpressible, exported
from specsim.runs.find import search
from specsim.runs.handed import NO_OBJECTS, Objects
from specsim.runs.plan import checked, plan
from specsim.runs.prepare import prepare, recipe
from specsim.runs.sweep import in_order, run_all, together
from specsim.runs.trials import MOST_SEEDS, Search, halved
from specsim.store.scan import AnyRun
from specsim.store.summaries import Failure

REQUESTS = "1000"
"""Of a run of a recording, where no setting says it."""
BLOCK_S, BLOCKS = 60.0, 10
"""Seconds of the blocks that a seed draws from a part of a recording, and the least blocks that a part has."""
OFF = 0.2
"""By how much acceptance, load and objectives are taken to be off."""
WITHIN = 0.05
"""How close the two rates of an answer lie."""
LOWEST, HIGHEST = 1 / 4, 16.0
"""Of the rates to look in, times the rate that is tuned for."""
LONGEST = 4000
FURTHER = 3
"""Servers that are tried beyond the fewest that the highest rate of one would need."""
SCHEDULER = "scheduler"
OBJECTIVES = ("tpot_s", "tpot_ratio", "ttft_s")
Say = Callable[[str], None]
Result = AnyRun | Failure


class Goal(NamedTuple):
    """What is tuned for: the most of a measure `of` a run, and the share of the requests that is to be kept.

    `trials` of each scheduler; `seeds` judge; `export` is the engine whose settings are wanted.
    """

    of: str
    target: float
    trials: int
    seeds: Sequence[int]
    export: str | None = None


class Parts(NamedTuple):
    """The part of the traffic that tunes and the part that judges: further settings of each, and lines about them."""

    tuning: Point
    judging: Point
    notes: tuple[str, ...]


def tune(
    point: Point,
    schedulers: Mapping[str, Mapping[str, Sequence[Any]]],
    goal: Goal,
    root: Path | None,
    objects: Objects = NO_OBJECTS,
    *,
    jobs: int = 1,
    executor: str = LOCAL,
    say: Say = lambda _: None,
    progress: bool = False,
) -> Tuned:
    """Search the settings of every scheduler, then judge the best of each, of one scheduler alone its best two.

    Every scheduler gets the same number of trials, or as many as it has choices. Plain decoding is tuned and judged
    beside them. Runs stored below `root` are not run again, so a search that was stopped goes on where it was.

    Parameters
    ----------
    point : settings that all runs share. schedulers : by name or path, the values to try of keys below it in the place
        of those that its file declares.
    objects : those that the point names. The others are those of `search`.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given.
    """
    runs = _Runs(point, objects, root, jobs, executor, progress, say)
    plain = {} if PLAIN in schedulers else {PLAIN: {}}
    searches = [Search(space_of(name, given), goal.trials) for name, given in {**schedulers, **plain}.items()]
    first = runs.configured(searches[0].space.scheduler, {}, {})
    parts = split(first, objects)
    rate = _rate(first.config, objects)
    tuning_seeds = range(max(goal.seeds) + 1, max(goal.seeds) + 1 + MOST_SEEDS)

    def tried(asked: Sequence[tuple[int, Choice]], seeds: Sequence[int]) -> list[list[Score]]:
        spaces = [searches[place].space for place, _ in asked]
        settings = [space.settings(choice) for space, (_, choice) in zip(spaces, asked, strict=True)]
        pairs = [(space.scheduler, each) for space, each in zip(spaces, settings, strict=True)]
        ended = runs(pairs, parts.tuning, seeds)
        return [[_score(run, goal.of) for run in those] for those in ended]

    halved(searches, tuning_seeds, tried, say)
    candidates = [each for search_ in searches for each in _finalists(search_, len(searches) - len(plain), runs)]
    judge = _Judge(runs, goal, parts.judging, candidates)
    say(f"judging: {len(candidates)} configurations with {len(goal.seeds)} seeds")
    given = judge(range(len(candidates)), {})
    order = sorted(given, key=lambda place: (-given[place].measure.mean(), -given[place].quickness.mean()))
    judge.candidates = candidates = [candidates[place] for place in order]
    judgements = {AS_GIVEN: {place: given[old] for place, old in enumerate(order)}}
    plain_at = next(place for place, each in enumerate(candidates) if each.scheduler == PLAIN)
    shown, searched = sorted({0, min(1, len(order) - 1), plain_at}), sorted({0, plain_at})
    error = _held_out_error(first.config["profile"])
    for said, changed in _conditions(first.config, rate, error):
        say(f"judging: {said}")
        judgements[said] = judge(shown, changed)
    shares = is_share(goal.of, judgements[AS_GIVEN][0].classes)
    found = _highest(judge, searched, rate) if rate is not None and shares else None
    replicas = None if found is None or rate is None else _replicas(judge, judgements[AS_GIVEN][0], found, rate, first)
    trials = {each.space.scheduler: len(each.scores) for each in searches}
    export, said = _exported(judge, judgements[AS_GIVEN], first)
    notes = [*parts.notes, *said, *_fewer(searches, goal.trials), *together(runs.notes)]
    gpus = int(first.config["profile"]["gpus"])
    told = (goal.of, goal.target, rate, trials, candidates, judgements, error, found, searched, gpus, replicas)
    return Tuned(*told, export, notes)


class _Runs:
    """Runs configurations of schedulers with seeds, and stores them below `root`."""

    def __init__(
        self, point: Point, objects: Objects, root: Path | None, jobs: int, executor: str, progress: bool, say: Say
    ) -> None:
        self.point, self.objects, self.root, self.say = point, objects, root, say
        self.how: dict[str, Any] = {"jobs": jobs, "executor": executor, "progress": progress}
        self.here = jobs if check_executor(executor, jobs) == LOCAL else 1
        self.keys: list[str] = []
        self.notes: list[str] = []

    def configured(self, scheduler: str, settings: Mapping[str, Any], further: Point) -> Configured:
        """Return a point of a scheduler with settings of keys below it, and further ones."""
        below = {f"{SCHEDULER}.{key}": _value(key, value) for key, value in settings.items()}
        return with_settings(self.point, {SCHEDULER: scheduler, **below, **further}, self.objects.described)

    def __call__(
        self, configurations: Sequence[tuple[str, Mapping[str, Any]]], further: Point, seeds: Sequence[int]
    ) -> list[list[Result]]:
        """Return what came of each configuration with each seed."""
        points = [
            self.configured(scheduler, settings, {**further, "seed": str(seed)})
            for scheduler, settings in configurations
            for seed in seeds
        ]
        ready = checked(points, self.objects, jobs=self.here, idle=not self.keys)
        planned = plan(ready, self.root, keep="summary")
        made = run_all(planned, self.root, beside=self.keys, **self.how)
        self.keys += [each.key for each in planned]
        self.notes += made.whole_notes
        ended = in_order(points, made)
        return [ended[place : place + len(seeds)] for place in range(0, len(ended), len(seeds))]


def _value(key: str, value: Any) -> Any:
    """Return a value of a space as a point has it: a text is read as on a command line."""
    return value if isinstance(value, str) else python_value(key, value)


def _score(run: Result, of: str) -> Score:
    """Return the score of a run; one that failed attains nothing."""
    return Score(0.0, -np.inf) if isinstance(run, Failure) else score(run.metrics, of)


def _finalists(of: Search, rivals: int, runs: _Runs) -> Iterator[Candidate]:
    """Yield the best choice of a search, and the second where no other scheduler was asked for."""
    several = 2 if rivals == 1 and of.space.scheduler != PLAIN else 1
    for choice in of.ranked()[:several]:
        settings = of.space.settings(choice)
        made = runs.configured(of.space.scheduler, settings, {})
        yield Candidate(of.space.scheduler, settings, made.config[SCHEDULER], of.mean(choice).measure)


class _Judge:
    """Runs candidates on the judging part."""

    def __init__(self, runs: _Runs, goal: Goal, part: Point, candidates: Sequence[Candidate]) -> None:
        self.runs, self.goal, self.part, self.candidates = runs, goal, part, candidates

    def __call__(self, places: Sequence[int], changed: Point) -> dict[int, Judgement]:
        """Return what candidates measured under changed settings, by their place."""
        chosen = [(self.candidates[place].scheduler, self.candidates[place].settings) for place in places]
        ended = self.runs(chosen, {**self.part, **changed}, self.goal.seeds)
        return {place: self.judged(those) for place, those in zip(places, ended, strict=True)}

    def judged(self, ended: Sequence[Result]) -> Judgement:
        """Return what runs of one candidate measured, a run a seed."""
        scores = np.array([_score(run, self.goal.of) for run in ended])
        blocks = [run.metrics["specsim"]["classes"] for run in ended if not isinstance(run, Failure)]
        names = sorted({name for block in blocks for name in block})
        classes = {
            name: np.array([block[name]["slo_attainment"] for block in blocks if name in block]) for name in names
        }
        return Judgement(scores[:, 0], scores[:, 1], classes)


def split(first: Configured, objects: Objects) -> Parts:
    """Return the part of the traffic that tunes and the one that judges.

    The seeds draw a synthetic trace anew. Of a recording the first half of the window tunes and the second judges; each
    seed draws blocks of it, unless the settings say how.
    """
    config = first.config
    handed = objects.of(config["choices"])
    source = recipe(config, handed)
    if "arrivals" in source.reader.drawn:
        return Parts({}, {}, ("other seeds of the trace tune than judge",))
    shared: dict[str, Any] = {} if config["requests"] is not None else {"requests": REQUESTS}
    trace = replace(source, block_s=None).trace(0, clients=True)
    if not trace.source.timed or (handed.trace is None and "window" not in config["trace"]):
        return Parts(shared, shared, ("the trace cannot be cut: the same requests tune and judge, with other seeds",))
    start, stop = source.window or (0.0, float(ceil(trace.arrival_s[-1])))
    middle = (start + stop) / 2
    block_s = source.block_s or min(BLOCK_S, (middle - start) / BLOCKS)

    def part(*window: float) -> Point:
        below = {"window": list(window), "resample": block_s}
        if handed.trace is not None:
            (name,) = objects.taken("trace", [handed.trace.trace], below)
            return {**shared, "trace": name}
        return {**shared, **{f"trace.{key}": python_value(key, value) for key, value in below.items()}}

    said = (
        f"seconds {start:g} to {middle:g} of the trace tune, {middle:g} to {stop:g} judge; each seed draws blocks anew"
    )
    return Parts(part(start, middle), part(middle, stop), (said,))


def _rate(config: Mapping[str, Any], objects: Objects) -> float | None:
    """Return the rate of arrivals, requests/s; None where clients wait for their answers."""
    if config["concurrency"] is not None:
        return None
    if config["rps"] is not None:
        return float(config["rps"])
    arrival_s = prepare(config, objects.of(config["choices"])).simulation.requests.arrival_s
    return float(f"{(len(arrival_s) - 1) / max(float(arrival_s[-1] - arrival_s[0]), 1e-9):.3g}")


def _conditions(config: Mapping[str, Any], rate: float | None, error: float | None) -> Iterator[tuple[str, Point]]:
    """Yield what may be otherwise than it was given, and the settings that say so.

    Passes that take (1 + e) times as long under a load meet their objectives as often as today's passes do under a load
    (1 + e) times as high with objectives of 1 / (1 + e): time itself has another unit.
    """
    if error:
        for sign, word in ((1, "slower"), (-1, "faster")):
            slower = 1 + sign * error
            yield (
                f"passes {100 * error:.2g}% {word}",
                {**_load(config, rate, slower), **_objectives(config, 1 / slower)},
            )
    for factor in (1 - OFF, 1 + OFF):
        said = f"{100 * abs(factor - 1):.0f}% {'lower' if factor < 1 else 'higher'}"
        scale = factor * (config["acceptance_scale"] or 1)
        if config["acceptance"].get("kind") != "recorded":
            yield f"acceptance {said}", {"acceptance_scale": f"{scale:g}"}
        if load := _load(config, rate, factor):
            yield f"{'load' if rate is None else 'rate'} {said}", load
        if objectives := _objectives(config, factor):
            yield f"objectives {100 * OFF:.0f}% {'tighter' if factor < 1 else 'looser'}", objectives


def _load(config: Mapping[str, Any], rate: float | None, factor: float) -> Point:
    if rate is not None:
        return {"rps": f"{rate * factor:.6g}"}
    clients = config["concurrency"]
    changed = round(clients * factor)
    return {} if changed in (0, clients) else {"concurrency": str(changed)}


def _objectives(config: Mapping[str, Any], factor: float) -> Point:
    """Return the objectives of a mix times a factor; none where an object or the trace states them."""
    mix = config["slo"]
    holders = {"slo": mix, **{f"slo.classes.{name}": each for name, each in (mix.get("classes") or {}).items()}}
    return {
        f"{holder}.{name}": python_value(name, each[name] * factor)
        for holder, each in holders.items()
        for name in OBJECTIVES
        if each.get(name) is not None
    }


def _held_out_error(profile: Mapping[str, Any]) -> float | None:
    """Return the largest median of the held-out relative errors of a kind of pass, of the target or the drafter."""
    stated = [(profile.get(role) or {}).get("held_out_error") or {} for role in ("target", "draft")]
    kinds = [kind for each in stated for kind in (each.get(profile.get("form")) or {}).values()]
    return max((kind["median"] for kind in kinds if "median" in kind), default=None)


def _highest(judge: _Judge, places: Sequence[int], rate: float) -> Found:
    """Return the highest rates at which candidates keep the target, on the judging part."""
    runs, goal = judge.runs, judge.goal

    def at(tested: float) -> list[Configured]:
        return [
            runs.configured(each.scheduler, each.settings, {**judge.part, "rps": f"{tested!r}", "seed": str(seed)})
            for each in (judge.candidates[place] for place in places)
            for seed in goal.seeds
        ]

    low, high = (float(f"{rate * each:.4g}") for each in (LOWEST, HIGHEST))
    asked = Asked(goal.target, low, high, WITHIN, LONGEST)
    return search(asked, goal.of, at, runs.root, runs.objects, say=runs.say, **runs.how)


def _replicas(judge: _Judge, given: Judgement, found: Found, rate: float, first: Configured) -> int | None:
    """Return how many servers keep the target at the rate; None where a few more than seems needed do not, either."""
    if given.measure.mean() >= judge.goal.target:
        return int(first.config["replicas"])
    one = found.capacity(found.lines[0]).keeps
    if one is None or first.config["replicas"] != 1:
        return None
    fewest = max(2, ceil(rate / (one * (1 + WITHIN))))
    for servers in range(fewest, fewest + FURTHER):
        judge.runs.say(f"judging: {servers} servers")
        if judge([0], {"replicas": str(servers)})[0].measure.mean() >= judge.goal.target:
            return servers
    return None


def _exported(judge: _Judge, asof: Mapping[int, Judgement], first: Configured) -> tuple[Export | None, list[str]]:
    """Return the best candidate that the engine can express, run back, and lines about it and those before it."""
    engine, said = judge.goal.export, list[str]()
    if engine is None:
        return None, said
    for place, each in enumerate(judge.candidates):
        try:
            found = exported(each, first.config["choices"]["drafter"], engine)
        except Inexpressible as why:
            said.append(f"export {engine}: not {each.scheduler}: {why}")
            continue
        (ended,) = judge.runs([(found.scheduler, found.settings)], judge.part, judge.goal.seeds)
        measure = judge.judged(ended).measure
        mean, half_width = mean_interval(measure - asof[place].measure)
        apart = f"{mean:+.3g} \u00b1 {half_width:.2g}" if half_width > 0 else f"{mean:+.3g}"
        said.append(f"export {engine}: {each.name}; run back as {found.scheduler} it measures {apart} from that")
        return found._replace(of=place, measure=measure), said
    return None, [*said, f"export {engine}: nothing is written: it can express none of them"]


def _fewer(searches: Sequence[Search], trials: int) -> Iterator[str]:
    few = [f"{each.space.scheduler} {len(each.scores)}" for each in searches if len(each.scores) < trials]
    if few:
        yield f"all choices were tried where they are fewer than {trials} trials: {', '.join(few)}"


def identity_of(point: Point, schedulers: Mapping[str, Any], goal: Goal, objects: Objects = NO_OBJECTS) -> str:
    """Return what two searches for the same share."""
    settings = settings_of(with_settings(point, {SCHEDULER: next(iter(schedulers))}, objects.described).config)
    return identity({**settings, "goal": str(goal), "schedulers": str(dict(schedulers))})


def check_trials(trials: int) -> int:
    """Return a number of trials; SpecsimError where it is below 2."""
    if type(trials) is not int or trials < 2:
        raise SpecsimError(f"trials={trials}: expected a whole number of at least 2")
    return trials
