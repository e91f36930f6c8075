"""One step of a scheduler: what it asks for, what it is told, and whose line it is when that goes wrong."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import suppress
from types import GeneratorType
from typing import Any, NoReturn

from specsim.errors import IllegalPass, SchedulerFault, represented
from specsim.replica.blame import complaint, definition, own_line
from specsim.replica.legality import owned
from specsim.replica.passes import DraftPass, Pass, TargetPass
from specsim.replica.protocols import Scheduler, Step, View
from specsim.replica.stall import TOO_LONG, StepTooLong

_PASSES = (DraftPass, TargetPass)


class Conversation:
    """One turn with a scheduler, from its ``step(view)`` to the next scheduling point.

    Raises
    ------
    SchedulerFault
        Here and in `ask`, when the scheduler fails: one line with its name, the simulated time and the user's own line.
    """

    __slots__ = ("_scheduler", "_step", "_view")

    def __init__(self, scheduler: Scheduler, view: View) -> None:
        self._scheduler, self._view = scheduler, view
        try:
            self._step: Step = scheduler.step(view)
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(self._step) is not GeneratorType and not isinstance(self._step, Generator):
            raise self._fault(f"{self._answered(self._step)}; expected a generator: yield each pass")

    def ask(self, answer: Any) -> Pass | None:
        """Return the next pass, given the answer to the last one (None at first); None when the step has ended."""
        try:
            work = self._step.send(answer)
        except StopIteration as end:
            if isinstance(end.value, DraftPass | TargetPass):
                raise self._fault(f"{self._answered(end.value)}; expected it to be yielded") from None
            return None
        except KeyboardInterrupt:
            raise
        except BaseException as error:
            raise self._failed(error) from error
        if type(work) not in _PASSES:
            self.refuse(f"step yielded {_kind(work)}; expected a DraftPass or a TargetPass")
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

        Whatever the step does with it, the run ends.
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

    def _answered(self, value: Any) -> str:
        return f"step returned {_kind(value)}"

    def _told(self, what: str) -> str:
        return f"scheduler {type(self._scheduler).__name__} at {self._view.now_s:g} s: {what}"


def _kind(value: Any) -> str:
    if isinstance(value, DraftPass | TargetPass):
        return f"a {type(value).__name__}"
    return "None" if value is None else f"{represented(value)} ({type(value).__name__})"
