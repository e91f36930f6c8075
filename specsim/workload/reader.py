"""The protocol of a trace reader."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Protocol

from specsim.workload.trace import Trace


class TraceReader(Protocol):
    """A kind of trace, by the keys of its file.

    `drawn` names what the seed draws anew, of ``arrivals``, ``lengths`` and ``classes``. It is empty for a recording.
    """

    @property
    def drawn(self) -> Sequence[str]: ...  # noqa: D102

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the whole trace; a reader that can stop early may return only the first `requests`.

        The same seed gives the same trace. A shorter trace is the beginning of a longer one.
        """
        ...


@dataclass(frozen=True, slots=True)
class HeldTrace:
    """A reader of a trace in memory."""

    drawn: ClassVar[tuple[str, ...]] = ()
    held: Trace

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the trace, whatever the seed."""
        return self.held
