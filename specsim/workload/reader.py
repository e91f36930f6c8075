"""The seam of a trace: what makes its requests for a run."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from specsim.workload.trace import Trace


class TraceReader(Protocol):
    """A kind of trace, made from the keys of its file.

    `drawn` names what the seed draws anew, any of ``arrivals``, ``lengths`` and ``classes``; nothing where the trace
    is a recording.
    """

    @property
    def drawn(self) -> Sequence[str]: ...  # noqa: D102

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the whole trace, or its first `requests` where the reader can stop there; it may return more.

        The same seed gives the same trace, and a shorter one is the beginning of a longer one.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldTrace:
    """A trace that is there already."""

    drawn: ClassVar[tuple[str, ...]] = ()
    held: Trace

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the trace, whatever the seed."""
        return self.held
