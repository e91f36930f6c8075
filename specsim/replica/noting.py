"""What schedulers note of each request: their predictions and estimates, for the rows of a run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specsim.errors import SchedulerFault
from specsim.replica.blame import complaint, own_line
from specsim.replica.protocols import Noting, Scheduler
from specsim.replica.request import Floats, Ints


def noted(schedulers: Sequence[Scheduler], replica_of: Ints) -> dict[str, Floats]:
    """Return by name what the scheduler of each request's replica, `replica_of` (N,), noted of it, (N,), NaN: nothing.

    Raises
    ------
    SchedulerFault
        When a scheduler notes anything but one number a request under a name of its own.
    """
    found: dict[str, Floats] = {}
    for name, scheduler in enumerate(schedulers):
        if not isinstance(scheduler, Noting):
            continue
        mine = replica_of == name
        for column, numbers in _told(scheduler, len(replica_of)).items():
            found.setdefault(column, np.full(len(replica_of), np.nan))[mine] = numbers[mine]
    return found


def _told(scheduler: Noting, requests: int) -> dict[str, Floats]:
    who = f"scheduler {type(scheduler).__name__}"
    try:
        told: Mapping[str, Floats] = scheduler.noted(requests)
        numbers = {name: np.asarray(column, dtype=np.float64) for name, column in told.items()}
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise SchedulerFault(f"{who}: {complaint(error)}{own_line(error.__traceback__, scheduler)}") from error
    for name, column in numbers.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise SchedulerFault(f"{who}: noted {name!r}; expected a name of letters, digits and underscores")
        if column.shape != (requests,):
            raise SchedulerFault(f"{who}: noted {name} has shape {column.shape}; expected ({requests},)")
    return numbers
