"""The drafter's cache of a replica: what it holds of each text, and of the nodes that this step has drafted."""

from __future__ import annotations

import numpy as np

from specsim.errors import IllegalPass
from specsim.pass_shape import PassShape
from specsim.replica.kv_pool import DRAFT, KvPool
from specsim.replica.legality import drafted_leaves, first_wrong
from specsim.replica.passes import NOBODY, Drafted, DraftPass
from specsim.replica.request import Facts, Ids, Ints
from specsim.replica.state import Progress, known_tokens
from specsim.replica.trees import Forest


class DraftCache:
    """The drafter's half of a ledger: `progress.draft_cached`, and the blocks of the drafter in the pool.

    `extended` are the requests whose leaves the last reserved pass extends; `feeds` is as given.

    Parameters
    ----------
    facts, progress, pool : of the ledger.
    feeds : whether there is a cache. For a drafter without one (a lookup, heads that read the target's last state),
        only the root of each decoding request is pending.
    """

    __slots__ = ("_depth", "_facts", "_nodes", "_pool", "_progress", "extended", "feeds")

    def __init__(self, facts: Facts, progress: Progress, pool: KvPool, feeds: bool) -> None:
        self._facts, self._progress, self._pool, self.feeds = facts, progress, pool, feeds
        self._nodes = np.zeros_like(progress.draft_cached)
        self._depth = np.zeros_like(progress.draft_cached)
        self.extended = NOBODY

    def share(self, request: int, tokens: int) -> None:
        """Note that so many of a request's first tokens are cached before it begins."""
        self._progress.draft_cached[request] = tokens * self.feeds

    def fed(self, ids: Ids) -> Ints:
        """Return the tokens that the drafter's own cache holds of each request, (n,)."""
        return self._progress.draft_cached[ids] * self.feeds

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
        cached = self._progress.draft_cached[ids]
        inner = drafted_leaves(work)
        nodes = np.bincount(forest.row[inner], minlength=len(ids))
        held = self._nodes[ids] + nodes
        if not len(work.chunks) and len(inner) == len(leaves):
            # Whoever has drafted nodes has caught up: there is nothing to feed and nothing to look at.
            self._pool.hold(DRAFT, ids, cached + held)
            shape = PassShape.of_nodes(cached, nodes)
        else:
            chunks = work.chunks if len(work.chunks) else np.zeros_like(ids)
            self._check_fed(work, cached, chunks)
            self._pool.hold(DRAFT, ids, cached + chunks + held)
            prompts = cached < self._facts.prompt_tokens[ids]
            shape = PassShape.of(cached, chunks, nodes if len(inner) else None, int(np.dot(chunks, prompts)))
        if not shape.batched_tokens:
            raise IllegalPass("a draft pass without tokens: nobody's chunk holds any, and no drafted node is extended")
        self._note(ids, held, forest, leaves)
        self.extended = ids[forest.row[leaves]]
        return shape

    def _check_fed(self, work: DraftPass, cached: Ints, chunks: Ints) -> None:
        """Refuse chunks (n,) longer than what is lacking; whoever is extended must have caught up by then."""
        pending = known_tokens(self._facts, self._progress, work.requests) - cached
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

    def deepen(self, work: DraftPass, ids: Ids, drafted: Drafted) -> None:
        """Take the slots of what the passes behind the first have extended.

        Raises
        ------
        OutOfMemory
            When the pool is too small.
        """
        forest, extended = drafted.forest, drafted.extended
        held = self._nodes[ids] + np.bincount(forest.row[extended], minlength=len(ids))
        cached = self._progress.draft_cached[ids]
        self._pool.hold(DRAFT, ids, (cached + work.chunks if len(work.chunks) else cached) + held)
        self._note(ids, held, forest, extended)

    def _note(self, ids: Ids, held: Ints, forest: Forest, leaves: Ints) -> None:
        """Note that each row holds so many drafted nodes (n,), and how deep the `leaves` lie that were extended."""
        self._nodes[ids] = held
        if len(leaves):
            np.maximum.at(self._depth, ids[forest.row[leaves]], forest.depth[leaves])

    def keep(self, ids: Ids, matched: Ints) -> None:
        """Keep what lies on the accepted path of these rows; `matched` (n,) draft tokens were right."""
        progress = self._progress
        if self.feeds:
            in_step = progress.draft_cached[ids] == known_tokens(self._facts, progress, ids)
            progress.draft_cached[ids] += np.where(in_step, np.minimum(matched, self._depth[ids]), 0)
        self.forget(ids)
        self._pool.hold(DRAFT, ids, progress.draft_cached[ids])

    def drop(self, ids: Ids) -> None:
        """Drop those nodes of these requests that no verification took up."""
        left = ids[self._nodes[ids] > 0]
        if len(left):
            self.keep(left, np.zeros_like(left))

    def forget(self, ids: Ids) -> None:
        """Note that no drafted node of these requests is cached."""
        self._nodes[ids] = self._depth[ids] = 0

    def follow(self, ids: Ids) -> None:
        """Move a drafter without a cache to where the target is: behind all but the root of a decoding request."""
        if not self.feeds:
            progress = self._progress
            known = known_tokens(self._facts, progress, ids)
            decoding = (known - progress.target_cached[ids] == 1) & (progress.emitted_tokens[ids] > 0)
            progress.draft_cached[ids] = known - decoding
