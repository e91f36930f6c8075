"""Event log: what a pass has done."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np

from specsim.core.passes import Decodes, Drafted, DraftPass, Emitted, Rounds, TargetPass
from specsim.core.request import Floats, Ids
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
