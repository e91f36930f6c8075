"""How long a server takes for each request, and how long it would take for it alone, from what a run shows."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Bools, Floats
from specsim.results.distribution import Sketched
from specsim.results.rows import Rows
from specsim.results.schema import SHED_REASONS, RunTotals

SLOWED = 3
"""Stay of a cancelled request that others held up, in the time that it would have taken alone."""


def service_s(rows: Rows, totals: RunTotals) -> Floats:
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


def alone_s(rows: Rows, totals: RunTotals) -> Floats:
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


def turned_away(rows: Rows, totals: RunTotals) -> Bools:
    """Return which requests left since the server had too much to do, (N,): shed, or cancelled behind others.

    Behind others is who saw no first token, or stayed `SLOWED` times as long as what it was given takes alone. One that
    was cancelled at its own pace is longer than its client waits, whatever the load.
    """
    reason = rows["rejected_reason"]
    shed: Bools = np.logical_or.reduce([reason == each for each in SHED_REASONS])
    if rows.cancelled_s is None:
        return shed
    stay_s = rows.cancelled_s - rows["arrival_s"]
    behind = np.isnan(rows["first_token_s"]) | (stay_s >= SLOWED * alone_s(rows, totals))
    turned: Bools = shed | (~np.isnan(stay_s) & behind)
    return turned


def idle_share(totals: RunTotals) -> float:
    """Return the share of the servers' time in which they had nothing to do."""
    whole_s = totals.idle_s + _busy_s(totals)
    return totals.idle_s / whole_s if whole_s else 1.0


def _busy_s(totals: RunTotals) -> float:
    return totals.prefill_s + totals.draft_s + totals.selection_s + totals.verify_s


def _least(itl_s: Floats | Sketched) -> float | None:
    if isinstance(itl_s, Sketched):
        return itl_s.least
    return float(itl_s.min()) if len(itl_s) else None
