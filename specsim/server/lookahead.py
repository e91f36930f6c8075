"""The ledger's books of what runs at once: how often surely, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from specsim.core.passes import Decodes, DraftPass, Rounds, TargetPass
from specsim.core.request import Facts, Floats, Ids, Ints
from specsim.kernels.books import POSITIONS
from specsim.server.events import Emissions, Gaps
from specsim.server.kv_cache import DRAFT, TARGET, DraftCache, KvPool
from specsim.server.prefix_cache import Caches
from specsim.server.state import Progress, Roster, known_tokens

BEHIND_A_ROUND = 2
"""The most tokens that the drafter lacks behind a round: the last of its chain, and the bonus token."""


class Ahead:
    """Books passes that nothing comes between, all in one.

    Parameters
    ----------
    facts, progress, pool, roster, draft_cache, caches, emissions : of the ledger.
    finish : frees what requests hold that have emitted their last token, at these seconds.
    """

    def __init__(
        self,
        facts: Facts,
        progress: Progress,
        pool: KvPool,
        roster: Roster,
        draft_cache: DraftCache,
        caches: Caches,
        emissions: Emissions,
        finish: Callable[[Ids, Floats | float], None],
    ) -> None:
        self._facts, self._progress, self._pool, self._roster = facts, progress, pool, roster
        self._draft_cache, self._caches, self._emissions = draft_cache, caches, emissions
        self._finish = finish

    def passes(self, work: TargetPass) -> int:
        """Return how often this pass, which is not reserved, can surely run; 0 unless each row decodes one token.

        Raises
        ------
        IllegalPass
            When a request is unknown or named twice.
        """
        ids, forest, progress = work.requests, work.forest, self._progress
        if len(work.evict) or self._caches.elsewhere or forest.draft_nodes:
            return 0
        if not 0 < len(ids) == len(work.chunks) == forest.rows:
            return 0
        self._roster.check(ids)
        pending = known_tokens(self._facts, progress, ids) - progress.target_cached[ids]
        ready = (pending == 1) & (work.chunks == 1) & (progress.emitted_tokens[ids] > 0)
        return self._pool.surely_more(len(ids)) if np.count_nonzero(ready) == len(ids) else 0

    def commit_passes(self, work: TargetPass, decodes: Decodes, starts_s: Floats) -> Gaps:
        """Book passes that start at `starts_s`, the end of the last behind them, (passes + 1,)."""
        ids, progress, times = work.requests, self._progress, decodes.times
        for column in ("emitted_tokens", "verifications", "decoded_tokens"):
            getattr(progress, column)[ids] += times
        cached = progress.target_cached[ids] + times
        if len(decodes) > 1:
            self._settle(ids, cached - 1)
        progress.target_cached[ids] = cached
        self._pool.hold(TARGET, ids, cached)
        ends_s, finished = starts_s[times], decodes.finished
        gaps = self._emissions.repeat(ids, starts_s, ends_s)
        self._draft_cache.follow(ids)
        if np.count_nonzero(finished):
            self._finish(ids[finished], ends_s[finished])
        return gaps

    def rounds(self, work: DraftPass) -> int:
        """Return how many rounds can surely run that begin with this pass, which is not reserved; 0: not at once.

        Each row decodes, has its prompt in both caches, and is fed all that the drafter lacks, as behind a round.

        Raises
        ------
        IllegalPass
            When a request is unknown or named twice.
        """
        ids, leaves, forest, progress = work.requests, work.leaves, work.forest, self._progress
        if work.width != 1 or work.beam is not None or work.deepest is not None or len(work.evict):
            return 0
        if self._caches.elsewhere or forest.draft_nodes or not 0 < len(ids) == len(work.chunks) == forest.rows:
            return 0
        if leaves.tobytes() != forest.row.tobytes():
            return 0
        self._roster.check(ids)
        prompt, emitted = self._facts.prompt_tokens[ids], progress.emitted_tokens[ids]
        known, drafted = prompt + emitted, progress.draft_cached[ids]
        ready = (known - progress.target_cached[ids] == 1) & (emitted > 0)
        ready &= (known - drafted == work.chunks) & (work.chunks <= BEHIND_A_ROUND) & (drafted >= prompt)
        if np.count_nonzero(ready) < len(ids):
            return 0
        # In either cache a row holds at most its text and the chain behind it.
        more = self._pool.surely_more(len(ids), drafting=True) - BEHIND_A_ROUND
        return max(more // (work.depth + 1), 0)

    def commit_rounds(self, work: DraftPass, rounds: Rounds, ends_s: Floats) -> Gaps:
        """Book rounds, the first of which began at `ends_s[0]`; they ended at the others, (rounds + 1,)."""
        ids, progress, times = work.requests, self._progress, len(rounds)
        matched, tokens = np.add.reduce(rounds.matched, axis=0), np.add.reduce(rounds.tokens, axis=0)
        progress.verifications[ids] += times
        progress.speculations[ids] += times
        progress.draft_tokens[ids] += times * work.depth
        progress.accepted_tokens[ids] += np.add.reduce(np.minimum(rounds.matched, rounds.tokens), axis=0)
        for position in range(min(work.depth, POSITIONS)):
            progress.accepted_at[ids, position] += np.count_nonzero(rounds.matched > position, axis=0)
        progress.decoded_tokens[ids] += tokens
        progress.emitted_tokens[ids] += tokens
        cached = progress.target_cached[ids] + matched + times
        # The last token of a chain is in nobody's cache: nothing was drafted behind it.
        lacking = rounds.matched == work.depth
        if times > 1:
            before = cached - rounds.matched[-1] - 1
            self._settle(ids, before, before - lacking[-2])
        progress.target_cached[ids] = cached
        progress.draft_cached[ids] = cached - lacking[-1]
        self._pool.hold(TARGET, ids, cached)
        self._pool.hold(DRAFT, ids, progress.draft_cached[ids])
        gaps = self._emissions.repeat(ids, ends_s, float(ends_s[-1]))
        if np.count_nonzero(rounds.finished):
            self._finish(ids[rounds.finished], float(ends_s[-1]))
        self._draft_cache.follow(ids)
        return gaps

    def _settle(self, ids: Ids, target_cached: Ints, draft_cached: Ints | None = None) -> None:
        """Let go what has no room beside so many cached tokens of requests, (n,): all that went in earlier steps.

        A step that ends requests frees their blocks before it looks, so it must not look for the steps before it.
        """
        if self._caches.prefix is None:
            return
        self._pool.hold(TARGET, ids, target_cached)
        if draft_cached is not None:
            self._pool.hold(DRAFT, ids, draft_cached)
        self._caches.settle()
