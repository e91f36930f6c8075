"""The protocol of an acceptance: it makes the tape of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, Protocol

from specsim.replica.request import Ints
from specsim.world.tape import Tape

Evidence = Literal["assumed", "fitted", "recorded"]
"""The basis of an acceptance: an assumption, summary numbers of a pair of models, or what a pair did token by token."""


class AcceptanceModel(Protocol):
    """How often a drafter agrees with its target, and how sure it is, by the keys of an acceptance file.

    `evidence` is the basis of the numbers. An ``assumed`` acceptance is of any pair unless its file names one. A
    ``recorded`` one is refused on another target. `sha256` is the checksum of the file that is read, or None. A sweep
    makes its runs anew when the checksum changes.
    """

    @property
    def evidence(self) -> Evidence: ...  # noqa: D102
    @property
    def sha256(self) -> str | None: ...  # noqa: D102

    def tape(self, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> Tape:
        """Return the tape of the requests in `rows` (N,) of a trace; `slo_class` (N,) indexes `category`.

        The text of a request may depend only on its category, its row and the seed, so that every scheduler, rate and
        length of the trace meets the same text.
        """
        ...
