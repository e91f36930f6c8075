"""Each scheduler's settings searched on one part of the traffic, and judged on another.

Few seeds judge many settings, more seeds those that do well (successive halving).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import ceil
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.config.configured import Configured, from_point
from specsim.config.groups import Combination, Space, space_of
from specsim.config.points import Point
from specsim.config.values import python_value
from specsim.errors import SpecsimError, one_line
from specsim.latency.model import Profile
from specsim.metrics.any_run import AnyRun
from specsim.metrics.capacity import LEAST_SEEDS, Asked, mean_interval
from specsim.metrics.seeds import depends_on_length
from specsim.metrics.sweep_table import short_names
from specsim.metrics.tables import stand_in
from specsim.runs.executors import LOCAL
from specsim.runs.objects import Objects
from specsim.runs.plan import checked, plan
from specsim.runs.prepare import prepare
from specsim.runs.sweep import in_order, run_all, together
from specsim.search.conditions import Condition, conditions, error_of, rate_of, several_kinds, split
from specsim.search.exports import ENGINES, Inexpressible, exported, kind_of, server_of
from specsim.search.find import check_whose, search
from specsim.search.found import Found, judged
from specsim.search.tuned import (
    AS_GIVEN,
    PLAIN,
    THROUGHPUT,
    Candidate,
    Export,
    Judgement,
    Score,
    Tuned,
    overtaker,
    score,
)
from specsim.store.summaries import Failure

if TYPE_CHECKING:
    from optuna import Study


MOST_SEEDS = 8
"""Seeds of the last two trials."""
BATCHES = 2
"""Of the trials that follow from those before, where there are more choices than trials."""
PATIENCE = 20
"""Proposals for each trial: a sampler may propose what was tried."""

RunChoices = Callable[[Sequence[tuple[int, Combination]], Sequence[int]], Sequence[Sequence[Score]]]
"""Runs choices, each with the place of its search, with some seeds; returns for each choice the score of each seed."""


class Search:
    """The trials of one scheduler.

    All choices are tried if they are no more than `trials`. Otherwise half of the trials are drawn, and the others are
    proposed by a tree-structured Parzen estimator (Bergstra et al., NIPS 2011; Optuna's), which sees what came of those
    before. It draws the same for the same scores, so a search that was stopped goes on where it was.
    """

    def __init__(self, space: Space, trials: int) -> None:
        self.space, self.trials = space, min(trials, len(space))
        self.scores: dict[Combination, list[Score]] = {}
        self._study = _study(self.trials // 2) if self.trials < len(space) else None

    def ask(self) -> list[Combination]:
        """Return the choices to try next; none once there were as many as asked for."""
        left = self.trials - len(self.scores)
        if self._study is None or not left:
            return list(self.space.choices()) if left else []
        most = self.trials // 2 if not self.scores else ceil((self.trials - self.trials // 2) / BATCHES)
        return self._proposed(self._study, min(left, max(most, 1)))

    def mean(self, choice: Combination) -> Score:
        """Return the mean score of a choice over its seeds."""
        return Score(*np.mean(self.scores[choice], axis=0).tolist())

    def ranked(self, among: Sequence[Combination] = ()) -> list[Combination]:
        """Return choices, those tried with the most seeds first, and of these the best."""
        return sorted(among or self.scores, key=lambda each: (-len(self.scores[each]), *(-x for x in self.mean(each))))

    def _proposed(self, study: Study, count: int) -> list[Combination]:
        from optuna.distributions import IntDistribution
        from optuna.trial import TrialState, create_trial

        sizes = enumerate(map(len, self.space.values.values()))
        places = {str(each): IntDistribution(0, size - 1) for each, size in sizes}
        for choice in list(self.scores)[len(study.get_trials(states=(TrialState.COMPLETE,))) :]:
            params = {str(each): place for each, place in enumerate(choice)}
            value = self.scores[choice][0].measure
            study.add_trial(create_trial(params=params, distributions=dict(places), value=value))
        found: dict[Combination, None] = {}
        for _ in range(PATIENCE * count):
            if len(found) == count:
                break
            trial = study.ask(dict(places))
            choice = tuple(trial.params[name] for name in places)
            study.tell(trial, state=TrialState.FAIL)
            if choice not in self.scores:
                found[choice] = None
        fill = (each for each in self.space.choices() if each not in self.scores and each not in found)
        return [*found, *(next(fill) for _ in range(count - len(found)))]


def _study(drawn: int) -> Study:
    with warnings.catch_warnings():
        # In Jupyter without ipywidgets its import warns of a bar that it then draws as text.
        warnings.simplefilter("ignore")
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    sampler = optuna.samplers.TPESampler(seed=0, n_startup_trials=max(drawn, 1))
    return optuna.create_study(direction="maximize", sampler=sampler)


def halved(searches: Sequence[Search], seeds: Sequence[int], run: RunChoices, say: Callable[[str], None]) -> None:
    """Try what each search asks for with the first of `seeds`, then its better half with twice as many, down to two.

    Every trial with so many seeds meets the same requests and texts (common random numbers).
    """
    while asked := [(place, each) for place, search in enumerate(searches) for each in search.ask()]:
        say(f"tuning: {len(asked)} trials with one seed")
        _hear(searches, asked, run(asked, seeds[:1]))
    alive, count = [search.ranked() for search in searches], 1
    while count < len(seeds) and any(len(each) > 2 for each in alive):
        alive = [
            search.ranked(each)[: max(2, ceil(len(each) / 2))] if len(each) > 2 else []
            for search, each in zip(searches, alive, strict=True)
        ]
        asked = [(place, each) for place, those in enumerate(alive) for each in those]
        say(f"tuning: {len(asked)} trials with {2 * count} seeds")
        _hear(searches, asked, run(asked, seeds[count : 2 * count]))
        count *= 2


def _hear(
    searches: Sequence[Search], asked: Sequence[tuple[int, Combination]], scores: Sequence[Sequence[Score]]
) -> None:
    for (place, choice), each in zip(asked, scores, strict=True):
        searches[place].scores.setdefault(choice, []).extend(each)


WITHIN = 0.05
"""How close the two rates of an answer lie."""
LOWEST, BEYOND, HIGHEST = 1 / 4, 1 / 64, 16.0
"""Of the rates to look in, times the rate that is tuned for: where it is kept, where it is not, and the last."""
LONGEST = 4000
FURTHER = 3
"""Servers that are tried beyond the fewest that the highest rate of one would need."""
TRIALS, DEFAULT = ("best trial", "second trial"), "default settings"
SCHEDULER, TRACE = "scheduler", "trace"
Say = Callable[[str], None]
Result = AnyRun | Failure


class Goal(NamedTuple):
    """The aim: the most of a measure `of` a run, and the share of the requests that is to be kept.

    `trials` of each scheduler; `seeds` judge; `export` is the engine whose settings are wanted. `sensitivity`: the best
    are judged under other conditions, too, and their highest rate is found.
    """

    of: str
    target: float
    trials: int
    seeds: Sequence[int]
    export: str | None = None
    sensitivity: bool = True


def tune(
    point: Point,
    schedulers: Mapping[str, Mapping[str, Sequence[Any]]],
    goal: Goal,
    root: Path | None,
    objects: Objects | None = None,
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
    objects = Objects() if objects is None else objects
    runs = _Runs(point, objects, root, jobs, executor, progress, say)
    first, *_ = [runs.configured(name, {}, {}) for name in schedulers]
    if goal.export and several_kinds(first.settings):
        raise SpecsimError(f"export {goal.export}: split.prefill or replica_profiles; expected servers of one kind")
    searches = [Search(space_of(name, given), goal.trials) for name, given in {PLAIN: {}, **schedulers}.items()]
    if goal.of != THROUGHPUT:
        check_whose(goal.of, first)
    experiment = prepare(first, objects.of(first.chosen))
    parts, rate, profile = split(first, objects), rate_of(first.settings, experiment), experiment.profiles[0]
    _search(searches, runs, goal, parts.tuning)
    judge = _Judge(runs, goal, parts.judging, _finalists(searches, runs, alone=len(schedulers) == 1))
    candidates, given = judge.ranked()
    plain_at = next(place for place, each in enumerate(candidates) if each.scheduler == PLAIN)
    shown, error, judgements = sorted({0, min(1, len(candidates) - 1), plain_at}), error_of(profile), {AS_GIVEN: given}
    further = conditions(first, rate, error[0], parts.clients, attainment=goal.of != THROUGHPUT)
    for each in further if goal.sensitivity else ():
        say(f"judging: {each.said}")
        judgements[each.said] = judge.under(each, shown, given, plain_at)
    searched, found = sorted({0, plain_at or shown[-1], overtaker(judgements)[1]}), None
    if goal.sensitivity and rate is not None and goal.of != THROUGHPUT:
        found = _highest(judge, searched, rate, kept=float(given[0].measure.mean()) >= goal.target)
    carried = _carried(judge, searched, found, rate, first, given[0])
    trials = {each.space.scheduler: len(each.scores) for each in searches}
    export, lines = _exported(judge, given, first, profile, carried)
    lines += _chosen(searches, goal, candidates[0], given[0])
    if found is not None:
        lines += _doubts(found, [candidates[place].label for place in searched], given[0], goal)
    notes = [*parts.notes, *experiment.notes, *experiment.drafting_notes, *lines, *_fewer(searches, goal.trials)]
    told = goal.of, goal.target, rate, trials, candidates, judgements, *error, found, searched, profile.gpus, *carried
    stands_in = [*filter(None, [stand_in(experiment.source.name, experiment.source.origin)])]
    return Tuned(*told, experiment.known_drafts, export, stands_in, [*notes, *together(runs.notes)])


class _Runs:
    """Runs configurations of schedulers with seeds, and stores them below `root`."""

    def __init__(
        self, point: Point, objects: Objects, root: Path | None, jobs: int, executor: str, progress: bool, say: Say
    ) -> None:
        self.point, self.objects, self.root, self.say = point, objects, root, say
        self.how: dict[str, Any] = {"jobs": jobs, "executor": executor}
        self.progress = progress
        self.keys: list[str] = []
        self.notes: list[str] = []

    def configured(self, scheduler: str, settings: Mapping[str, Any], further: Point) -> Configured:
        """Return a point of a scheduler with settings of keys below it, and further ones."""
        read = {key for key in self.point if TRACE in further and key.startswith(f"{TRACE}.")}
        point = {key: each for key, each in self.point.items() if key not in read}
        # A text is read as on a command line.
        below = {
            f"{SCHEDULER}.{key}": value if isinstance(value, str) else python_value(key, value)
            for key, value in settings.items()
        }
        return from_point({**point, SCHEDULER: scheduler, **below, **further}, self.objects.described)

    def __call__(
        self, configurations: Sequence[tuple[str, Mapping[str, Any]]], further: Point, seeds: Sequence[int]
    ) -> list[list[Result]]:
        """Return what came of each configuration with each seed."""
        points = [
            self.configured(scheduler, settings, {**further, "seed": str(seed)})
            for scheduler, settings in configurations
            for seed in seeds
        ]
        ready = checked(points, self.objects, idle=not self.keys, **self.how)
        planned = plan(ready, self.root, keep="summary", begun=bool(self.keys))
        made = run_all(planned, self.root, beside=self.keys, progress=self.progress, **self.how)
        self.keys += [each.key for each in planned]
        self.notes += made.whole_notes
        self.notes += [f"a run failed, and counts as 0: {one_line(each.error)}" for each in made.failures[:1]]
        ended = in_order(points, made)
        return [ended[place : place + len(seeds)] for place in range(0, len(ended), len(seeds))]


def _score(run: Result, of: str) -> Score:
    """Return the score of a run; a failed run attains nothing."""
    return Score(0.0, -np.inf) if isinstance(run, Failure) else score(run.metrics, of)


def _search(searches: Sequence[Search], runs: _Runs, goal: Goal, part: Point) -> None:
    """Try settings on a part of the traffic, with seeds that do not judge."""

    def tried(asked: Sequence[tuple[int, Combination]], seeds: Sequence[int]) -> list[list[Score]]:
        spaces = [(searches[place].space, choice) for place, choice in asked]
        ended = runs([(space.scheduler, space.settings(choice)) for space, choice in spaces], part, seeds)
        return [[_score(run, goal.of) for run in those] for those in ended]

    first = max(goal.seeds) + 1
    halved(searches, range(first, first + MOST_SEEDS), tried, runs.say)


def _finalists(searches: Sequence[Search], runs: _Runs, *, alone: bool) -> list[Candidate]:
    """Return the best choice of each search, and the second where a scheduler stands `alone`."""
    found, short = [], short_names(of.space.scheduler for of in searches)
    for of in searches:
        name = of.space.scheduler
        words = TRIALS if alone and name != PLAIN and len(of.scores) > 1 else ("",)
        default = runs.configured(name, {}, {}).chosen.scheduler.values
        for word, choice in zip(words, of.ranked(), strict=False):
            settings = of.space.settings(choice)
            keys = runs.configured(name, settings, {}).chosen.scheduler.values
            said = DEFAULT if word and keys == default else word
            found.append(Candidate(name, settings, keys, of.mean(choice).measure, said, short[name]))
    return found


class _Fleet(NamedTuple):
    """The servers that keep the target at the rate, their candidate's place, and what they, or as many as `tried`, did.

    `fleet` is None where the settings alone say how many servers there are.
    """

    replicas: int | None
    carrier: int
    fleet: Judgement | None
    tried: int


class _Judge:
    """Runs candidates on the judging part."""

    def __init__(self, runs: _Runs, goal: Goal, part: Point, candidates: Sequence[Candidate]) -> None:
        self.runs, self.goal, self.part, self.candidates = runs, goal, part, candidates

    def __call__(self, places: Sequence[int], changed: Point) -> dict[int, Judgement]:
        """Return what candidates measured under changed settings, by their place."""
        chosen = [(self.candidates[place].scheduler, self.candidates[place].settings) for place in places]
        ended = self.runs(chosen, {**self.part, **changed}, self.goal.seeds)
        return {place: self.judged(those) for place, those in zip(places, ended, strict=True)}

    def ranked(self) -> tuple[Sequence[Candidate], dict[int, Judgement]]:
        """Return the candidates, the best first from now on, and what each measured."""
        self.runs.say(f"judging: {len(self.candidates)} configurations with {len(self.goal.seeds)} seeds")
        given = self(range(len(self.candidates)), {})
        order = sorted(given, key=lambda place: (-given[place].measure.mean(), -given[place].quickness.mean()))
        self.candidates = [self.candidates[place] for place in order]
        return self.candidates, {place: given[old] for place, old in enumerate(order)}

    def under(
        self, condition: Condition, places: Sequence[int], given: Mapping[int, Judgement], plain_at: int
    ) -> dict[int, Judgement]:
        """Return what candidates measure under a condition; a condition of drafts leaves plain decoding as `given`."""
        asked = [place for place in places if place != plain_at or not condition.drafts]
        per = condition.unit_s if self.goal.of == THROUGHPUT else 1.0
        found = self(asked, condition.changed)
        return {
            place: found[place]._replace(measure=found[place].measure / per) if place in found else given[place]
            for place in places
        }

    def judged(self, ended: Sequence[Result]) -> Judgement:
        """Return what runs of one candidate measured, a run a seed."""
        scores = np.array([_score(run, self.goal.of) for run in ended])
        blocks = [run.metrics["specsim"] for run in ended if not isinstance(run, Failure)]
        names = sorted({name for block in blocks for name in block["classes"]})
        of = {name: [block["classes"][name] for block in blocks if name in block["classes"]] for name in names}
        classes = {name: np.array([part["slo_attainment"] for part in parts]) for name, parts in of.items()}
        overloaded = sum(depends_on_length(block["load"]) for block in blocks)
        shares = self.goal.of != THROUGHPUT
        too_short = sum(shares and judged(block, self.goal.of).too_short for block in blocks)
        of_positions = "spec_decode_num_accepted_tokens_per_pos"
        drafts = max((len(run.metrics[of_positions]) for run in ended if not isinstance(run, Failure)), default=0)
        return Judgement(scores[:, 0], scores[:, 1], classes, overloaded, too_short, drafts)


def _highest(judge: _Judge, places: Sequence[int], rate: float, *, kept: bool) -> Found:
    """Return the highest rates at which candidates keep the target, on the judging part."""
    runs, goal = judge.runs, judge.goal

    def at(tested: float) -> list[Configured]:
        return [
            runs.configured(each.scheduler, each.settings, {**judge.part, "rps": f"{tested!r}", "seed": str(seed)})
            for each in (judge.candidates[place] for place in places)
            for seed in goal.seeds
        ]

    low, high = (float(f"{rate * each:.4g}") for each in (LOWEST if kept else BEYOND, HIGHEST))
    asked = Asked(goal.target, low, high, WITHIN, LONGEST)
    return search(
        asked, goal.of, at, runs.root, runs.objects, say=runs.say, idle=False, progress=runs.progress, **runs.how
    )


def _doubts(found: Found, names: Sequence[str], best: Judgement, goal: Goal) -> Iterator[str]:
    """Yield why runs at the rate, or the highest rates, may not tell what longer runs would."""
    if best.measure.mean() < goal.target:
        said = f"no configuration keeps {100 * goal.target:g}% at the rate"
        yield f"{said}: settings are better tuned at one that is carried, or with replicas=N"
    if best.overloaded:
        said = f"{best.overloaded} of {len(goal.seeds)} runs of the best at the rate are overloaded or near saturation"
        yield f"{said}: longer ones would attain less"
    for name, line in zip(names, found.lines, strict=True):
        yield from (f"highest rate with {name}: {each}" for each in found.doubts(line))


def _carried(
    judge: _Judge, searched: Sequence[int], found: Found | None, rate: float | None, first: Configured, given: Judgement
) -> _Fleet:
    """Return the fewest servers that keep the target at the rate, of the candidate that needs fewest.

    `given` is what those of the settings measured. None where no rate was found, or a few more than seem needed do not.
    """
    target, typed = judge.goal.target, first.settings.replicas
    if found is None or rate is None or several_kinds(first.settings):
        return _Fleet(None, 0, None, typed)
    lines = dict(zip(searched, found.lines, strict=True))
    each_carries = {place: (found.capacity(line).keeps or 0.0) / typed for place, line in lines.items()}
    place = max(each_carries, key=lambda each: each_carries[each])
    kept = float(given.measure.mean()) >= target
    tried = _Fleet(typed if kept else None, 0, given, typed)
    if not each_carries[place]:
        return tried
    least = 1 if kept else typed + 1
    needed = max(least, ceil(rate / (each_carries[place] * (1 + WITHIN))))
    most = typed - 1 if kept else needed + FURTHER - 1
    # Where those that one server's rate asks for keep the target, fewer may: a router evens out what comes.
    servers, step = min(needed, most), 0
    while least <= servers <= most:
        judge.runs.say(f"judging: {servers} server{'s' * (servers > 1)}")
        try:
            fleet = judge([place], {"replicas": str(servers)})[place]
        except SpecsimError as error:  # A router may not take so many servers.
            judge.runs.notes.append(f"{servers} servers are not tried: {error}")
            step = step or -(servers == most)
            servers += step or 1
            continue
        keeps = float(fleet.measure.mean()) >= target
        if keeps or tried.replicas is None:
            tried = _Fleet(servers if keeps else None, place, fleet, servers)
        step = step or (-1 if keeps else 1)
        if keeps == (step > 0):
            break
        servers += step
    return tried


def _exported(
    judge: _Judge, asof: Mapping[int, Judgement], first: Configured, profile: Profile, carried: _Fleet
) -> tuple[Export | None, list[str]]:
    """Return the best candidate that the engine can express, run back, and lines about it and those before it."""
    engine, said = judge.goal.export, list[str]()
    if engine is None:
        return None, said
    drafter = kind_of(first.chosen.drafter.name, profile.draft.name)
    server, served_by = server_of(profile), first.chosen.engine.name
    if any(Path(served_by).stem.startswith(each) for each in ENGINES if each != engine):
        said.append(f"export {engine}: tuned on engine={served_by}; expected one that serves as {engine} does")
    for place, each in enumerate(judge.candidates):
        made = judge.runs.configured(each.scheduler, each.settings, judge.part)
        ran = prepare(made, judge.runs.objects.of(made.chosen))
        try:
            found = exported(each, drafter, engine, server._replace(stated=ran.limits))
        except Inexpressible as why:
            said.append(f"export {engine}: not {each.label}: {why}")
            continue
        (ended,) = judge.runs([(found.scheduler, found.settings)], judge.part, judge.goal.seeds)
        measure = judge.judged(ended).measure
        mean, half_width = (round(each, 9) for each in mean_interval(measure - asof[place].measure))
        known = half_width > 0 and len(measure) >= LEAST_SEEDS
        apart = f"{mean:+.3g} \u00b1 {half_width:.2g}" if known else f"{mean:+.3g}"
        said.append(f"export {engine}: {each.name}; run back as {found.scheduler} it measures {apart} from that")
        servers = (place == carried.carrier and carried.replicas) or first.settings.replicas
        routed = first.chosen.router.name if servers > 1 else None
        return found._replace(of=place, measure=measure, servers=servers, router=routed), said
    return None, [*said, f"export {engine}: nothing is written: it can express none of them"]


def _chosen(searches: Sequence[Search], goal: Goal, best: Candidate, given: Judgement) -> Iterator[str]:
    """Yield what chose the best where its measure did not, and where it has a value at an end of those tried."""
    if goal.of != THROUGHPUT and given.measure.min() == 1:
        yield "every run of the best attains 100%: its time per token chose it; a higher rate tells more"
    of = next(each for each in searches if each.space.scheduler == best.scheduler)
    if ends := of.space.ends(next(each for each in of.scores if of.space.settings(each) == best.settings)):
        yield f"{best.label}: of the values that were tried {', '.join(ends)}; scheduler.KEY=... tries others"


def _fewer(searches: Sequence[Search], trials: int) -> Iterator[str]:
    few = [f"{each.space.scheduler} {len(each.scores)}" for each in searches if len(each.scores) < trials]
    if few:
        yield f"all choices were tried where they are fewer than {trials} trials: {', '.join(few)}"


def check_trials(trials: int) -> int:
    """Return a number of trials; SpecsimError where it is below 2."""
    if type(trials) is not int or trials < 2:
        raise SpecsimError(f"trials={trials}: expected a whole number of at least 2")
    return trials
