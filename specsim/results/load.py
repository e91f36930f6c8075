"""The block `load`: whether the server kept up with the arrivals, and whether the run was long enough and steady."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.replica.request import Floats
from specsim.results.batch_means import BATCHES, Trend, backlog, half_width, trend, warm_up
from specsim.results.schema import RunTotals
from specsim.results.window import Window, counts

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

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


@dataclass(frozen=True, slots=True)
class Load:
    """The block `load` of the metrics; docs/metrics.md explains each field. None: cannot be told."""

    clients: int | None = None
    makespan_ratio: float | None = None
    arrival_span_s: float | None = None
    drain_s: float | None = None
    longest_service_s: float | None = None
    last_backlog: int | None = None
    backlog_trend_per_s: float | None = None
    backlog_trend_interval_per_s: list[float] | None = None
    backlog_grows: bool | None = None
    overloaded: bool | None = None
    steady: bool | None = None
    warm_up_requests: int | None = None
    attainment_half_width: float | None = None
    needed_requests: int | None = None
    needed_s: float | None = None
    too_short: bool = True


def load(table: DataFrame, totals: RunTotals, window: Window | None) -> dict[str, Any]:
    """Return the block `load` (docs/metrics.md) of a run's request table, which holds all requests.

    The `window` selects the requests whose attainment is judged. The backlog is of all requests; its trend begins at
    the window's start.
    """
    arrival_s, met = table["arrival_s"].to_numpy(), table["slo_ok"].to_numpy(dtype=bool)
    start_s = 0.0
    if window is not None:
        start_s, met = window[0], met[counts(window, arrival_s)]
    if totals.clients is not None:
        return asdict(_closed(totals.clients, met))
    return asdict(judged(arrival_s, table["finish_s"].to_numpy(), service_s(table, totals), met, start_s))


def _closed(clients: int, met: NDArray[np.bool_]) -> Load:
    """Return the load of a closed loop: its arrivals follow its server, so only the attainment is judged."""
    half = half_width(met) if len(met) else None
    needed = None if half is None else ceil(len(met) * (half / TARGET_HALF_WIDTH) ** 2)
    return Load(clients, attainment_half_width=half, needed_requests=needed, too_short=not needed or len(met) < needed)


def service_s(table: DataFrame, totals: RunTotals) -> Floats:
    """Return the own service of each request, (N,) seconds: the time that it would take alone; NaN if rejected.

    It is the least of three estimates, each too long for another reason: finish - arrival, which includes waiting; its
    passes at the mean seconds of a pass, which includes the larger batches of overload; its tokens at the fastest pace
    among the longer outputs, which includes that output's preemptions.
    """
    sojourn_s: Floats = (table["finish_s"] - table["arrival_s"]).to_numpy()
    decode_s = (table["finish_s"] - table["first_token_s"]).to_numpy()
    steps = table["output_tokens"].to_numpy() - 1
    served = (steps > 0) & ~np.isnan(sojourn_s)
    if totals.iterations == 0 or not served.any():
        return sojourn_s
    pass_s = (totals.prefill_s + totals.draft_s + totals.selection_s + totals.verify_s) / totals.iterations
    longer = served & (steps >= np.median(steps[served]))
    fastest_s = float((decode_s[longer] / steps[longer]).min())
    passes = table["verifications"].to_numpy()
    alone_s: Floats = np.minimum(passes * pass_s, steps * fastest_s) + pass_s
    return np.minimum(sojourn_s, alone_s)


@dataclass(frozen=True, slots=True)
class Lives:
    """Arrival and finish of requests, in seconds.

    Attributes
    ----------
    first_s, last_s : first and last arrival, rejected requests included.
    arrival_s, finish_s : (N,) of the served requests, in order of arrival.
    longest_s : the longest own service.
    """

    first_s: float
    last_s: float
    arrival_s: Floats
    finish_s: Floats
    longest_s: float

    @property
    def span_s(self) -> float:
        """Last arrival - first arrival."""
        return self.last_s - self.first_s

    @property
    def drain_s(self) -> float:
        """Last finish - last arrival."""
        return float(self.finish_s.max()) - self.last_s

    @property
    def makespan_ratio(self) -> float:
        """(Last finish - first arrival) / (last arrival - first arrival)."""
        return 1 + self.drain_s / self.span_s

    def caught_up(self) -> bool:
        """Return whether the backlog fell to `CAUGHT_UP` of its last size in the second half of the arrivals."""
        half_s = (self.first_s + self.last_s) / 2
        ends_s = self.finish_s[(self.finish_s >= half_s) & (self.finish_s <= self.last_s)]
        left = backlog(self.arrival_s, self.finish_s, np.append(ends_s, (half_s, self.last_s)))
        return bool(left.min() <= CAUGHT_UP * left[-1])


def judged(
    arrival_s: Floats, finish_s: Floats, service_s: Floats, met: NDArray[np.bool_], start_s: float = 0.0
) -> Load:
    """Return the load of requests (N,) in order of arrival; `finish_s` and `service_s` are NaN if rejected.

    `met` (M,) says which of the counted requests attained. The backlog's trend begins at `start_s` or later.
    """
    half = half_width(met) if len(met) else None
    served = ~np.isnan(finish_s)
    first_s, last_s = float(arrival_s[0]), float(arrival_s[-1])
    if not served.any() or first_s == last_s:
        return Load(attainment_half_width=half)
    lives = Lives(first_s, last_s, arrival_s[served], finish_s[served], float(service_s[served].max()))
    found = _trend(lives, arrival_s, start_s)
    overloaded = _overloaded(lives, found)
    steady = None if overloaded is None else not overloaded and (found is None or found.interval_per_s[1] >= 0)
    settled = warm_up(backlog(lives.arrival_s, lives.finish_s, arrival_s[arrival_s >= start_s]))
    rate_per_s = (len(arrival_s) - 1) / lives.span_s
    needed = None
    if half is not None and not overloaded:
        needed = (settled or 0) + ceil(len(met) * (half / TARGET_HALF_WIDTH) ** 2)
        needed = max(needed, _ample(lives, rate_per_s)) if steady is None else needed
    return Load(
        None,
        lives.makespan_ratio,
        lives.span_s,
        lives.drain_s,
        lives.longest_s,
        int(backlog(lives.arrival_s, lives.finish_s, np.array([last_s]))[0]),
        None if found is None else found.per_s,
        None if found is None else list(found.interval_per_s),
        None if found is None else found.grows,
        overloaded,
        steady,
        settled,
        half,
        needed,
        None if needed is None else needed / rate_per_s,
        steady is None or (needed is not None and len(met) < needed),
    )


def _trend(lives: Lives, arrival_s: Floats, start_s: float) -> Trend | None:
    """Return the backlog's trend once the server has filled; None if too few services or arrivals follow."""
    filled_s = max(lives.first_s + lives.longest_s, start_s)
    if lives.last_s - filled_s < (LEAST_SERVICES - 1) * lives.longest_s:
        return None
    if (arrival_s >= filled_s).sum() < LEAST_JUDGED:
        return None
    return trend(lives.arrival_s, lives.finish_s, filled_s, lives.last_s)


def _overloaded(lives: Lives, found: Trend | None) -> bool | None:
    """Return whether arrivals exceeded the server; None if the run is too short to tell.

    A makespan ratio out of bounds is overload, with two exceptions: a drain no longer than the longest own service,
    which any server takes, and a backlog from a burst after the server had caught up.
    """
    ratio, drain_s = lives.makespan_ratio, lives.drain_s
    if found is None:
        return True if ratio > EVIDENT_RATIO and drain_s > LEAST_SERVICES * lives.longest_s else None
    if found.grows:
        return True
    if ratio <= MOST_MAKESPAN_RATIO:
        return False
    return None if drain_s <= lives.longest_s or lives.caught_up() else True


def _ample(lives: Lives, rate_per_s: float) -> int:
    """Return the number of requests with which a run could be judged that cannot be judged now."""
    return max(AMPLE_REQUESTS, ceil(rate_per_s * AMPLE_SERVICES * max(lives.longest_s, lives.drain_s)))
