"""One turn with a scheduler: its pass, and its seconds of planning."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable, Generator, Hashable, Iterator, Sequence
from contextlib import contextmanager, suppress
from math import inf, nextafter
from types import GeneratorType
from typing import Any, NoReturn

import numpy as np

from specsim.core.passes import DraftPass, Pass, TargetPass
from specsim.core.protocols import Scheduler, Step, View
from specsim.core.request import Floats
from specsim.core.user_code import complaint, definition, own_line
from specsim.errors import IllegalPass, ModelFault, SchedulerFault
from specsim.server.rules import kind_of, owned
from specsim.server.state import Progress, RequestQueues

TARGET, DRAFTER = "the target", "the drafter"


def delays(start_s: float, seconds: Sequence[float]) -> Sequence[float]:
    """Return delays from `start_s` that end where these `seconds` end when they are waited for one by one.

    One delay wherever floats allow it, else `seconds`, which are those of a drafter's passes.

    Raises
    ------
    ModelFault
        When no clock can wait for one of them.
    """
    end_s = start_s
    for each in seconds:
        end_s += possible(each, DRAFTER)
    if len(seconds) == 1:
        return seconds
    delay_s = single(start_s, end_s)
    return seconds if delay_s is None else (delay_s,)


def single(start_s: float, end_s: float) -> float | None:
    """Return the delay that ends at exactly `end_s`; None where there is none.

    Where the clock is about as fine as the delay, sums may fall between two numbers and round to the even one: no
    single delay ends at an odd one.
    """
    delay_s = end_s - start_s
    for near_s in (delay_s, nextafter(delay_s, 0.0), nextafter(delay_s, inf)):
        if start_s + near_s == end_s:
            return near_s
    return None


def possible(seconds: float, model: str = TARGET) -> float:
    """Return the seconds of a pass of a model; refuse those that no clock can wait for."""
    if 0 <= seconds < inf:
        return seconds
    raise ModelFault(f"a pass of {model} takes {seconds:g} s; expected a finite number of seconds, at least 0")


def check_rounds(seconds: Floats, end_s: float) -> None:
    """Refuse rounds (n, passes) with a pass that no clock can wait for; they end at `end_s`, each with the target's."""
    if np.minimum.reduce(seconds, axis=None) >= 0 and end_s < inf:
        return
    for model, passes in ((DRAFTER, seconds[:, :-1]), (TARGET, seconds[:, -1:])):
        for each in passes.ravel().tolist():
            possible(each, model)


_PASSES = (DraftPass, TargetPass)


class Conversation:
    """One turn with a scheduler, from its ``step(view)`` to the next scheduling point.

    Raises
    ------
    SchedulerFault
        Here and in `ask`, when the scheduler fails: one line with its name, the simulated time and the user's own line.
    """

    def __init__(self, scheduler: Scheduler, view: View) -> None:
        self._scheduler, self._view = scheduler, view
        try:
            self._step: Step = scheduler.step(view)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(self._step) is not GeneratorType and not isinstance(self._step, Generator):
            raise self._fault(f"step returned {kind_of(self._step)}; expected a generator: yield each pass")

    def ask(self, answer: Any) -> Pass | None:
        """Return the next pass, given the answer to the last one (None at first); None when the step has ended."""
        try:
            work = self._step.send(answer)
        except StopIteration as end:
            if isinstance(end.value, DraftPass | TargetPass):
                raise self._fault(f"step returned {kind_of(end.value)}; expected it to be yielded") from None
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(work) not in _PASSES:
            self.refuse(f"step yielded {kind_of(work)}; expected a DraftPass or a TargetPass")
        try:
            return owned(work)
        except IllegalPass as error:
            self.refuse(str(error))

    def end(self) -> None:
        """End the step where it yields: what it asked for has run several times, and nobody is answered."""
        try:
            self._step.close()
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error

    def refuse(self, reason: str) -> NoReturn:
        """Throw an `IllegalPass` into the step, where it yields, and raise one that names that line.

        The run ends, whatever the step does with it.
        """
        thrown = IllegalPass(reason)
        with suppress(BaseException):
            self._step.throw(thrown)
        raise IllegalPass(self._told(reason + own_line(thrown.__traceback__, self._scheduler))) from thrown

    def _failed(self, error: BaseException) -> SchedulerFault:
        # The first frame is ours.
        trace = error.__traceback__.tb_next if error.__traceback__ is not None else None
        where = own_line(trace, self._scheduler) or definition(self._scheduler.step)
        said = TOO_LONG if isinstance(error, StepTooLong) else complaint(error)
        return SchedulerFault(self._told(said + where))

    def _fault(self, what: str) -> SchedulerFault:
        return SchedulerFault(self._told(what + definition(self._scheduler.step)))

    def _told(self, what: str) -> str:
        return f"scheduler {type(self._scheduler).__name__} at {self._view.now_s:g} s: {what}"


PASSES = 10_000
LOOK_EVERY = 1_024
TICKS = 20
TOO_LONG = "no next pass within step_limit_s of wall time"


class Livelock(SchedulerFault):
    """A scheduler let requests wait for ever."""


class StepTooLong(BaseException):
    """Thrown into a scheduler that has not come to its next pass in time; no `Exception`, so that none catches it."""


class LivelockDetector:
    """Counts the passes of one replica, and those among them that brought nothing.

    A pass brings something when a token is emitted, or more is cached in all than at any time since the last token: a
    long prompt may take many passes, but what is evicted and computed again does not count twice.

    Attributes
    ----------
    passes : of both models so far. idle_passes : those since the last that brought something, as far as it has looked.
    """

    def __init__(self, progress: Progress, queues: RequestQueues) -> None:
        self.passes = self.idle_passes = 0
        self._progress, self._queues = progress, queues
        self._look_at = LOOK_EVERY
        self._emitted, self._most_cached = (0, 0), 0

    def shrunk(self) -> None:
        """Hear that cache was freed of a request that is gone for good."""
        self._emitted, self._most_cached = (self._queues.ended, 0), 0

    def lost(self) -> bool:
        """Return whether `PASSES` or more have brought nothing by now, looked at now and then."""
        return self.passes >= self._look_at and self._look()

    def _look(self) -> bool:
        self._look_at = self.passes + LOOK_EVERY
        progress, live = self._progress, self._queues.ids
        emitted = self._queues.ended, int(progress.emitted_tokens[live].sum())
        cached = int(progress.target_cached[live].sum()) + int(progress.draft_cached[live].sum())
        if emitted > self._emitted:
            self._emitted, self._most_cached, self.idle_passes = emitted, cached, 0
        elif cached > self._most_cached:
            self._most_cached, self.idle_passes = cached, 0
        else:
            self.idle_passes += LOOK_EVERY
        return self.idle_passes >= PASSES


@contextmanager
def watchdog(alive: Callable[[], Hashable], limit_s: float | None) -> Iterator[None]:
    """Throw `StepTooLong` into this thread whenever `alive()` stays what it is for `limit_s` seconds of wall time.

    Code that waits in a call of the operating system or of a library hears it when that returns.
    """
    if limit_s is None:
        yield
        return
    ended, here = threading.Event(), threading.get_ident()

    def watch() -> None:
        seen, quiet = alive(), 0
        while not ended.wait(limit_s / TICKS):
            now = alive()
            quiet = quiet + 1 if now == seen else 0
            seen = now
            if quiet >= TICKS:
                ctypes.pythonapi.PyThreadState_SetAsyncExc(ctypes.c_ulong(here), ctypes.py_object(StepTooLong))
                quiet = 0

    dog = threading.Thread(target=watch, name="specsim watchdog", daemon=True)
    dog.start()
    try:
        yield
    finally:
        ended.set()
        dog.join()
