"""What a replica tells of its passes when they have ended."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

from specsim.pass_shape import PassShape
from specsim.replica.emissions import Gaps
from specsim.replica.passes import Drafted, DraftPass, Emitted, TargetPass


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


class Booking(Protocol):
    """Hears of each pass of each replica, by its index, when it has ended."""

    def draft(self, replica: int, start_s: float, seconds: Sequence[float], work: DraftPass, drafted: Drafted) -> None:
        """Note the passes of a draft, which follow each other without a pause; `seconds` of each, as of a pass."""
        ...

    def verify(self, replica: int, verified: Verification) -> None:
        """Note a verification."""
        ...
