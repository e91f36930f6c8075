"""The observers of a run, and what they and its schedulers note of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from specsim.core.protocols import Beginning, Noting, Observer, PassEvent, Scheduler
from specsim.core.request import Floats, Ints
from specsim.core.user_code import guarded
from specsim.errors import ObserverFault, SchedulerFault, SpecsimError, represented

Fault = type[SpecsimError]


class Observing:
    """Show each pass of a run of so many `requests` to its observers, which share no name of a column.

    Raises
    ------
    ObserverFault
        Here and when called, when an observer fails: one line with its name, the simulated time and the user's line.
    """

    def __init__(self, observers: Sequence[Observer], requests: int) -> None:
        self._observers, self._requests = tuple(observers), requests
        for each in self._observers:
            if not callable(getattr(each, "on_pass", None)):
                raise ObserverFault(f"observers: {represented(each)} has no on_pass(event) method")
            if isinstance(each, Beginning):
                guarded(each.begin, (requests,), _said(each), ObserverFault)

    def __call__(self, event: PassEvent) -> None:
        """Show a pass that has ended."""
        for each in self._observers:
            guarded(each.on_pass, (event,), f"{_said(each)} at {event.view.now_s:g} s", ObserverFault)

    def noted(self, by_schedulers: Mapping[str, Floats]) -> dict[str, Floats]:
        """Return by name what schedulers and observers noted of each request, (N,), NaN: nothing.

        Raises
        ------
        ObserverFault
            When a name is noted twice, or an observer notes anything but a number a request under a name of its own.
        """
        found = dict(by_schedulers)
        for each in self._observers:
            if isinstance(each, Noting):
                columns = _columns(each, self._requests, _said(each), ObserverFault)
                twice = sorted(set(columns) & set(found))
                if twice:
                    raise ObserverFault(
                        f"{_said(each)}: noted {twice[0]}, which is noted already; expected another name"
                    )
                found |= columns
        return found


def noted_by(schedulers: Sequence[Scheduler], replica_of: Ints) -> dict[str, Floats]:
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
        mine, who = replica_of == name, f"scheduler {type(scheduler).__name__}"
        for column, numbers in _columns(scheduler, len(replica_of), who, SchedulerFault).items():
            found.setdefault(column, np.full(len(replica_of), np.nan))[mine] = numbers[mine]
    return found


def _columns(noting: Noting, requests: int, who: str, fault: Fault) -> dict[str, Floats]:
    def numbers(count: int) -> dict[str, Floats]:
        told: Mapping[str, Floats] = noting.noted(count)
        return {name: np.asarray(column, dtype=np.float64) for name, column in told.items()}

    found: dict[str, Floats] = guarded(numbers, (requests,), who, fault, noting)
    for name, column in found.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise fault(f"{who}: noted {name!r}; expected a name of letters, digits and underscores")
        if column.shape != (requests,):
            raise fault(f"{who}: noted {name} has shape {column.shape}; expected ({requests},)")
    return found


def _said(observer: object) -> str:
    return f"observer {type(observer).__name__}"
