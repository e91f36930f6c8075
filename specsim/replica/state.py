"""What is written down of each request, in rows that are empty at first."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np

from specsim.replica.request import Bools, Facts, Floats, Ids, Ints, Observed, Places

_Rows = TypeVar("_Rows", Facts, "Progress")


@dataclass(frozen=True, slots=True, eq=False)
class Progress(Observed):
    """What has happened to each request, (N,) each, beyond what a scheduler sees; all of it at the end of a run.

    Attributes
    ----------
    last_token_s, finish_s : seconds of the latest token and of the last one, NaN until then, and for the rejected.
    decoded_tokens : emitted in decoding passes: all but the first.
    draft_tokens : nodes that were submitted to the target. accepted_tokens : those of them that were emitted.
    verifications : decoding target passes. speculations : those with a draft token.
    preemptions : times that the cache was given up.
    moved_bytes : of its cache, to the host and back.
    """

    last_token_s: Floats
    finish_s: Floats
    decoded_tokens: Ints
    draft_tokens: Ints
    accepted_tokens: Ints
    verifications: Ints
    speculations: Ints
    preemptions: Ints
    moved_bytes: Ints


class Moves(NamedTuple):
    """What became of each request between a prefill and a decode replica, (N,) each.

    Attributes
    ----------
    prefill_of : index of the replica that it was sent to first.
    moved_bytes : of its cache, over the link; 0 where it did not go on.
    moving_s : seconds from its first token to its place in the second queue; NaN where it did not go on.
    """

    prefill_of: Ints
    moved_bytes: Ints
    moving_s: Floats


class PrefixRows(NamedTuple):
    """What each request uses of the blocks of prompts that its replica keeps.

    Attributes
    ----------
    used : (2, N) blocks, by model. begun : (N,) whether it has run.
    hit_tokens : (N,) found in the target's cache when it began, and whenever it began again.
    """

    used: Ints
    begun: Bools
    hit_tokens: Ints


class Rows(NamedTuple):
    """All that is written down of each request, for the replicas of one pool: a request is at one of them, once.

    Attributes
    ----------
    facts, progress : (N,) each.
    blocks, lent, drafted : (2, N) as in `specsim.kernels.books.Books`, by model, and nodes and depth of drafts.
    reached_s : (N,) seconds at which each came to its replica.
    at : (N,) index of the replica at which each is alive, -1 elsewhere. admitted : (N,) whether it holds cache there.
    seat : (N,) for a pass to find doubled rows by. prefix : None where no blocks of prompts are kept.
    """

    facts: Facts
    progress: Progress
    blocks: Ints
    lent: Ints
    drafted: Ints
    reached_s: Floats
    at: Places
    admitted: Bools
    seat: Ints
    prefix: PrefixRows | None

    @classmethod
    def of(cls, n: int, keeps_prefixes: bool = False) -> Rows:
        """Return rows of `n` requests of which nothing is known yet."""
        blocks, lent, drafted = (np.zeros((2, n), dtype=np.int64) for _ in range(3))
        at, admitted, seat = np.full(n, -1, dtype=np.int32), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64)
        told = empty_rows(Facts, n), empty_rows(Progress, n)
        prefix = PrefixRows(np.zeros((2, n), dtype=np.int64), np.zeros(n, dtype=np.bool_), np.zeros(n, dtype=np.int64))
        kept = prefix if keeps_prefixes else None
        return cls(*told, blocks, lent, drafted, np.full(n, np.nan), at, admitted, seat, kept)


def over_pools(each: Sequence[Progress], second: Bools) -> Progress:
    """Return what has happened to each request, in the `second` of two pools (N,) or the first; counts of moves add."""
    if len(each) == 1:
        return each[0]

    def merged(name: str) -> Any:
        before, after = (getattr(progress, name) for progress in each)
        return before + after if name in ("preemptions", "moved_bytes") else np.where(second, after, before)

    return Progress(**{name: merged(name) for name in Progress.__dataclass_fields__})


def empty_rows(kind: type[_Rows], n: int) -> _Rows:
    """Return rows of `n` requests of which nothing is known yet: times are NaN, tokens and counts 0."""
    rows: dict[str, Any] = {
        name: np.full(n, np.nan) if name.endswith("_s") else np.zeros(n, dtype=np.int64)
        for name in kind.__dataclass_fields__
    }
    return kind(**rows)


def known_tokens(facts: Facts, progress: Progress, ids: Ids) -> Ints:
    """Return the tokens of each request that exist: its prompt and what was emitted, (n,)."""
    return facts.prompt_tokens[ids] + progress.emitted_tokens[ids]
