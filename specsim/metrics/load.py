"""Load and steadiness of a run: service, overload, and the notes on them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from math import ceil, inf, log10, sqrt
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.core.request import Bools, Floats, Ints
from specsim.metrics.requests import SHED_REASONS, RequestRows, RunTotals, Window, counts
from specsim.metrics.statistics import BATCHES, Sketched, Trend, backlog, half_width, trend, warm_up

if TYPE_CHECKING:
    from numpy.typing import NDArray


SLOWED = 3
"""Stay of a cancelled request that others held up, in the time that it would have taken alone."""


def service_s(rows: RequestRows, totals: RunTotals) -> Floats:
    """Return the own service of each request, (N,) seconds: the time that this server takes for it; NaN if refused.

    It is the least of three estimates, each too long for another reason: its stay, which includes waiting; its
    passes at the mean seconds of a pass, which includes the larger batches of overload; its tokens at the fastest pace
    among the longer outputs, which includes that output's preemptions. Of a cancelled request it is the time for what
    it was given.
    """
    left_s = rows.left_s
    sojourn_s: Floats = left_s - rows["arrival_s"]
    decode_s = left_s - rows["first_token_s"]
    steps = np.maximum(rows["output_tokens"] - 1, 0)
    served = (steps > 0) & ~np.isnan(sojourn_s)
    if totals.iterations == 0 or not served.any():
        return sojourn_s
    pass_s = _busy_s(totals) / totals.iterations
    longer = served & (steps >= np.median(steps[served]))
    fastest_s = float((decode_s[longer] / steps[longer]).min())
    passes = rows["verifications"]
    alone_s: Floats = np.minimum(passes * pass_s, steps * fastest_s) + pass_s
    return np.minimum(sojourn_s, alone_s)


def _link_s(rows: RequestRows) -> float:
    """Return the least time of a cache between two pools, which no queue makes longer."""
    moving_s = rows["split.moving_s"] if "split.moving_s" in rows.columns else np.empty(0)
    return float(np.fmin.reduce(moving_s, initial=inf)) if np.isfinite(moving_s).any() else 0.0


def alone_s(rows: RequestRows, totals: RunTotals) -> Floats:
    """Return the time that each request would take alone, (N,) seconds; NaN if refused.

    It is the lesser of two estimates: its stay, and one mean pass for the prompt, then the request's passes at
    the least time between two emissions of the run. That time is a pass with the fewest others; even an overloaded run
    has one, when it drains.
    """
    sojourn_s: Floats = rows.left_s - rows["arrival_s"]
    least_s = _least(totals.itl_s)
    if least_s is None or totals.iterations == 0:
        return sojourn_s
    passes_s = rows["verifications"] * least_s + _busy_s(totals) / totals.iterations
    return np.minimum(sojourn_s, passes_s)


def turned_away(rows: RequestRows, totals: RunTotals) -> Bools:
    """Return which requests left since the server had too much to do, (N,): shed, or cancelled behind others.

    A request that was behind others saw no first token, or stayed `SLOWED` times as long as its tokens take alone. A
    request that was cancelled at its own pace is longer than its client waits, whatever the load.
    """
    reason = rows["rejected_reason"]
    shed: Bools = np.logical_or.reduce([reason == each for each in SHED_REASONS])
    if rows.cancelled_s is None:
        return shed
    stay_s = rows.cancelled_s - rows["arrival_s"]
    behind = np.isnan(rows["first_token_s"]) | (stay_s >= SLOWED * alone_s(rows, totals))
    turned: Bools = shed | (~np.isnan(stay_s) & behind)
    return turned


def _busy_s(totals: RunTotals) -> float:
    return totals.prefill_s + totals.draft_s + totals.selection_s + totals.verify_s


def _least(itl_s: Floats | Sketched) -> float | None:
    if isinstance(itl_s, Sketched):
        return itl_s.least
    return float(itl_s.min()) if len(itl_s) else None


MOST_MAKESPAN_RATIO = 1.1
TARGET_HALF_WIDTH = 0.05
"""Half width of the attainment's 95% interval; a run with a wider interval is too short."""
LEAST_JUDGED = 10 * BATCHES
"""The least number of arrivals for a trend of the backlog."""
LEAST_SERVICES = 3
"""The least arrival span, in longest own services, at which overload can be told from a server that still fills."""
AMPLE_SERVICES = 10
"""The arrival span, in longest own services, with which a drain of one keeps the makespan ratio in bounds."""
AMPLE_REQUESTS = 1000
"""The least length advised for a run that cannot be judged."""
EVIDENT_RATIO = 2.0
"""Makespan ratio above which a run without a trend is overloaded, if it also drains for `LEAST_SERVICES` services."""
CAUGHT_UP = 0.1
"""Share of the last backlog. If the backlog fell that low in the second half, the rest came in a later burst."""

LEAST_QUEUED = 0.1
"""Share of all requests that wait for their first token at the last arrival, from which on they tell overload."""
LEAST_DEVIATIONS = 2.5
"""The queue that tells overload, in standard deviations of what arrives minus what is served at full load."""
IDLE = 0.001
"""The largest idle share of a server that is near saturation."""
CROWDED = 10
"""Mean backlog of a server near saturation, in the backlog of requests that each take as long as they do alone."""
LEAST_TURNED_AWAY = 0.1
"""Share of all requests that are turned away, from which on they tell overload if the server is idle no more."""


@dataclass(frozen=True, slots=True)
class Load:
    """The block `load` of the metrics; docs/load.md explains each field. None: cannot be told."""

    clients: int | None = None
    sessions: int | None = None
    makespan_ratio: float | None = None
    arrival_span_s: float | None = None
    drain_s: float | None = None
    longest_service_s: float | None = None
    longest_alone_s: float | None = None
    last_backlog: int | None = None
    turned_away: int | None = None
    backlog_trend_per_s: float | None = None
    backlog_trend_interval_per_s: list[float] | None = None
    backlog_grows: bool | None = None
    overloaded: bool | None = None
    mean_backlog: float | None = None
    alone_backlog: float | None = None
    saturated: bool | None = None
    steady: bool | None = None
    warm_up_requests: int | None = None
    attainment_half_width: float | None = None
    needed_requests: int | None = None
    needed_s: float | None = None
    too_short: bool = True


def load(rows: RequestRows, totals: RunTotals, window: Window | None) -> dict[str, Any]:
    """Return the block `load` (docs/load.md) of a run's requests, all of them.

    The `window` selects the requests whose attainment is judged. The backlog is of all requests; its trend begins at
    the window's start.
    """
    arrival_s, met = rows["arrival_s"], rows["slo_ok"]
    start_s = 0.0
    if window is not None:
        start_s, met = window[0], met[counts(window, arrival_s)]
    if totals.clients is not None:
        return asdict(_closed(totals.clients, met))
    whole_s = totals.idle_s + _busy_s(totals)
    idle = totals.idle_s / whole_s if whole_s else 1.0
    turned = int(np.count_nonzero(turned_away(rows, totals)))
    lost = len(rows) >= LEAST_JUDGED and turned >= max(LEAST_TURNED_AWAY, idle) * len(rows)
    lone_s = alone_s(rows, totals) + _link_s(rows)
    lives: tuple[Floats, ...] = arrival_s, rows.left_s, service_s(rows, totals), rows["first_token_s"], lone_s
    sessions = None
    if totals.begun_by is not None:
        lives = _of_sessions(totals.begun_by[rows["request_id"]], *lives)
        sessions, order = len(lives[0]), np.argsort(lives[0], kind="stable")
        lives = tuple(each[order] for each in lives)
        met = met if window is not None else met[np.argsort(arrival_s, kind="stable")]
    arrival_s, left_s, own_s, began_s, lone_s = lives
    found = judged(arrival_s, left_s, own_s, met, start_s, began_s, lone_s, lost=lost, turns=len(rows) / len(arrival_s))
    if sessions is not None and found.arrival_span_s == 0:
        judged_alone = _closed(None, met)
        found = replace(found, needed_requests=judged_alone.needed_requests, too_short=judged_alone.too_short)
    found = replace(found, turned_away=turned, sessions=sessions)
    return asdict(_crowded(found, arrival_s, left_s, lone_s, idle))


def _of_sessions(
    begun_by: Ints, arrival_s: Floats, left_s: Floats, own_s: Floats, began_s: Floats, lone_s: Floats
) -> tuple[Floats, ...]:
    """Return the same of sessions, (S,) each, from those of their turns: services take the time between turns, too."""
    order = np.lexsort((arrival_s, begun_by))
    starts = np.flatnonzero(np.diff(begun_by[order], prepend=-1))
    first_s = arrival_s[order][starts]
    last_s = np.fmax.reduceat(left_s[order], starts)
    stays_s = (np.add.reduceat(np.nan_to_num(each)[order], starts) for each in (left_s - arrival_s, own_s, lone_s))
    stay_s, own_s, lone_s = stays_s
    between_s = last_s - first_s - stay_s
    return first_s, last_s, own_s + between_s, np.fmin.reduceat(began_s[order], starts), lone_s + between_s


def _crowded(found: Load, arrival_s: Floats, left_s: Floats, alone_s: Floats, idle: float) -> Load:
    """Return the load with its backlogs over the second half of the arrivals, and whether it is near saturation."""
    if not found.arrival_span_s:
        return found
    served, end_s = ~np.isnan(left_s), float(arrival_s[-1])
    times_s = np.linspace(end_s - found.arrival_span_s / 2, end_s, LEAST_JUDGED)
    mean = float(backlog(arrival_s[served], left_s[served], times_s).mean())
    alone = float(alone_s[served].sum()) / found.arrival_span_s
    saturated = not found.overloaded and idle <= IDLE and mean >= CROWDED * alone
    return replace(
        found,
        longest_alone_s=float(alone_s[served].max()),
        mean_backlog=mean,
        alone_backlog=alone,
        saturated=saturated,
    )


def _closed(clients: int | None, met: NDArray[np.bool_]) -> Load:
    """Return the load of arrivals that all follow their server, as in a closed loop: the attainment alone is judged."""
    half = half_width(met) if len(met) else None
    needed = None if half is None else ceil(len(met) * (half / TARGET_HALF_WIDTH) ** 2)
    return Load(clients, attainment_half_width=half, needed_requests=needed, too_short=not needed or len(met) < needed)


@dataclass(frozen=True, slots=True)
class Lives:
    """Arrival and end of requests, in seconds; a request ends when it finishes or is cancelled.

    Attributes
    ----------
    first_s, last_s : first and last arrival, refused requests included.
    arrival_s, left_s : (N,) of the requests that were let in, in order of arrival.
    longest_s : the longest own service.
    lone_s : the longest time that one request takes, own service or alone.
    began_s : (N,) time of the first token, or of the end where none came; None: not known.
    """

    first_s: float
    last_s: float
    arrival_s: Floats
    left_s: Floats
    longest_s: float
    lone_s: float
    began_s: Floats | None = None

    @property
    def span_s(self) -> float:
        """Last arrival - first arrival."""
        return self.last_s - self.first_s

    @property
    def drain_s(self) -> float:
        """Last end - last arrival; 0 where none is left by then, since the last was refused."""
        return max(float(self.left_s.max()) - self.last_s, 0.0)

    @property
    def makespan_ratio(self) -> float:
        """(Last end - first arrival) / (last arrival - first arrival)."""
        return 1 + self.drain_s / self.span_s

    def caught_up(self) -> bool:
        """Return whether the backlog fell to `CAUGHT_UP` of its last size in the second half of the arrivals."""
        left = self._left(self.left_s)
        return bool(left.min() <= CAUGHT_UP * left[-1])

    def queues(self) -> bool:
        """Return whether more wait for their first token at the last arrival than chance and one burst bring about.

        At full load the queue is a random walk. Its variance grows by 1 with each request for services of cv 1, and by
        the dispersion of the arrivals.
        """
        n = len(self.arrival_s)
        if self.began_s is None or n < LEAST_JUDGED:
            return False
        waiting = self._left(self.began_s)
        counts = np.histogram(self.arrival_s, BATCHES, (self.first_s, self.last_s))[0]
        deviation = sqrt(n * (1 + counts.var(ddof=1) / counts.mean()))
        least = max(LEAST_QUEUED * n, LEAST_DEVIATIONS * deviation)
        return bool(waiting[-1] >= least and waiting.min() > CAUGHT_UP * waiting[-1])

    def _left(self, until_s: Floats) -> Floats:
        """Return how many were there at each of `until_s` in the second half of the arrivals, last at its end."""
        half_s = (self.first_s + self.last_s) / 2
        ends_s = until_s[(until_s >= half_s) & (until_s <= self.last_s)]
        return backlog(self.arrival_s, until_s, np.append(ends_s, (half_s, self.last_s)))


def judged(
    arrival_s: Floats,
    left_s: Floats,
    service_s: Floats,
    met: NDArray[np.bool_],
    start_s: float = 0.0,
    began_s: Floats | None = None,
    lone_s: Floats | None = None,
    *,
    lost: bool = False,
    turns: float = 1.0,
) -> Load:
    """Return the load of requests (N,) in order of arrival; `left_s` and `service_s` are NaN if refused.

    `met` (M,) says which of the counted requests attained. The backlog's trend begins at `start_s` or later.
    `began_s` (N,) are the times of the first tokens, NaN where none came; without them no queue is judged.
    `lone_s` (N,) are the times that requests take alone, where their own services may be shorter.
    `lost` says that too many were turned away. Where they are sessions, each has `turns` requests in the mean.
    """
    half = half_width(met) if len(met) else None
    served = ~np.isnan(left_s)
    first_s, last_s = float(arrival_s[0]), float(arrival_s[-1])
    if not served.any():
        return Load(attainment_half_width=half)
    if first_s == last_s:
        drain_s = float(left_s[served].max()) - last_s
        return Load(arrival_span_s=0.0, drain_s=drain_s, attainment_half_width=half, too_short=False)
    began_s = None if began_s is None else np.fmin(began_s, left_s)[served]
    longest_s = float(service_s[served].max())
    most_s = longest_s if lone_s is None else max(longest_s, float(lone_s[served].max()))
    lives = Lives(first_s, last_s, arrival_s[served], left_s[served], longest_s, most_s, began_s)
    found = _trend(lives, arrival_s, start_s)
    overloaded = lost or _overloaded(lives, found)
    steady = None if overloaded is None else not overloaded and (found is None or found.interval_per_s[1] >= 0)
    settled = warm_up(backlog(lives.arrival_s, lives.left_s, arrival_s[arrival_s >= start_s]))
    settled = None if settled is None else round(turns * settled)
    rate_per_s = turns * (len(arrival_s) - 1) / lives.span_s
    needed = None
    if half is not None and not overloaded:
        needed = (settled or 0) + ceil(len(met) * (half / TARGET_HALF_WIDTH) ** 2)
        if steady is None:
            longest_s = max(lives.longest_s, lives.drain_s)
            needed = max(needed, AMPLE_REQUESTS, ceil(rate_per_s * AMPLE_SERVICES * longest_s))
    return Load(
        makespan_ratio=lives.makespan_ratio,
        arrival_span_s=lives.span_s,
        drain_s=lives.drain_s,
        longest_service_s=lives.longest_s,
        last_backlog=int(backlog(lives.arrival_s, lives.left_s, np.array([last_s]))[0]),
        backlog_trend_per_s=None if found is None else found.per_s,
        backlog_trend_interval_per_s=None if found is None else list(found.interval_per_s),
        backlog_grows=None if found is None else found.grows,
        overloaded=overloaded,
        steady=steady,
        warm_up_requests=settled,
        attainment_half_width=half,
        needed_requests=needed,
        needed_s=None if needed is None else needed / rate_per_s,
        too_short=steady is None or (needed is not None and len(met) < needed),
    )


def _trend(lives: Lives, arrival_s: Floats, start_s: float) -> Trend | None:
    """Return the backlog's trend once the server has filled; None if too few services or arrivals follow."""
    filled_s = max(lives.first_s + lives.longest_s, start_s)
    if lives.last_s - filled_s < (LEAST_SERVICES - 1) * lives.longest_s:
        return None
    if (arrival_s >= filled_s).sum() < LEAST_JUDGED:
        return None
    return trend(lives.arrival_s, lives.left_s, filled_s, lives.last_s)


def _overloaded(lives: Lives, found: Trend | None) -> bool | None:
    """Return whether arrivals exceeded the server; None if the run is too short to tell.

    A makespan ratio out of bounds is overload, with two exceptions: a drain no longer than the longest own service or
    time alone, which any server takes, and a backlog from a burst after the server had caught up.
    """
    ratio, drain_s = lives.makespan_ratio, lives.drain_s
    if found is None:
        evident = ratio > EVIDENT_RATIO and drain_s > max(LEAST_SERVICES * lives.longest_s, lives.lone_s)
        return True if evident or lives.queues() else None
    if found.grows:
        return True
    if ratio <= MOST_MAKESPAN_RATIO:
        return False
    return None if drain_s <= lives.lone_s or lives.caught_up() else True


class Recorded(NamedTuple):
    """A trace that ends: how many requests a run may take of it, and what can be judged where these are too few."""

    requests: int
    instead: str

    @property
    def too_few(self) -> str:
        """The end of a note: more requests are needed than there are, and what can be judged."""
        return f"more than the {self.requests:,} requests that there are: {self.instead} can be judged"

    @classmethod
    def of(cls, requests: int, ways: Sequence[str], *, resamples: bool) -> Recorded:
        """Return a trace that other `ways` can judge; a mean over seeds can, too, where these may draw arrivals."""
        over_seeds = ["a mean over seeds with trace.resample=SECONDS"] * resamples
        return cls(requests, " or ".join(", ".join([*ways, *over_seeds]).rsplit(", ", 1)))


def load_notes(block: Mapping[str, Any], counted: int, recorded: Recorded | None = None) -> tuple[str, ...]:
    """Return the notes of a run, each ``KIND: reason``; none if all is well. `counted` requests are in the metrics.

    No note advises more requests than a `recorded` trace holds.
    """
    if block["overloaded"]:
        return (f"OVERLOADED: {_excess(block)}",)
    notes = [f"near saturation: {_crowd(block)}"] if block.get("saturated") else []
    closed = block.get("clients") is not None or block["arrival_span_s"] == 0
    if block["too_short"] and closed and block["needed_requests"] is None:
        notes.append(f"too short: slo_attainment cannot be judged by {counted} requests")
    elif block["too_short"] and not closed and block["steady"] is None:
        notes.append(f"too short: {_unjudged(block, counted, recorded)}")
    elif block["too_short"]:
        notes.append(f"too short: {_known(block)} {_needed(block, recorded, 'about ')}")
    if block["steady"] is False:
        falls = (-each for each in block["backlog_trend_interval_per_s"][::-1])
        rate = _rate(block, -block["backlog_trend_per_s"], *falls)
        cure = "" if block.get("sessions") else "; warmup=SECONDS leaves the beginning out"
        notes.append(f"not steady: the backlog falls by {rate}{cure}")
    return tuple(notes)


def _known(block: Mapping[str, Any]) -> str:
    half, goal = (100 * each for each in (block["attainment_half_width"], TARGET_HALF_WIDTH))
    known, wanted = f"slo_attainment is known to +-{half:.1f} points (95%)", f"+-{goal:g}"
    if half <= goal and block["warm_up_requests"]:
        known, wanted = f"{known} with the warm-up of {block['warm_up_requests']:,} requests", f"{wanted} without it"
    return f"{known}; {wanted} take"


def _excess(block: Mapping[str, Any]) -> str:
    turned, backlog = block.get("turned_away") or 0, block["last_backlog"]
    if turned > backlog:
        return f"{turned:,} requests were shed, or cancelled while others held them up"
    if block["backlog_grows"]:
        rate = _rate(block, block["backlog_trend_per_s"], *block["backlog_trend_interval_per_s"])
        said = f"the backlog grows by {rate} to {backlog} {_unit(block)} at {_last(block)}"
    elif block["makespan_ratio"] <= EVIDENT_RATIO and block["backlog_grows"] is None:
        said = f"the queue for the first token grows; {backlog} {_unit(block)} are there at {_last(block)}"
    else:
        times = f"{block['makespan_ratio']:.3g} times the {span_name(block)}"
        said = f"the last request ends {block['drain_s']:.3g} s after {_last(block)}, which makes {times}"
    return f"{said}; figures of a longer run would differ"


def _crowd(block: Mapping[str, Any]) -> str:
    times, there = block["mean_backlog"] / block["alone_backlog"], f"{block['last_backlog']} {_unit(block)}"
    return (
        f"the server was hardly idle, {there} were there at {_last(block)}, and there were "
        f"{times:.0f} times as many as if each were served alone; attainment may fall as the run gets longer"
    )


def _unjudged(block: Mapping[str, Any], counted: int, recorded: Recorded | None) -> str:
    if block["makespan_ratio"] is None:
        return "no request was let in: no load can be read from them"
    span = f"{block['arrival_span_s']:.3g} s"
    sessions = block.get("sessions")
    sent = f"of {sessions} sessions that begin within {span}" if sessions else f"in {span} of arrivals"
    return (
        f"{counted} requests {sent}; the longest alone takes "
        f"{block['longest_alone_s']:.3g} s and the last ends {block['drain_s']:.3g} s after {_last(block)}: "
        f"load and attainment cannot be judged; expected {_needed(block, recorded, behind=' or more')}"
    )


def _needed(block: Mapping[str, Any], recorded: Recorded | None, before: str = "", behind: str = "") -> str:
    """Return the needed length in two digits, requests rounded up, or that a recorded trace has less."""
    requests, seconds = block["needed_requests"], block["needed_s"]
    most = inf if recorded is None else recorded.requests
    if recorded is not None and requests > most:
        return recorded.too_few
    digit = 10 ** max(0, int(log10(requests)) - 1)
    in_s = "" if seconds is None else f" ({float(f'{seconds:.2g}'):,.12g} s)"
    return f"{before}{min(ceil(requests / digit) * digit, most):,} requests{in_s}{behind}"


def _unit(block: Mapping[str, Any]) -> str:
    return "sessions" if block.get("sessions") else "requests"


def _last(block: Mapping[str, Any]) -> str:
    return "the last session's start" if block.get("sessions") else "the last arrival"


def span_name(block: Mapping[str, Any]) -> str:
    """Return the time that a load's makespan is told in, in words behind an article."""
    return "span in which sessions begin" if block.get("sessions") else "arrivals' span"


def _rate(block: Mapping[str, Any], per_s: float, low_per_s: float, high_per_s: float) -> str:
    return f"{per_s:.2g} {_unit(block)}/s ({low_per_s:.2g} to {high_per_s:.2g}, 95%)"
