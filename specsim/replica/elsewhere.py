"""Caches of waiting requests that lie outside their own blocks: on the host, in others' blocks, come over a link."""

from __future__ import annotations

import numpy as np

from specsim.replica.request import Ids, Ints

HOST, OTHERS, LINK = range(3)


class Elsewhere:
    """Waiting requests with cached tokens and no blocks.

    The cache of one that was preempted by transfer is on the host and moves back. The beginning of a prompt that others
    have cached comes at no cost, into blocks of the request's own. So does what has come over a link from the replica
    that read the prompt: the link has taken its time.
    """

    def __init__(self) -> None:
        self._where: dict[int, int] = {}

    def __bool__(self) -> bool:
        return bool(self._where)

    def to_host(self, ids: Ids) -> None:
        """Note that the caches of `ids` (n,) have left for the host."""
        self._where.update(dict.fromkeys(ids.tolist(), HOST))

    def with_others(self, request: int) -> None:
        """Note that others hold the beginning of a request's prompt."""
        self._where[request] = OTHERS

    def over_link(self, request: int) -> None:
        """Note that a request's cache has come from another replica."""
        self._where[request] = LINK

    def forget(self, request: int) -> None:
        """Drop what a request has elsewhere, if anything."""
        self._where.pop(request, None)

    def taken(self, ids: Ids) -> tuple[Ids, Ints]:
        """Return those of `ids` (n,) whose cache was elsewhere, (m,), and where; they are forgotten."""
        back = ids[np.isin(ids, np.fromiter(self._where, dtype=np.int64, count=len(self._where)))]
        return back, np.array([self._where.pop(request) for request in back.tolist()], dtype=np.int64)
