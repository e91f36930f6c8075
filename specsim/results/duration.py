"""How long a run lasts."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Floats


def duration(arrival_s: Floats, finish_s: Floats, cancelled_s: Floats | None) -> float:
    """Return the seconds from the first arrival of requests (N,) to the last arrival, finish or cancellation.

    No pass ends later: whose rows it has end or are cancelled when it has ended, or afterwards. `finish_s` (N,) is NaN
    for requests that do not finish, `cancelled_s` (m,) for those that are not cancelled; None: none is.
    """
    ends_s = [arrival_s, finish_s] if cancelled_s is None else [arrival_s, finish_s, cancelled_s]
    return float(max(np.fmax.reduce(each, initial=-np.inf) for each in ends_s) - arrival_s.min())
