"""Caches of waiting requests that lie outside their own blocks: on the host, or in the blocks of others."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Bools, Ids


class Elsewhere:
    """Waiting requests with cached tokens and no blocks.

    The cache of one that was preempted by transfer is on the host and moves back. The beginning of a prompt that others
    have cached comes at no cost, into blocks of the request's own.
    """

    def __init__(self) -> None:
        self._moves: dict[int, bool] = {}

    def __bool__(self) -> bool:
        return bool(self._moves)

    def to_host(self, ids: Ids) -> None:
        """Note that the caches of `ids` (n,) have left for the host."""
        self._moves.update(dict.fromkeys(ids.tolist(), True))

    def with_others(self, request: int) -> None:
        """Note that others hold the beginning of a request's prompt."""
        self._moves[request] = False

    def forget(self, request: int) -> None:
        """Drop what a request has elsewhere, if anything."""
        self._moves.pop(request, None)

    def taken(self, ids: Ids) -> tuple[Ids, Bools]:
        """Return those of `ids` (n,) whose cache was elsewhere, (m,), and whether it moves; they are forgotten."""
        back = ids[np.isin(ids, np.fromiter(self._moves, dtype=np.int64, count=len(self._moves)))]
        return back, np.array([self._moves.pop(request) for request in back.tolist()], dtype=np.bool_)
