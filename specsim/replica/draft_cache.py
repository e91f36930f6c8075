"""The drafter's cache of a replica: what it holds of each text, and of the nodes that this step has drafted."""

from __future__ import annotations

from typing import NoReturn

import numpy as np

from specsim.errors import IllegalPass
from specsim.kernels.books import Books, deepen, reserve_draft
from specsim.pass_shape import PassShape
from specsim.replica.kv_pool import DRAFT, KvPool
from specsim.replica.legality import check_leaves, first_wrong
from specsim.replica.passes import NOBODY, Drafted, DraftPass
from specsim.replica.request import Ids, Ints


class DraftCache:
    """The drafter's half of a ledger: `progress.draft_cached`, and the blocks of the drafter in the pool.

    `extended` are the requests whose leaves the last reserved pass extends; `feeds` is as given.

    Parameters
    ----------
    books, pool : of the ledger.
    feeds : whether there is a cache. For a drafter without one (a lookup, heads that read the target's last state),
        only the root of each decoding request is pending.
    """

    __slots__ = ("_books", "_pool", "extended", "feeds")

    def __init__(self, books: Books, pool: KvPool, feeds: bool) -> None:
        self._books, self._pool, self.feeds = books, pool, feeds
        self.extended = NOBODY

    def share(self, request: int, tokens: int) -> None:
        """Note that so many of a request's first tokens are cached before it begins."""
        self._books.draft_cached[request] = tokens * self.feeds

    def fed(self, ids: Ids) -> Ints:
        """Return the tokens that the drafter's own cache holds of each request, (n,)."""
        return self._books.draft_cached[ids] * self.feeds

    def reserve(self, work: DraftPass, ids: Ids) -> PassShape:
        """Take the slots of a draft pass of these rows, or of the first of several, and return its shape.

        Raises
        ------
        IllegalPass
            When a chunk is longer than what is lacking, a leaf is none or has not caught up, or nothing would run.
        OutOfMemory
            When the pool is too small.
        """
        forest, leaves = work.forest, work.leaves
        if len(leaves) and (work.deepest is not None or not work.width):
            check_leaves(work)
        asked = ids, work.chunks, forest.numbers, forest.fresh, leaves
        taken = reserve_draft(self._books, *asked, self._pool.left())
        if taken.shape is None:
            self._refuse(work)
        self._pool.take(DRAFT, taken.blocks)
        self.extended = taken.rows
        return taken.shape

    def _refuse(self, work: DraftPass) -> NoReturn:
        """Say why a draft pass is illegal: what is wrong with a leaf or a chunk, or that nothing would run."""
        check_leaves(work)
        cached = self._books.draft_cached[work.requests]
        chunks = work.chunks if len(work.chunks) else np.zeros_like(work.requests)
        pending = self._books.prompt_tokens[work.requests] + self._books.emitted_tokens[work.requests] - cached
        wrong = (chunks < 0) | (chunks > pending)
        if np.count_nonzero(wrong):
            said = first_wrong(wrong, "request {} is given {} of {}", work.requests, chunks, pending)
            raise IllegalPass(f"a draft chunk must hold no more tokens than the drafter's cache lacks: {said}")
        extended = work.forest.row[work.leaves]
        wrong = (pending > chunks)[extended]
        if np.count_nonzero(wrong):
            columns = (each[extended] for each in (work.requests, chunks, pending))
            said = first_wrong(wrong, "request {} is given {} of {} tokens", *columns)
            raise IllegalPass(f"a leaf can only be extended where the drafter's cache has caught up: {said}")
        raise IllegalPass("a draft pass without tokens: nobody's chunk holds any, and no drafted node is extended")

    def deepen(self, work: DraftPass, ids: Ids, drafted: Drafted) -> None:
        """Take the slots of what the passes behind the first have extended.

        Raises
        ------
        OutOfMemory
            When the pool is too small.
        """
        grown = drafted.forest.numbers, drafted.extended
        self._pool.take(DRAFT, deepen(self._books, ids, work.chunks, *grown, self._pool.left()))

    def drop(self, ids: Ids) -> None:
        """Drop those nodes of these requests that no verification took up."""
        left = ids[self._books.draft_nodes[ids] > 0]
        if len(left):
            self.forget(left)
            self._pool.hold(DRAFT, left, self._books.draft_cached[left])

    def forget(self, ids: Ids) -> None:
        """Note that no drafted node of these requests is cached."""
        self._books.draft_nodes[ids] = self._books.draft_depth[ids] = 0

    def follow(self, ids: Ids) -> None:
        """Move a drafter without a cache to where the target is: behind all but the root of a decoding request."""
        if not self.feeds:
            books, emitted = self._books, self._books.emitted_tokens[ids]
            known = books.prompt_tokens[ids] + emitted
            books.draft_cached[ids] = known - ((known - books.target_cached[ids] == 1) & (emitted > 0))
