"""The seam of acceptance: what makes the tape of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from specsim.replica.request import Ints
from specsim.world.tape import Tape

Evidence = Literal["assumed", "fitted", "recorded"]
"""What an acceptance rests on: no pair of models, summary numbers of a pair, or what a pair did token by token."""


class AcceptanceModel(Protocol):
    """How often a drafter agrees with its target, and how sure it is; made from the keys of an acceptance file.

    `evidence` says what the numbers rest on: one that is ``assumed`` is of any pair unless its file names one, one that
    is ``recorded`` is refused on another target. `sha256` is the checksum of the file that is read, None without one:
    a sweep makes its runs anew when it changes.
    """

    @property
    def evidence(self) -> Evidence: ...  # noqa: D102
    @property
    def sha256(self) -> str | None: ...  # noqa: D102

    def tape(self, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> Tape:
        """Return the tape of requests `rows` (N,) of a trace, whose classes (N,) index the categories.

        What a request meets may depend on its category, its row and the seed alone: then every scheduler, rate and
        length of the trace meets the same text.
        """
        ...
