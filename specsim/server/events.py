"""Event log: what a pass has done. Observers of a run, and what they and its schedulers note of each request."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple, Protocol

import numpy as np

from specsim.core.passes import Decodes, Drafted, DraftPass, Emitted, Rounds, TargetPass
from specsim.core.protocols import Beginning, Noting, Observer, PassEvent, Scheduler
from specsim.core.request import Floats, Ids, Ints
from specsim.core.user_code import columns, guarded
from specsim.errors import ObserverFault, SchedulerFault, SpecsimError, represented
from specsim.pass_shape import PassShape


class Gaps(NamedTuple):
    """Inter-token latencies of one pass, (m,) each: the request, and the time since its previous emission."""

    requests: Ids
    seconds: Floats


class Verification(NamedTuple):
    """One verification that has ended.

    Attributes
    ----------
    start_s : when the scheduler asked for it.
    thinking_s : seconds of the scheduler's own work, which come first.
    seconds : of the pass behind that, the moving of caches included.
    work, shape, answer : the pass, what it cost by, and what it emitted.
    gaps : since each emitting request's previous emission.
    """

    start_s: float
    thinking_s: float
    seconds: float
    work: TargetPass
    shape: PassShape
    answer: Emitted
    gaps: Gaps


class DecodeSteps(NamedTuple):
    """Steps of multi-step scheduling in which each row decodes one token.

    Attributes
    ----------
    starts_s : (passes + 1,) of each, and the end of the last. decodes : what they did.
    gaps : of the first, since each row's previous emission; behind it, those since the pass before.
    """

    starts_s: Floats
    decodes: Decodes
    gaps: Gaps


class SpeculativeSteps(NamedTuple):
    """Rounds of multi-step scheduling: chains and their verifications.

    Attributes
    ----------
    starts_s : (passes + 1,) of each pass, and the end of the last. rounds : what they did.
    gaps : of the first round, since each row's previous emission; behind it, those since the round before.
    """

    starts_s: Floats
    rounds: Rounds
    gaps: Gaps


def in_turn(total: float, seconds: Floats) -> Floats:
    """Return the totals (n + 1,), from `total` on, as seconds (n,) are added one after the other, to the last bit."""
    sums = np.empty(len(seconds) + 1)
    sums[0], sums[1:] = total, seconds
    return np.add.accumulate(sums, out=sums)


class EventLog(Protocol):
    """The event log: each pass of each replica, by its index, is entered when it has ended."""

    def draft(self, replica: int, start_s: float, seconds: Sequence[float], work: DraftPass, drafted: Drafted) -> None:
        """Note the passes of a draft, which follow each other without a pause; `seconds` of each, as of a pass."""

    def verify(self, replica: int, verified: Verification) -> None:
        """Note a verification."""

    def decode_steps(self, replica: int, steps: DecodeSteps) -> None:
        """Note passes of decoding rows."""

    def speculative_steps(self, replica: int, steps: SpeculativeSteps) -> None:
        """Note rounds of chains."""


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
    found: dict[str, Floats] = guarded(columns, (noting, requests), who, fault, noting.noted)
    for name, column in found.items():
        if not isinstance(name, str) or not name.isidentifier():
            raise fault(f"{who}: noted {name!r}; expected a name of letters, digits and underscores")
        if column.shape != (requests,):
            raise fault(f"{who}: noted {name} has shape {column.shape}; expected ({requests},)")
    return found


def _said(observer: object) -> str:
    return f"observer {type(observer).__name__}"
