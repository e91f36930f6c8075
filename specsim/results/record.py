"""What a run leaves."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from specsim.replica.request import Floats, Ints, Requests
from specsim.replica.state import Moves, Progress
from specsim.results.request_table import RequestTable, reasons
from specsim.results.schema import RunTotals


@dataclass(frozen=True, slots=True)
class Record:
    """What a run leaves: a row per request, totals, on request a row per pass.

    Attributes
    ----------
    requests, progress : what was told of each request, and what has happened to it, (N,) each.
    longest_pause_s : (N,) seconds between two emissions, NaN where there was one at most.
    moving_s : (N,) seconds in which the request's cache went to the host or came back from there.
    noted : what the scheduler noted of each request, (N,) by name.
    replica_of : (N,) index of the replica that each request was sent to, last. moves : between the pools of a split.
    rejected : why, by request id.
    cancelled_s : when, by request id, of those that were cancelled; None where no client gives up.
    """

    requests: Requests
    progress: Progress
    longest_pause_s: Floats
    moving_s: Floats
    noted: Mapping[str, Floats]
    replica_of: Ints
    moves: Moves | None
    rejected: Mapping[int, str]
    cancelled_s: Mapping[int, float] | None
    totals: RunTotals
    passes: dict[str, npt.NDArray[Any]] | None

    def table(self) -> RequestTable:
        """Return the columns of ``requests.parquet``."""
        happened = self.requests, self.progress, self.longest_pause_s, self.moving_s
        why, cancelled_s = reasons(len(self.requests), self.rejected), None
        if self.cancelled_s is not None:
            cancelled_s = np.full(len(self.requests), np.nan)
            cancelled_s[list(self.cancelled_s)] = list(self.cancelled_s.values())
        return RequestTable(*happened, self.noted, self.replica_of, why, self.moves, cancelled_s)
