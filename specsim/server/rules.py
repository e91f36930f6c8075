"""Validation of passes: which drafts and which passes a scheduler may plan."""

from __future__ import annotations

from math import inf
from typing import Any

import numpy as np

from specsim.core.passes import DEEPEST, NOBODY, DraftPass, Pass, TargetPass
from specsim.core.request import Bools, Ids, Ints
from specsim.core.trees import ROOTS, Forest, give
from specsim.errors import IllegalPass, represented


class Drafts:
    """Rows of the passes of one step; a forest that a draft pass answered carries its rows as `Forest.origin`.

    A forest lives until its rows are verified or evicted, until trees are grown from roots behind a verification, or
    until the step ends, whichever is first.
    """

    __slots__ = ("_open", "_verified", "rows")

    def __init__(self) -> None:
        self.rows: list[Ids] = []
        self._open: dict[bytes, Ids] = {}
        self._verified = False

    def open(self, key: bytes, requests: Ids) -> Ids:
        """Let trees be drafted for legal rows, whose bytes are `key`; return these, which nobody may write to."""
        requests.setflags(write=False)
        self._open[key] = requests
        return requests

    def find(self, key: bytes) -> Ids | None:
        """Return the rows that were opened with the same bytes, None where there are none."""
        return self._open.get(key)

    def check(self, forest: Forest, rows: Ids) -> None:
        """Refuse a forest that does not live, or not for exactly these open rows.

        Raises
        ------
        IllegalPass
            One line that says what it is instead.
        """
        origin = forest.origin
        if origin is rows or (origin is ROOTS and not forest.draft_nodes):
            return
        if origin is None:
            raise IllegalPass("a forest that no draft pass has answered; expected one that yield returned, or a subset")
        if np.array_equal(origin, rows):
            raise IllegalPass("a forest of the past: drafted in an earlier step, or overtaken by a verification")
        raise IllegalPass(f"a forest of requests {_listed(origin)} in a pass of requests {_listed(rows)}")

    def grown(self, rows: Ids, work: DraftPass, answer: Forest) -> None:
        """Let the answer to a draft pass live."""
        if not self.rows or self.rows[-1] is not rows:
            self.rows.append(rows)
        if answer is not work.forest:
            give(answer, rows)
        if self._verified and len(work.leaves) and not work.forest.draft_nodes:
            self._open, self._verified = {rows.tobytes(): rows}, False

    def verified(self, rows: Ids) -> None:
        """End the trees of these rows, and what was drafted for any of their requests."""
        self._verified = True
        self.close(rows)

    def close(self, ids: Ids) -> None:
        """End all trees of these requests."""
        if len(self._open) == 1 and next(iter(self._open.values())) is ids:
            self._open.clear()
            return
        self._open.pop(ids.tobytes(), None)
        for key, rows in list(self._open.items()) if self._open else ():
            if np.isin(rows, ids).any():
                del self._open[key]

    def end(self) -> None:
        """End the step, and all trees."""
        self.rows.clear()
        self._open.clear()


def _listed(ids: Ids) -> str:
    return f"{', '.join(map(str, ids[:4].tolist()))}{', ...' if len(ids) > 4 else ''}"


_ARRAY, _INT64 = np.ndarray, np.dtype(np.int64)


def owned(work: Pass) -> Pass:
    """Return a well-formed pass whose rows and chunks are copies, so that the scheduler's arrays stay its own.

    Raises
    ------
    IllegalPass
        When it is not made of (n,) int64 arrays, a Forest and whole numbers: one line that names the field, what it
        is and what was expected.
    """
    requests, chunks, evict = work.requests, work.chunks, work.evict
    if not (
        type(requests) is type(chunks) is type(evict) is _ARRAY
        and requests.dtype is chunks.dtype is evict.dtype is _INT64
        and requests.ndim == chunks.ndim == evict.ndim == 1
    ):
        for name in ("requests", "chunks", "evict"):
            _check_array(work, name)
    forest, transfer = work.forest, work.transfer
    if type(forest) is not Forest:
        raise IllegalPass(f"{type(work).__name__}.forest is {_kind(forest)}; expected a Forest")
    if type(transfer) is not bool:
        raise IllegalPass(f"{type(work).__name__}.transfer is {_kind(transfer)}; expected True or False")
    if isinstance(work, TargetPass):
        if work.stationary_until_s != -inf:
            _check_stationary(work)
        if type(work.drafter_away) is not bool:
            raise IllegalPass(f"TargetPass.drafter_away is {_kind(work.drafter_away)}; expected True or False")
        return TargetPass(requests.copy(), chunks.copy(), *work[2:])
    _check_growth(work)
    fed = chunks.copy() if len(chunks) else NOBODY
    return DraftPass(requests.copy(), fed, *work[2:])


def check_leaves(work: DraftPass) -> None:
    """Refuse leaves that cannot be extended.

    Raises
    ------
    IllegalPass
        When a leaf is no node of the forest, stands twice, has children, or would get none or too deep ones: one line
        that names it.
    """
    if not len(work.leaves):
        return
    if not work.width:
        raise IllegalPass("DraftPass.width is 0; expected at least 1 where leaves are extended")
    if not _are_leaves(work.forest, work.leaves):
        _check_leaves(work.forest, work.leaves)
    if work.max_depth is not None:
        _check_room(work.forest, work.leaves, work.max_depth)


def _are_leaves(forest: Forest, leaves: Ints) -> bool:
    """Return whether all `leaves` (m,) are different nodes without children."""
    first, last, nodes = int(leaves.min()), int(leaves.max()), len(forest)
    if first < 0 or last >= nodes:
        return False
    marked = np.zeros(nodes, dtype=np.bool_)
    marked[leaves] = True
    alone = np.count_nonzero(marked) == len(leaves)
    return alone and (first >= forest.fresh or not np.count_nonzero(marked[forest.parent[forest.rows :]]))


def _check_leaves(forest: Forest, leaves: Ints) -> None:
    nodes = len(forest.row)
    names, counts = np.unique(leaves, return_counts=True)
    for wrong, what in (
        ((leaves < 0) | (leaves >= nodes), f"is no node: the forest has {nodes}"),
        (np.isin(leaves, names[counts > 1]), "stands twice"),
        (np.isin(leaves, forest.parent[forest.rows :]), "has been extended"),
    ):
        if wrong.any():
            raise IllegalPass(f"leaf {leaves[wrong][0]} {what}")


def _check_room(forest: Forest, leaves: Ints, max_depth: Ints) -> None:
    """Refuse a leaf that lies as deep as the tree of its row may grow, `max_depth` (n,)."""
    depth, limit = forest.depth[leaves], max_depth[forest.row[leaves]]
    for place in np.flatnonzero(depth >= limit)[:1].tolist():
        raise IllegalPass(
            f"leaf {leaves[place]} lies at depth {depth[place]}, and DraftPass.max_depth of its row is {limit[place]}; "
            f"expected more where a leaf is extended"
        )


def _check_growth(work: DraftPass) -> None:
    leaves, width, beam = work.leaves, work.width, work.beam
    if type(leaves) is not _ARRAY or leaves.dtype is not _INT64 or leaves.ndim != 1:
        _check_array(work, "leaves")
    if type(width) is not int or width < 0 or (beam is not None and (type(beam) is not int or beam < 1)):
        _check_size("width", width, 0)
        _check_size("beam", 1 if beam is None else beam, 1)
    if work.depth != 1 or work.max_depth is not None:
        _check_depth(work)
    if work.stationary_until_s != -inf:
        _check_stationary(work)


def _check_stationary(work: Pass) -> None:
    until_s = work.stationary_until_s
    if not isinstance(until_s, float | int) or isinstance(until_s, bool) or until_s != until_s:
        name = f"{type(work).__name__}.stationary_until_s"
        raise IllegalPass(f"{name} is {_kind(until_s)}; expected a time in seconds")


def _check_depth(work: DraftPass) -> None:
    _check_size("depth", work.depth, 1)
    if work.depth > DEEPEST:
        raise IllegalPass(f"DraftPass.depth is {work.depth}; expected at most {DEEPEST:,}")
    if work.max_depth is None:
        return
    _check_array(work, "max_depth")
    if len(work.max_depth) != len(work.requests):
        raise IllegalPass(f"DraftPass.max_depth has {len(work.max_depth)} rows; expected one for each request")


def _check_size(name: str, value: Any, least: int) -> None:
    if (type(value) is not int and not isinstance(value, np.integer)) or value < least:
        raise IllegalPass(f"DraftPass.{name} is {_kind(value)}; expected a whole number of at least {least}")


def _check_array(work: Pass, name: str) -> None:
    array = getattr(work, name)
    if type(array) is not _ARRAY or array.dtype != _INT64 or array.ndim != 1:
        raise IllegalPass(f"{type(work).__name__}.{name} is {_kind(array)}; expected a numpy array (n,) of int64")


def _kind(value: Any) -> str:
    if isinstance(value, np.ndarray):
        kind = "an array" if type(value) is _ARRAY else f"a {type(value).__name__}"
        return f"{kind} {value.shape} of {value.dtype}"
    return f"{represented(value)} ({type(value).__name__})"


def first_wrong(wrong: Bools, text: str, *columns: Ints) -> str:
    """Return `text` filled with the first row of the `columns`, (n,) each, that is `wrong` (n,)."""
    row = int(np.flatnonzero(wrong)[0])
    return text.format(*(column[row] for column in columns))
