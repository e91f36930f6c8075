"""Accepted tokens of a verification by depth and width: recorded, and drawn from curves."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from profiler.acceptance.curves import clustered_error, on_path
from profiler.acceptance.tape_file import Recorded
from specsim.acceptance.curves import Acceptance, draw_tape
from specsim.acceptance.tape import STRETCHES, Pools, Stretches
from specsim.core.request import Floats, Ints
from specsim.rng import mix

DEEPEST = 8
WIDEST = 3
"""The greatest depth and width of the chains and beams compared."""
DRAWN_TEXTS = 10_000


class Walks(NamedTuple):
    """Walks along texts, on which chains and beams are tried.

    Attributes
    ----------
    confidence : (rows, K). rank : (rows,). on : (walks, DEEPEST) rows on the target's text.
    off_start, off_rows : (walks,) first row and number of rows of the off-path pool.
    text : (walks,) the text of each walk.
    """

    confidence: Floats
    rank: Ints
    on: Ints
    off_start: Ints
    off_rows: Ints
    text: Ints


class Compared(NamedTuple):
    """Accepted lengths of one shape, recorded and drawn.

    Attributes
    ----------
    total_variation : half the sum of |differences| of the two distributions over 0..depth.
    mean, mean_drawn : accepted tokens. error : standard error of the recorded mean, over texts.
    """

    depth: int
    width: int
    total_variation: float
    mean: float
    error: float
    mean_drawn: float


def recorded_walks(tape: Recorded, category: str) -> Walks:
    """Return a walk from each position of a category with at least `DEEPEST` positions of its text from there on.

    Off the path a row comes from the category's off-path pool, or from its texts if no pool was recorded.
    """
    rows = on_path(tape, category)
    count = np.bincount(rows.text)[rows.text]
    first = rows.row[rows.position + DEEPEST <= count]
    text = rows.text[rows.position + DEEPEST <= count]
    pool = np.flatnonzero(~tape.on_path & (tape.category == tape.categories.index(category)))
    pool = pool if len(pool) else rows.row
    # Rows of the pool are put together, so that a walk can choose one by its offset.
    confidence = np.concatenate((tape.confidence, tape.confidence[pool]))
    rank = np.concatenate((tape.rank, tape.rank[pool]))
    same = np.ones(len(first), dtype=np.int64)
    return Walks(confidence, rank, first[:, None] + np.arange(DEEPEST), len(tape) * same, len(pool) * same, text)


def drawn_walks(acceptance: Acceptance, category: str) -> Walks:
    """Return one walk along each of many texts drawn from the curves."""
    many = np.arange(DRAWN_TEXTS)
    tape = draw_tape(acceptance, [category], np.zeros(DRAWN_TEXTS, dtype=np.int64), many, 0)
    layout = tape.layout
    assert isinstance(layout, Pools | Stretches)
    request, position = np.repeat(many, DEEPEST), np.tile(np.arange(DEEPEST), DRAWN_TEXTS)
    keys = tape.on_path(request, position)
    on = tape.rows(request, keys, mix(keys), np.ones(len(request), np.bool_), position).reshape(DRAWN_TEXTS, DEEPEST)
    off_rows = layout.pool_rows * (STRETCHES if isinstance(layout, Stretches) else 1)
    return Walks(tape.confidence, tape.rank, on, layout.start, np.full(DRAWN_TEXTS, off_rows), many)


def accepted_lengths(walks: Walks, width: int) -> Ints:
    """Return the accepted tokens of each walk for beams of depth 1, 2, ..., (walks, DEEPEST).

    A beam keeps the `width` likeliest paths of each depth, and every leaf proposes its `width` likeliest tokens. The
    target's path is accepted as far as the beam holds it.
    """
    rng = np.random.default_rng(0)
    count = len(walks.on)
    probability, right = np.ones((count, 1)), np.ones((count, 1), dtype=np.bool_)
    held = np.zeros((count, DEEPEST), dtype=np.bool_)
    for level in range(DEEPEST):
        away = walks.off_start[:, None] + (rng.random(right.shape) * walks.off_rows[:, None]).astype(np.int64)
        row = np.where(right, walks.on[:, level, None], away)
        path = (probability[:, :, None] * walks.confidence[row][:, :, :width]).reshape(count, -1)
        true = (right[:, :, None] & (walks.rank[row][:, :, None] == np.arange(width))).reshape(count, -1)
        kept = np.argsort(-path, axis=1, kind="stable")[:, :width]
        probability, right = np.take_along_axis(path, kept, 1), np.take_along_axis(true, kept, 1)
        held[:, level] = right.any(axis=1)
    return np.cumsum(held, axis=1)


def compare(tape: Recorded, acceptance: Acceptance, category: str) -> list[Compared]:
    """Return recorded and drawn accepted lengths of a category, for every shape whose width both have."""
    recorded, drawn = recorded_walks(tape, category), drawn_walks(acceptance, category)
    found = []
    for width in range(1, min(WIDEST, tape.width, acceptance.width) + 1):
        ours, theirs = accepted_lengths(recorded, width), accepted_lengths(drawn, width)
        for depth in range(1, DEEPEST + 1):
            found.append(_compared(ours[:, depth - 1], theirs[:, depth - 1], depth, width, recorded.text))
    return found


def _compared(ours: Ints, theirs: Ints, depth: int, width: int, text: Ints) -> Compared:
    share = [np.bincount(each, minlength=depth + 1) / len(each) for each in (ours, theirs)]
    return Compared(
        depth,
        width,
        float(np.abs(share[0] - share[1]).sum() / 2),
        float(ours.mean()),
        clustered_error(ours, text),
        float(theirs.mean()),
    )
