"""The block `load`: whether the server kept up with the arrivals, and whether the run was long enough and steady."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from math import ceil, sqrt
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.replica.request import Floats
from specsim.results.batch_means import BATCHES, Trend, backlog, half_width, trend, warm_up
from specsim.results.rows import Rows
from specsim.results.schema import RunTotals
from specsim.results.service import alone_s, idle_share, service_s, turned_away
from specsim.results.window import Window, counts

if TYPE_CHECKING:
    from numpy.typing import NDArray

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
    """The block `load` of the metrics; docs/metrics.md explains each field. None: cannot be told."""

    clients: int | None = None
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


def load(rows: Rows, totals: RunTotals, window: Window | None) -> dict[str, Any]:
    """Return the block `load` (docs/metrics.md) of a run's requests, all of them.

    The `window` selects the requests whose attainment is judged. The backlog is of all requests; its trend begins at
    the window's start.
    """
    arrival_s, met = rows["arrival_s"], rows["slo_ok"]
    start_s = 0.0
    if window is not None:
        start_s, met = window[0], met[counts(window, arrival_s)]
    if totals.clients is not None:
        return asdict(_closed(totals.clients, met))
    left_s, began_s, idle = rows.left_s, rows["first_token_s"], idle_share(totals)
    turned = int(np.count_nonzero(turned_away(rows, totals)))
    lost = len(rows) >= LEAST_JUDGED and turned >= max(LEAST_TURNED_AWAY, idle) * len(rows)
    found = judged(arrival_s, left_s, service_s(rows, totals), met, start_s, began_s, lost=lost)
    return asdict(_crowded(replace(found, turned_away=turned), arrival_s, left_s, alone_s(rows, totals), idle))


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


def _closed(clients: int, met: NDArray[np.bool_]) -> Load:
    """Return the load of a closed loop: its arrivals follow its server, so only the attainment is judged."""
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
    began_s : (N,) time of the first token, or of the end where none came; None: not known.
    """

    first_s: float
    last_s: float
    arrival_s: Floats
    left_s: Floats
    longest_s: float
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
    *,
    lost: bool = False,
) -> Load:
    """Return the load of requests (N,) in order of arrival; `left_s` and `service_s` are NaN if refused.

    `met` (M,) says which of the counted requests attained. The backlog's trend begins at `start_s` or later.
    `began_s` (N,) are the times of the first tokens, NaN where none came; without them no queue is judged.
    `lost` says that too many were turned away.
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
    lives = Lives(first_s, last_s, arrival_s[served], left_s[served], float(service_s[served].max()), began_s)
    found = _trend(lives, arrival_s, start_s)
    overloaded = lost or _overloaded(lives, found)
    steady = None if overloaded is None else not overloaded and (found is None or found.interval_per_s[1] >= 0)
    settled = warm_up(backlog(lives.arrival_s, lives.left_s, arrival_s[arrival_s >= start_s]))
    rate_per_s = (len(arrival_s) - 1) / lives.span_s
    needed = None
    if half is not None and not overloaded:
        needed = (settled or 0) + ceil(len(met) * (half / TARGET_HALF_WIDTH) ** 2)
        needed = max(needed, _ample(lives, rate_per_s)) if steady is None else needed
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

    A makespan ratio out of bounds is overload, with two exceptions: a drain no longer than the longest own service,
    which any server takes, and a backlog from a burst after the server had caught up.
    """
    ratio, drain_s = lives.makespan_ratio, lives.drain_s
    if found is None:
        evident = ratio > EVIDENT_RATIO and drain_s > LEAST_SERVICES * lives.longest_s
        return True if evident or lives.queues() else None
    if found.grows:
        return True
    if ratio <= MOST_MAKESPAN_RATIO:
        return False
    return None if drain_s <= lives.longest_s or lives.caught_up() else True


def _ample(lives: Lives, rate_per_s: float) -> int:
    """Return the number of requests with which a run could be judged that cannot be judged now."""
    return max(AMPLE_REQUESTS, ceil(rate_per_s * AMPLE_SERVICES * max(lives.longest_s, lives.drain_s)))
