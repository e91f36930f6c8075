"""How long a server takes for each request, and how long it would take for it alone, from what a run shows."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Floats
from specsim.results.distribution import Sketched
from specsim.results.rows import Rows
from specsim.results.schema import RunTotals


def service_s(rows: Rows, totals: RunTotals) -> Floats:
    """Return the own service of each request, (N,) seconds: the time that this server takes for it; NaN if rejected.

    It is the least of three estimates, each too long for another reason: finish - arrival, which includes waiting; its
    passes at the mean seconds of a pass, which includes the larger batches of overload; its tokens at the fastest pace
    among the longer outputs, which includes that output's preemptions.
    """
    sojourn_s: Floats = rows["finish_s"] - rows["arrival_s"]
    decode_s = rows["finish_s"] - rows["first_token_s"]
    steps = rows["output_tokens"] - 1
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
    """Return the time that each request would take alone, (N,) seconds; NaN if rejected.

    It is the lesser of two estimates: finish - arrival, and one mean pass for the prompt, then the request's passes at
    the least time between two emissions of the run. That time is a pass with the fewest others; even an overloaded run
    has one, when it drains.
    """
    sojourn_s: Floats = rows["finish_s"] - rows["arrival_s"]
    least_s = _least(totals.itl_s)
    if least_s is None or totals.iterations == 0:
        return sojourn_s
    passes_s = rows["verifications"] * least_s + _busy_s(totals) / totals.iterations
    return np.minimum(sojourn_s, passes_s)


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
