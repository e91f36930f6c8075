"""Validation of passes: which drafts and which passes a scheduler may plan."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.core.passes import MAX_DEPTH, NOBODY, DraftPass, Pass, TargetPass
from specsim.core.request import Bools, Ids, Ints
from specsim.core.trees import ROOTS, Forest, give
from specsim.errors import IllegalPass, represented


class Drafts:
    """Rows of the passes of one step; a forest that a draft pass answered carries its rows as `Forest.origin`.

    `open` has legal rows, which nobody may write to, by their bytes: trees may be drafted for them.

    A forest lives until its rows are verified or evicted, until trees are grown from roots behind a verification, or
    until the step ends, whichever is first.
    """

    def __init__(self) -> None:
        self.rows: list[Ids] = []
        self.open: dict[bytes, Ids] = {}
        self._verified = False

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
            self.open, self._verified = {rows.tobytes(): rows}, False

    def close(self, ids: Ids, *, verified: bool = False) -> None:
        """End all trees of these requests, which have been `verified` or evicted."""
        self._verified |= verified
        if len(self.open) == 1 and next(iter(self.open.values())) is ids:
            self.open.clear()
            return
        self.open.pop(ids.tobytes(), None)
        for key, rows in list(self.open.items()) if self.open else ():
            if np.isin(rows, ids).any():
                del self.open[key]

    def end(self) -> None:
        """End the step, and all trees."""
        self.rows.clear()
        self.open.clear()


def _listed(ids: Ids) -> str:
    return f"{', '.join(map(str, ids[:4].tolist()))}{', ...' if len(ids) > 4 else ''}"


_ARRAY, _INT64 = np.ndarray, np.dtype(np.int64)


def owned(work: Pass) -> Pass:
    """Return a well-formed pass whose arrays are copies, so that the scheduler's stay its own.

    Raises
    ------
    IllegalPass
        When it is not made of (n,) int64 arrays, a Forest and whole numbers: one line that names the field, what it
        is and what was expected.
    """
    requests, scheduled, evict, until_s = work.requests, work.scheduled_tokens, work.evict, work.stationary_until_s
    plain = (
        type(requests) is type(scheduled) is type(evict) is _ARRAY
        and requests.dtype is scheduled.dtype is evict.dtype is _INT64
        and requests.ndim == scheduled.ndim == evict.ndim == 1
        and (type(work.forest), type(work.transfer), type(until_s)) == (Forest, bool, float)
        and until_s == until_s
    )
    if isinstance(work, TargetPass):
        if not plain or type(work.drafter_away) is not bool:
            _check(work)
        return TargetPass(requests.copy(), scheduled.copy(), *work[2:])
    if not plain or work.max_depth is not None or not _grows(work):
        _check(work)
    fed = scheduled.copy() if len(scheduled) else NOBODY
    return DraftPass(requests.copy(), fed, *work[2:])


def _grows(work: DraftPass) -> bool:
    leaves, width, depth, beam = work.leaves, work.width, work.depth, 1 if work.beam is None else work.beam
    if type(leaves) is not _ARRAY or leaves.dtype is not _INT64 or leaves.ndim != 1:
        return False
    return type(width) is type(depth) is type(beam) is int and width >= 0 and 1 <= depth <= MAX_DEPTH and beam >= 1


def _check(work: Pass) -> None:
    """Refuse the first field of a pass that is not what it has to be."""
    until_s = work.stationary_until_s
    is_time = isinstance(until_s, float | int) and not isinstance(until_s, bool) and until_s == until_s
    fits = {
        "requests": _are_ints(work.requests),
        "scheduled_tokens": _are_ints(work.scheduled_tokens),
        "evict": _are_ints(work.evict),
        "forest": type(work.forest) is Forest or "a Forest",
        "transfer": type(work.transfer) is bool or "True or False",
        "stationary_until_s": is_time or "a time in seconds",
    }
    if isinstance(work, TargetPass):
        fits["drafter_away"] = type(work.drafter_away) is bool or "True or False"
    else:
        fits["leaves"] = _are_ints(work.leaves)
        fits["width"] = _is_size(work.width, 0)
        fits["beam"] = work.beam is None or _is_size(work.beam, 1)
        fits["depth"] = _is_size(work.depth, 1)
        fits["max_depth"] = work.max_depth is None or _are_ints(work.max_depth)
    for name, expected in fits.items():
        if expected is not True:
            raise IllegalPass(f"{type(work).__name__}.{name} is {kind_of(getattr(work, name))}; expected {expected}")
    if isinstance(work, TargetPass):
        return
    if work.depth > MAX_DEPTH:
        raise IllegalPass(f"DraftPass.depth is {work.depth}; expected at most {MAX_DEPTH:,}")
    if work.max_depth is not None and len(work.max_depth) != len(work.requests):
        raise IllegalPass(f"DraftPass.max_depth has {len(work.max_depth)} rows; expected one for each request")


def _are_ints(array: Any) -> bool | str:
    """Return True for (n,) int64, else what is expected."""
    return (type(array) is _ARRAY and array.dtype == _INT64 and array.ndim == 1) or "a numpy array (n,) of int64"


def _is_size(value: Any, least: int) -> bool | str:
    """Return True for a whole number of at least so much, else what is expected."""
    whole = type(value) is int or isinstance(value, np.integer)
    return (whole and value >= least) or f"a whole number of at least {least}"


def check_growth(work: DraftPass) -> None:
    """Refuse leaves, which are fit, that would get no children or too deep ones.

    Raises
    ------
    IllegalPass
        One line that names the first such leaf.
    """
    forest, leaves, max_depth = work.forest, work.leaves, work.max_depth
    if len(leaves) and not work.width:
        raise IllegalPass("DraftPass.width is 0; expected at least 1 where leaves are extended")
    if len(leaves) and max_depth is not None:
        depth, limit = forest.depth[leaves], max_depth[forest.row[leaves]]
        if np.count_nonzero(deep := depth >= limit):
            said = _first_wrong(
                deep, "leaf {} lies at depth {}, and DraftPass.max_depth of its row is {}", leaves, depth, limit
            )
            raise IllegalPass(f"{said}; expected more where a leaf is extended")


def illegal_draft(work: DraftPass, pending: Ints) -> IllegalPass:
    """Return what is wrong with a leaf or what is scheduled, or that nothing would run; rows lack `pending` (n,)."""
    requests, scheduled = work.requests, work.scheduled_tokens
    scheduled = scheduled if len(scheduled) else np.zeros_like(requests)
    forest, leaves, nodes = work.forest, work.leaves, len(work.forest)
    names, counts = np.unique(leaves, return_counts=True)
    for wrong, what in (
        ((leaves < 0) | (leaves >= nodes), f"is no node: the forest has {nodes}"),
        (np.isin(leaves, names[counts > 1]), "stands twice"),
        (np.isin(leaves, forest.parent[forest.rows :]), "has been extended"),
    ):
        if wrong.any():
            return IllegalPass(f"leaf {leaves[wrong][0]} {what}")
    wrong = (scheduled < 0) | (scheduled > pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} is given {} of {}", requests, scheduled, pending)
        return IllegalPass(f"a draft pass must schedule no more tokens than the drafter's cache lacks: {said}")
    extended = forest.row[leaves]
    wrong = (pending > scheduled)[extended]
    if wrong.any():
        columns = (each[extended] for each in (requests, scheduled, pending))
        said = _first_wrong(wrong, "request {} is given {} of {} tokens", *columns)
        return IllegalPass(f"a leaf can only be extended where the drafter's cache has caught up: {said}")
    return IllegalPass("a draft pass without tokens: none is scheduled, and no drafted node is extended")


def illegal_verification(work: TargetPass, pending: Ints) -> IllegalPass:
    """Return what is wrong: too many tokens scheduled or none, or a tree behind too few; each row lacks `pending`."""
    requests, scheduled, tree = work.requests, work.scheduled_tokens, work.forest.tree_tokens()
    wrong = (scheduled < 1) | (scheduled > pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} is given {}, {} are pending", requests, scheduled, pending)
        return IllegalPass(f"a target pass must schedule between one and all of the pending tokens: {said}")
    wrong = (tree > 0) & (scheduled < pending)
    if wrong.any():
        said = _first_wrong(wrong, "request {} reads {} of {} pending tokens", requests, scheduled, pending)
        return IllegalPass(f"a tree hangs behind a prefill that is not finished: {said}")
    return IllegalPass(f"a forest with nodes of other rows than its {len(requests)}")


def kind_of(value: Any) -> str:
    """Return in words what a scheduler gave."""
    if isinstance(value, DraftPass | TargetPass):
        return f"a {type(value).__name__}"
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        kind = "an array" if type(value) is _ARRAY else f"a {type(value).__name__}"
        return f"{kind} {value.shape} of {value.dtype}"
    return f"{represented(value)} ({type(value).__name__})"


def _first_wrong(wrong: Bools, text: str, *columns: Ints) -> str:
    """Return `text` filled with the first row of the `columns`, (n,) each, that is `wrong` (n,)."""
    row = int(np.flatnonzero(wrong)[0])
    return text.format(*(column[row] for column in columns))
