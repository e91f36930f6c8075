"""An engine's host seconds, fitted to half of the points, with errors on the other half."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.calibration.reading import Held, MeasuredPoint, MeasuredServer, counted
from specsim.calibration.replay import Floats
from specsim.latency.engine import LABELS, Engine

CLIENTS = (4, 16, 64, 256)
CONTEXTS = (2048, 8192, 32768)


class Errors(NamedTuple):
    """Relative errors of some points: the median and the 90th percentile of their size, and their mean, signed."""

    median: float
    p90: float
    mean: float

    @classmethod
    def of(cls, errors: Sequence[float]) -> Errors:
        """Return those of (simulated - measured) / measured."""
        sizes = np.abs(errors)
        return cls(float(np.median(sizes)), float(np.quantile(sizes, 0.9)), float(np.mean(errors)))

    def __str__(self) -> str:
        return f"{100 * self.median:.1f} / {100 * self.p90:.1f} / {100 * self.mean:+.1f}"


class Group(NamedTuple):
    """Some points, and how far their TPOT, E2E latency and TTFT are off."""

    name: str
    points: int
    tpot: Errors
    e2e: Errors
    ttft: Errors

    @classmethod
    def of(cls, name: str, held: Sequence[Held]) -> Group:
        """Return the group of these points."""
        columns = ([each.tpot_error for each in held], [each.e2e_error for each in held])
        ttft = [each.ttft_error for each in held]
        return cls(name, len(held), *(Errors.of(each) for each in (*columns, ttft)))


def by_concurrency(held: Sequence[Held]) -> Iterator[tuple[str, list[Held]]]:
    """Yield the points with so many requests in flight, fewest first, under a name."""
    return _grouped(held, "concurrency", CLIENTS, lambda each: each.measured.in_flight)


def by_context(held: Sequence[Held]) -> Iterator[tuple[str, list[Held]]]:
    """Yield the points whose requests end at some context (prompt and output), shortest first, under a name."""
    return _grouped(held, "context", CONTEXTS, lambda each: sum(each.measured.load[:2]))


def by_drafts(held: Sequence[Held]) -> Iterator[tuple[str, list[Held]]]:
    """Yield the points of each draft length, none first, under a name; nothing where no point speculates."""
    drafts = sorted({each.measured.load.drafts for each in held})
    for count in drafts if any(drafts) else ():
        yield (
            f"{count} draft tokens" if count else "no drafts",
            [each for each in held if each.measured.load.drafts == count],
        )


def groups(held: Sequence[Held]) -> list[Group]:
    """Return all points, then those of some clients, of some contexts, and of each draft length."""
    parts = [*by_concurrency(held), *by_context(held), *by_drafts(held)]
    return [Group.of("all", held), *(Group.of(*each) for each in parts)]


def _grouped(
    held: Sequence[Held], name: str, bounds: Sequence[int], size: Callable[[Held], float]
) -> Iterator[tuple[str, list[Held]]]:
    """Yield what lies up to each bound, and what lies beyond the last."""

    def bracket(each: Held) -> int:
        return int(np.searchsorted(bounds, size(each)))

    for place, some in groupby(sorted(held, key=bracket), key=bracket):
        above = f"{bounds[place - 1] + 1:,}" if place else "1"
        yield f"{name} {above}-{bounds[place]:,}" if place < len(bounds) else f"{name} from {above}", list(some)


PIPELINE_STEPS = (0, 1, 2)
FRONTENDS_S = (0.0, 1e-3, 2e-3, 5e-3, 1e-2, 2e-2)
"""Values that are tried for the two keys that TTFT tells: a pass is too coarse a clock for finer steps."""
TURNS = 3
"""Of a fit at most: behind a frontend the passes depend on their seconds, and the way in on the host time."""
STEPS_S = (1e-4, 5e-6)
"""By which the two host seconds are moved to see how open loops change, whose passes hold more the longer they take."""
SETTLED = 1e-3
MOST_SLOPES = 8
"""Where a fit of open loops ends: a relative change this small, or so many slopes."""
MOST_LAUNCH_S, LAUNCH_STEP_S = 2e-2, 1e-6
"""Of the drafter's launch: the most that is tried, and how finely."""


@dataclass(frozen=True, slots=True)
class Fit:
    """How points become an engine: from `base`, its host time alone or its way in (`whole`), too."""

    server: MeasuredServer
    base: Engine
    whole: bool = False

    def engine(self, points: Sequence[MeasuredPoint]) -> Engine:
        """Return the engine that comes closest to the points, in least squares of relative errors.

        Its host time is told by the points without speculation; without any it stays the base's.
        """
        plain = [point for point in points if not point.load.drafts]
        engine = self._host(plain, self.base) if plain else self.base
        for _ in range(TURNS if self.whole and plain else 0):
            before, engine = engine, self._host(plain, self._way_in(plain, engine))
            if (before.pipeline_steps, before.frontend_s) == (engine.pipeline_steps, engine.frontend_s):
                break
        return self._drafter([point for point in points if point.load.drafts], engine)

    def _drafter(self, points: Sequence[MeasuredPoint], engine: Engine) -> Engine:
        """Return the engine with the drafter's launch and, where chains differ in length, the speculation's time."""
        from scipy.optimize import minimize_scalar, nnls

        if not points:
            return engine
        measured = np.array([point.tpot_s for point in points])
        differ = len({point.load.drafts for point in points}) > 1

        def launched(launch_s: float) -> Engine:
            tried = replace(engine, draft_launch_s=float(launch_s))
            if not differ:
                return tried
            tried = replace(tried, speculation_s=0.0)
            rest = np.array([each.simulated.tpot_s for each in self.server.simulated(points, tried)])
            steps = np.array([self.server.costs(point.load, tried)[1].passes for point in points])
            (speculation_s,), _ = nnls((steps / measured)[:, None], 1 - rest / measured)
            return replace(tried, speculation_s=float(speculation_s))

        def loss(launch_s: float) -> float:
            return sum(each.tpot_error**2 for each in self.server.simulated(points, launched(launch_s)))

        found = minimize_scalar(loss, bounds=(0, MOST_LAUNCH_S), method="bounded", options={"xatol": LAUNCH_STEP_S})
        # A launch that hides behind the drafter's kernels changes nothing.
        return launched(min(0.0, float(found.x), key=loss))

    def _way_in(self, points: Sequence[MeasuredPoint], engine: Engine) -> Engine:
        """Return the engine with the steps and the frontend that come closest to TTFT; of several, what adds least.

        A way is left at the first point with which it is further off than the best before it.
        """
        ways = [
            replace(engine, pipeline_steps=steps, frontend_s=frontend_s)
            for steps in PIPELINE_STEPS
            for frontend_s in FRONTENDS_S
        ]
        best, least = engine, np.inf
        for way in ways:
            loss = 0.0
            for (held,) in (self.server.simulated([point], way) for point in points):
                loss += held.ttft_error**2
                if loss >= least:
                    break
            else:
                best, least = way, loss
        return best

    def held_out(self, points: Sequence[MeasuredPoint]) -> list[Held]:
        """Return every point, in order, beside its simulation on an engine that was fitted to the other half."""
        halves = halved(points)
        held: dict[MeasuredPoint, Held] = {}
        for fitted, left_out in (halves, halves[::-1]):
            held.update((each.measured, each) for each in self.server.simulated(left_out, self.engine(fitted)))
        return [held[point] for point in points]

    def host_share(self, points: Sequence[MeasuredPoint], engine: Engine) -> float:
        """Return the median share of the points' TPOT that an engine's kernels leave to its host; negative: none."""
        kernels = self.server.simulated(points, replace(engine, overhead_s=0.0, request_s=0.0))
        return float(np.median([-each.tpot_error for each in kernels]))

    def _host(self, points: Sequence[MeasuredPoint], engine: Engine) -> Engine:
        """Return the engine with the host time (at least 0) that the points' TPOT asks for."""
        from scipy.optimize import nnls

        measured = np.array([point.tpot_s for point in points])
        at_a_rate = any(point.load.rate for point in points)
        for _ in range(TURNS if engine.frontend_s and not at_a_rate else 1):
            costs = [self.server.costs(point.load, engine)[1] for point in points]
            rest, passes, rows = np.array(costs).T / measured
            host_s, _ = nnls(np.column_stack([passes, rows]), 1 - rest)
            engine = _with_host(engine, host_s)
        return self._host_at_a_rate(points, engine) if at_a_rate else engine

    def _host_at_a_rate(self, points: Sequence[MeasuredPoint], engine: Engine) -> Engine:
        """Return the engine that comes closest where passes depend on their seconds, from a first guess."""
        from scipy.optimize import least_squares

        steps = np.array(STEPS_S)

        @cache
        def cached(*in_steps: float) -> Floats:
            held = self.server.simulated(points, _with_host(engine, np.array(in_steps) * steps))
            return np.array([each.tpot_error for each in held])

        def errors(in_steps: Floats) -> Floats:
            return cached(*in_steps.tolist())

        def slopes(in_steps: Floats) -> Floats:
            return np.column_stack([errors(in_steps + moved) - errors(in_steps) for moved in np.eye(len(steps))])

        guess = np.array([engine.overhead_s, engine.request_s]) / steps
        bounds = (0, np.inf)
        found = least_squares(errors, guess, slopes, bounds, xtol=SETTLED, ftol=SETTLED, max_nfev=MOST_SLOPES)
        # The search ends a little inside its bound: what lies there is no host time.
        return _with_host(engine, np.where(found.active_mask < 0, 0.0, found.x * steps))


def _with_host(engine: Engine, host_s: Floats) -> Engine:
    """Return the engine with these seconds of a pass, and of each request in it."""
    overhead_s, request_s = map(float, host_s)
    return replace(engine, overhead_s=overhead_s, request_s=request_s)


def _likeness(point: MeasuredPoint) -> tuple[float, ...]:
    """Return lengths and draft tokens of a point, then all else."""
    load = point.load
    return (load.isl, load.osl, load.drafts, *load[:8], point.ttft_s, point.tpot_s)


def halved(points: Sequence[MeasuredPoint]) -> tuple[list[MeasuredPoint], list[MeasuredPoint]]:
    """Return two halves that cover lengths and concurrencies alike: every second point of each length and of drafts.

    The smaller half begins, or by turns: with an even number of concurrencies none falls into one half at every length.
    """
    halves: tuple[list[MeasuredPoint], list[MeasuredPoint]] = ([], [])
    begins = 1
    for _, alike in groupby(sorted(points, key=_likeness), key=lambda each: _likeness(each)[:3]):
        behind = len(halves[0]) - len(halves[1])
        begins = int(behind > 0) if behind else 1 - begins
        for place, point in enumerate(alike, begins):
            halves[place % 2].append(point)
    return halves


DIGITS = 4
MOST_MEDIAN = 0.25
"""The largest median of held-out TPOT errors that is fit for use."""


def rounded(engine: Engine) -> dict[str, Any]:
    """Return the keys that a fit sets, as the file holds them."""
    drafter = {} if engine.draft_launch_s is None else {"draft_launch_s": engine.draft_launch_s}
    drafter["speculation_s"] = engine.speculation_s
    steps, speculating = engine.pipeline_steps, engine.speculating_steps
    return {
        "overhead_s": float(f"{engine.overhead_s or 0.0:.{DIGITS}g}"),
        "request_s": float(f"{engine.request_s:.{DIGITS}g}"),
        "pipeline_steps": steps if speculating is None else {"speculating": speculating, "other": steps},
        "frontend_s": engine.frontend_s,
        **{key: float(f"{seconds:.{DIGITS}g}") for key, seconds in drafter.items()},
    }


def misfit(all_points: Group) -> str | None:
    """Return why the calibration is not fit for use, None if it is."""
    median = all_points.tpot.median
    said = f"the median held-out error of TPOT is {100 * median:.0f}%, above {100 * MOST_MEDIAN:.0f}%"
    return said if median > MOST_MEDIAN else None


def engine_keys(
    base: Mapping[str, Any], engine: Engine, description: str, source: str, wrong: str | None = None
) -> dict[str, Any]:
    """Return the keys of the file, in the order of the shipped ones.

    `base` are those of the fit's own base. `wrong` is its `misfit`.
    """
    kept = {key: value for key, value in base.items() if key not in LABELS}
    marked = {} if wrong is None else {"misfit": wrong}
    return {"description": description, "source": source} | marked | kept | rounded(engine)


def source(
    fit: Fit,
    began: str,
    drafter: str,
    files: Sequence[Path],
    sha256: str,
    points: Sequence[MeasuredPoint],
    all_points: Group,
) -> str:
    """Return where the numbers are from, in a line without dates; the fit `began` with the engine of this name."""
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    errors = f"TPOT {all_points.tpot}, E2E {all_points.e2e}, TTFT {all_points.ttft}"
    speculating = sum(each.load.drafts > 0 for each in points)
    drafted = f", {speculating} of them with drafts of {drafter}" if speculating else ""
    return (
        f"specsim calibrate: {counted(points)} of {files[0].name}{more} (sha256 {sha256}){drafted}, "
        f"profile {fit.server.profile.name}, from engine {began}, passes of at most {fit.server.budget_tokens} tokens; "
        f"held-out error in %, median / p90 / mean: {errors}"
    )
