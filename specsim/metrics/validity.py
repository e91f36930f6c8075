"""Notes on validity: fits used outside their range, and synthetic surrogates."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.core.passes import Rounds, by_pass
from specsim.core.protocols import PassCosts
from specsim.core.request import Ints
from specsim.pass_shape import PassShape

if TYPE_CHECKING:
    from pandas import DataFrame


def decodes_outside(target: PassCosts, context_tokens: Ints, rows: Ints | int) -> int:
    """Return how many passes that decode so many rows each, (passes,) or a number for all, lie outside."""
    if _inside(target, _range(context_tokens), _range(rows)):
        return 0
    return _outside(target, context_tokens, np.broadcast_to(rows, context_tokens.shape))


def rounds_outside(draft: PassCosts, target: PassCosts, rounds: Rounds) -> int:
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


def _inside(model: PassCosts, context_tokens: Any, batched_tokens: Any) -> bool:
    """Return whether passes surely lie inside, by their least and their greatest counts, (2,) each."""
    least, most = map(_counts, context_tokens, batched_tokens)
    return not (model.extrapolates(least) or model.extrapolates(most))


def _outside(model: PassCosts, context_tokens: Ints, batched_tokens: Ints) -> int:
    corners = zip(context_tokens.ravel().tolist(), batched_tokens.ravel().tolist(), strict=True)
    return sum(model.extrapolates(_counts(*each)) for each in corners)


def _counts(context_tokens: float, batched_tokens: float) -> PassShape:
    return PassShape(context_tokens, batched_tokens, 0, 0, 0, 0)


def _range(counts: Ints | int) -> tuple[int, int]:
    return (counts, counts) if isinstance(counts, int) else (int(counts.min()), int(counts.max()))


STAND_IN = "stand_in"
"""The key of ``metrics.json`` and the column of a sweep's table: the words, None where the trace is what it says."""
SHIPPED = {"twin": "the synthetic twin that ships", "toy": "the toy that ships, its first requests"}
"""By origin of a trace."""


def stand_in(name: str, origin: str) -> str | None:
    """Return what is said of a trace that ships in another's place, None of any other."""
    return f"{name}: {SHIPPED[origin]}" if origin in SHIPPED else None


def stand_ins(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is said of runs, each once, from their blocks ``specsim`` or the rows of a `Sweep.table`."""
    return sorted({said for block in blocks if isinstance(said := block.get(STAND_IN), str)})


def stand_ins_of(table: DataFrame) -> list[str]:
    """Return what is said of the runs of a `Sweep.table`, each once."""
    return stand_ins({STAND_IN: each} for each in table[STAND_IN].unique()) if STAND_IN in table else []


def header(said: Iterable[str], width: int) -> list[str]:
    """Return the lines above a table, none where no trace stands in for another."""
    names = [(each, each.rpartition(": ")[0]) for each in said]
    told = [f"{each}; `specsim trace fetch {name}` gets the original" for each, name in names]
    return [line for each in told for line in wrap(each, width, break_on_hyphens=False)]


def sentences(said: Iterable[str]) -> list[str]:
    """Return the sentences of a caption."""
    return [f"{each}." for each in said]
