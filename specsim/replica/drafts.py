"""Which trees a pass may take up: those that were drafted in this step and that no verification has overtaken."""

from __future__ import annotations

import numpy as np

from specsim.errors import IllegalPass
from specsim.replica.passes import DraftPass
from specsim.replica.request import Ids
from specsim.replica.trees import ROOTS, Forest, give


class Drafts:
    """Rows of the passes of one step; a forest that a draft pass answered carries its rows as `Forest.origin`.

    A forest lives until its rows are verified or evicted, until trees are grown from roots behind a verification, or
    until the step ends, whichever is first.
    """

    __slots__ = ("_open", "_verified", "rows")

    def __init__(self) -> None:
        self.rows: list[Ids] = []
        self._open: dict[bytes, Ids] = {}
        self._verified = False

    def open(self, key: bytes, requests: Ids) -> Ids:
        """Let trees be drafted for legal rows, whose bytes are `key`; return these, which nobody may write to."""
        requests.setflags(write=False)
        self._open[key] = requests
        return requests

    def find(self, key: bytes) -> Ids | None:
        """Return the rows that were opened with the same bytes, None where there are none."""
        return self._open.get(key)

    def check(self, forest: Forest, rows: Ids) -> None:
        """Refuse a forest that does not live, or not for exactly these open rows.

        Raises
        ------
        IllegalPass
            One line that says what it is instead.
        """
        origin = forest.origin
        if origin is rows or (origin is ROOTS and not forest.draft_nodes):
            return
        if origin is None:
            raise IllegalPass("a forest that no draft pass has answered; expected one that yield returned, or a subset")
        if np.array_equal(origin, rows):
            raise IllegalPass("a forest of the past: drafted in an earlier step, or overtaken by a verification")
        raise IllegalPass(f"a forest of requests {_listed(origin)} in a pass of requests {_listed(rows)}")

    def grown(self, rows: Ids, work: DraftPass, answer: Forest) -> None:
        """Let the answer to a draft pass live."""
        if not self.rows or self.rows[-1] is not rows:
            self.rows.append(rows)
        if answer is not work.forest:
            give(answer, rows)
        if self._verified and len(work.leaves) and not work.forest.draft_nodes:
            self._open, self._verified = {rows.tobytes(): rows}, False

    def verified(self, rows: Ids) -> None:
        """End the trees of these rows, and what was drafted for any of their requests."""
        self._verified = True
        self.close(rows)

    def close(self, ids: Ids) -> None:
        """End all trees of these requests."""
        if len(self._open) == 1 and next(iter(self._open.values())) is ids:
            self._open.clear()
            return
        self._open.pop(ids.tobytes(), None)
        for key, rows in list(self._open.items()) if self._open else ():
            if np.isin(rows, ids).any():
                del self._open[key]

    def end(self) -> None:
        """End the step, and all trees."""
        self.rows.clear()
        self._open.clear()


def _listed(ids: Ids) -> str:
    return f"{', '.join(map(str, ids[:4].tolist()))}{', ...' if len(ids) > 4 else ''}"
