"""The traffic of a tuning: the part that tunes, the part that judges, and what may be otherwise than it was given."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from math import floor
from typing import NamedTuple

import numpy as np

from specsim.config.configured import Configured
from specsim.config.groups import Choice
from specsim.config.points import Point
from specsim.config.schema import Settings
from specsim.config.values import python_value
from specsim.core.request import Bools
from specsim.latency.model import Profile
from specsim.runs.objects import Objects
from specsim.runs.prepare import Experiment, recipe
from specsim.search.tuned import (
    COMPOSED,
    COMPOSED_OFF,
    HELD_OUT,
    HIGHER,
    LOAD,
    PASSES,
    RATE,
    SPEEDUP,
    SPEEDUP_OFF,
)
from specsim.workload.trace import Trace

REQUESTS = 1000
"""Of a run of a recording at most, where no setting says it."""
BLOCK_S, BLOCKS = 60.0, 10
"""Seconds of the blocks that a seed draws from a part of a recording, and the least blocks that a part has."""
OFF = 0.2
"""By how much acceptance, load and objectives are taken to be off."""
OBJECTIVES = ("tpot_s", "tpot_ratio", "ttft_s")


class Condition(NamedTuple):
    """A change of what was given: words, the settings that say so, their unit of time in seconds, and for whom.

    `drafts` : it holds for candidates that draft alone.
    """

    said: str
    changed: Point
    unit_s: float = 1.0
    drafts: bool = False


class Parts(NamedTuple):
    """The part of the traffic that tunes and the part that judges: further settings of each, and lines about them.

    `clients` is the most that either part has requests or sessions for.
    """

    tuning: Point
    judging: Point
    clients: int
    notes: tuple[str, ...]


def split(first: Configured, objects: Objects) -> Parts:
    """Return the part of the traffic that tunes and the one that judges.

    The seeds draw a synthetic trace anew. Of a recording the first half of the window tunes and the second judges; each
    seed draws blocks of it, unless the settings say how.
    """
    settings, chosen = first.settings, first.chosen.trace
    handed = objects.of(first.chosen)
    source = recipe(first, handed)
    if "arrivals" in source.reader.drawn:
        drawn = settings.requests or chosen.n or REQUESTS
        return Parts({}, {}, drawn, ("other seeds of the trace tune than judge",))
    asked = settings.requests or REQUESTS
    trace = replace(source, block_s=None).trace(0, clients=True)
    unknown = trace.source.unit_asked or (handed.trace is None and not chosen.takes("window"))
    if not trace.source.timed or unknown:
        return _halves(trace, asked, objects)
    start, stop = source.window or (0.0, floor(trace.arrival_s[-1]) + 1.0)
    middle = (start + stop) / 2
    before = trace.arrival_s < (stop - start) / 2
    early = int(before.sum())
    kept = max(min(asked, early, len(trace) - early), 1)
    clients = min(kept, _sessions(trace, before), _sessions(trace, ~before))
    shared = {"requests": str(kept)}
    block_s = source.block_s or min(BLOCK_S, (middle - start) / BLOCKS)

    def part(*window: float) -> Point:
        below = {"window": list(window), "resample": block_s}
        if handed.trace is not None:
            (name,) = objects.taken("trace", [handed.trace], below)
            return {**shared, "trace": name}
        return {**shared, **{f"trace.{key}": python_value(key, value) for key, value in below.items()}}

    said = [
        f"seconds {start:g} to {middle:g} of the trace tune, {middle:g} to {stop:g} judge; each seed draws blocks anew"
    ]
    if settings.requests and kept < asked:
        said.append(f"requests={asked}: runs have {kept}, no more than either part of the trace holds")
    return Parts(part(start, middle), part(middle, stop), clients, tuple(said))


def _halves(trace: Trace, asked: int, objects: Objects) -> Parts:
    """Return both halves of the requests of a trace that has no times to cut it at; a session's turns stay together."""
    alone = np.flatnonzero(~trace.waits)
    middle = int(alone[len(alone) // 2])
    if middle == 0:
        shared = {"requests": str(min(asked, len(trace)))}
        return Parts(
            shared, shared, 1, ("the trace cannot be cut: the same requests tune and judge, with other seeds",)
        )
    kept = min(asked, middle, len(trace) - middle)
    tuning, judging = objects.taken("trace", [trace.head(middle), trace.tail(len(trace) - middle)], {})
    said = f"requests 1 to {middle:,} of the trace tune, {middle + 1:,} to {len(trace):,} judge; runs have {kept:,}"
    tunes = np.arange(len(trace)) < middle
    clients = min(kept, _sessions(trace, tunes), _sessions(trace, ~tunes))
    return Parts({"requests": str(kept), "trace": tuning}, {"requests": str(kept), "trace": judging}, clients, (said,))


def _sessions(trace: Trace, rows: Bools) -> int:
    """Return how many sessions these rows (N,) are of; a request that is no turn is a session."""
    return int(rows.sum()) if trace.session is None or trace.delay_s is None else len(np.unique(trace.session[rows]))


def several_kinds(settings: Settings) -> bool:
    """Return whether servers are of several kinds: no single number of them is searched, nor are flags written."""
    return settings.split.prefill is not None or bool(settings.replica_profiles)


def rate_of(settings: Settings, experiment: Experiment) -> float | None:
    """Return the rate of arrivals, requests/s; None where clients wait for their answers."""
    if settings.concurrency is not None:
        return None
    if settings.rps is not None:
        return settings.rps
    arrival_s = experiment.simulation.requests.arrival_s
    return float(f"{(len(arrival_s) - 1) / max(float(arrival_s[-1] - arrival_s[0]), 1e-9):.3g}")


def conditions(
    first: Configured, rate: float | None, error: float | None, most: int, *, attainment: bool
) -> Iterator[Condition]:
    """Yield what may be otherwise than it was given; `most` clients are there at most.

    Objectives may where `attainment` is the measure: a throughput is not held against them.

    Passes that take (1 + e) times as long under a load meet their objectives as often as today's passes do under a load
    (1 + e) times as high with objectives of 1 / (1 + e): time itself has another unit. Clients that wait stay as many.
    A speed-up that is (1 - e) times as large is a server with drafts that takes 1 / (1 - e) times as long.
    """

    def slowed(slower: float) -> tuple[Point, float]:
        load = {} if rate is None else _load(first.settings, rate, slower, most)
        return {**load, **_objectives(first.chosen.slo, 1 / slower)}, slower

    for sign, word in ((1, "slower"), (-1, "faster")) if error else ():
        yield Condition(f"{PASSES} {100 * (error or 0):.2g}% {word}", *slowed(1 + sign * (error or 0)))
    for sign, word in ((-1, "lower"), (1, "higher")):
        yield Condition(
            f"{SPEEDUP} {100 * SPEEDUP_OFF:.2g}% {word}", *slowed(1 / (1 + sign * SPEEDUP_OFF)), drafts=True
        )
    for factor in (1 - OFF, 1 + OFF):
        said = f"{100 * abs(factor - 1):.0f}% {'lower' if factor < 1 else HIGHER}"
        scale = factor * (first.settings.acceptance_scale or 1)
        if first.chosen.acceptance.kind != "recorded":
            yield Condition(f"acceptance {said}", {"acceptance_scale": f"{scale:g}"})
        if load := _load(first.settings, rate, factor, most):
            yield Condition(f"{LOAD if rate is None else RATE} {said}", load)
        if attainment and (objectives := _objectives(first.chosen.slo, factor)):
            yield Condition(f"objectives {100 * OFF:.0f}% {'tighter' if factor < 1 else 'looser'}", objectives)


def _load(settings: Settings, rate: float | None, factor: float, most: int) -> Point:
    if rate is not None:
        return {"rps": f"{rate * factor:.6g}"}
    clients = settings.concurrency or 0
    changed = round(clients * factor)
    return {} if changed in (0, clients) or changed > most else {"concurrency": str(changed)}


def _objectives(mix: Choice, factor: float) -> Point:
    """Return the objectives of a mix times a factor; none where an object or the trace states them."""
    return {key: python_value(key, value * factor) for key, value in mix.stated(OBJECTIVES)}


def error_of(profile: Profile) -> tuple[float | None, str]:
    """Return the relative error of a profile's passes, and whose it is.

    It is the largest median of the held-out errors of a kind of pass, of the target or the drafter. Those of a composed
    profile are against tables of kernels: in their place it has the error of its kind against servers.
    """
    source = profile.provenance[0] if profile.provenance else {}
    if "aiconfigurator" in source.get("origin", ""):
        return COMPOSED_OFF["MoE" if "moe" in source.get("tables", "").lower() else "dense"], COMPOSED
    kinds = [kind for model in (profile.target, profile.draft) for kind in model.fit_error.values()]
    return max((kind["median"] for kind in kinds if "median" in kind), default=None), HELD_OUT
