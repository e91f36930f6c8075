"""How many of the passes that run at once lie outside the range that their model was fitted on, a box of counts."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.pass_shape import PassShape
from specsim.replica.passes import Rounds, by_pass
from specsim.replica.protocols import ModelBelief
from specsim.replica.request import Ints


def decodes_outside(target: ModelBelief, context_tokens: Ints, rows: Ints | int) -> int:
    """Return how many passes that decode so many rows each, (passes,) or a number for all, lie outside."""
    if _inside(target, _range(context_tokens), _range(rows)):
        return 0
    return _outside(target, context_tokens, np.broadcast_to(rows, context_tokens.shape))


def rounds_outside(draft: ModelBelief, target: ModelBelief, rounds: Rounds) -> int:
    """Return how many passes of rounds lie outside the range of their model; contexts rise from round to round."""
    depth, fed, read = rounds.depth, rounds.draft.context_tokens, rounds.verify.context_tokens
    drafted = rounds.draft.requests, rounds.draft.batched_tokens.max()
    queries = rounds.verify.batched_tokens
    if _inside(draft, (fed[0, 0], fed[1, -1]), drafted) and _inside(target, read[[0, -1]], (queries, queries)):
        return 0
    context, batched = counts_of(rounds, "context_tokens"), counts_of(rounds, "batched_tokens")
    drafts = _outside(draft, context[:, :depth], batched[:, :depth])
    return drafts + _outside(target, context[:, depth], batched[:, depth])


def counts_of(rounds: Rounds, name: str) -> Ints:
    """Return a count of the shape of each pass, (rounds, depth + 1), by its name in `PassShapes`."""
    counts: Ints = by_pass(getattr(rounds.draft, name), getattr(rounds.verify, name), len(rounds), rounds.depth)
    return counts


def _inside(model: ModelBelief, context_tokens: Any, batched_tokens: Any) -> bool:
    """Return whether passes surely lie inside, by their least and their greatest counts, (2,) each."""
    least, most = map(_counts, context_tokens, batched_tokens)
    return not (model.extrapolates(least) or model.extrapolates(most))


def _outside(model: ModelBelief, context_tokens: Ints, batched_tokens: Ints) -> int:
    corners = zip(context_tokens.ravel().tolist(), batched_tokens.ravel().tolist(), strict=True)
    return sum(model.extrapolates(_counts(*each)) for each in corners)


def _counts(context_tokens: float, batched_tokens: float) -> PassShape:
    return PassShape(context_tokens, batched_tokens, 0, 0, 0, 0)


def _range(counts: Ints | int) -> tuple[int, int]:
    return (counts, counts) if isinstance(counts, int) else (int(counts.min()), int(counts.max()))
