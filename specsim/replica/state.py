"""What the ledger writes down of each request, in rows that are empty at first."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np

from specsim.replica.request import Facts, Floats, Ids, Ints, Observed

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
