"""Acceptance traces: the protocol, the rows of a run, and stretches that chains accept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypeVar
from weakref import ref

import numpy as np

from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SpecsimError, nearest, represented
from specsim.kernels.growth import Pooled, Text, pool_of
from specsim.rng import STRIDE, Words, mix, word

T = TypeVar("T")


class Layout(Protocol):
    """The rows of an acceptance trace that the text of a request has."""

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,).

        `hashed` is ``mix(keys)``, `on` says which are on the target's path. `depth` is the draft position: how many
        draft tokens lie between it and the last verified token.
        """
        ...

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows that the texts of these requests are made of at a draft position, each once."""
        ...


@dataclass(frozen=True, slots=True)
class Pools:
    """Texts of independent positions: a hash picks a row of the request's pool for each position.

    Attributes
    ----------
    start, off_start : (N,) first row of the request's pools on and off the target's path.
    pool_rows : rows of one pool, a power of two.
    depths : draft positions that have a pool each, one behind the other; deeper ones have the last. A position of the
        text has the same place in each, so that one random draw decides at all depths.
    """

    start: Ints
    off_start: Ints
    pool_rows: int
    depths: int = 1
    _mask: Words = field(init=False, repr=False)

    def __post_init__(self) -> None:
        rows, depths = self.pool_rows, self.depths
        if not isinstance(rows, int | np.integer) or rows < 1 or rows & (rows - 1):
            raise SpecsimError(f"Pools: pool_rows={represented(rows)}; expected a power of two")
        if not isinstance(depths, int | np.integer) or depths < 1:
            raise SpecsimError(f"Pools: depths={represented(depths)}; expected a whole number of at least 1")
        object.__setattr__(self, "_mask", word(rows - 1))

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row that each key's hash picks from the pool of its depth, (n,)."""
        starts = self.start[requests]
        if self.off_start is not self.start:
            starts = np.where(on, starts, self.off_start[requests])
        offset = (hashed & self._mask).view(np.int64)
        return starts + pool_of(depth, self.depths) * self.pool_rows + offset

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows of the pools on the target's path at a draft position, each once."""
        starts = np.unique(self.start[requests]) + min(depth, self.depths - 1) * self.pool_rows
        return (starts[:, None] + np.arange(self.pool_rows)).ravel()


def of_category(known: Mapping[str, T], category: str) -> T:
    """Return what is known of a category of text, or of the one named ``default`` if it has nothing.

    Raises
    ------
    SpecsimError
        When there is neither.
    """
    found = known.get(category) or known.get("default")
    if found is None:
        raise SpecsimError(f"categories: no category {category!r} and no default{nearest(category, known)}")
    return found


_KNOWN: dict[int, tuple[ref[Floats], dict[str, Any]]] = {}


def known_of(confidence: Floats) -> dict[str, Any]:
    """Return what is known of a pool, to be read and added to; traces of a read-only pool share it."""
    if confidence.flags.writeable:
        return {}
    key = id(confidence)
    pool, found = _KNOWN.get(key, (None, {}))
    if pool is None or pool() is not confidence:
        # Bound here: as a process ends, the module's own name may be gone before the pool is.
        every, found = _KNOWN, {}
        every[key] = ref(confidence, lambda _: every.pop(key, None)), found
    return found


def _first_column(confidence: Floats) -> tuple[Floats, bool]:
    """Return the first column, and whether it holds a zero."""
    known = known_of(confidence)
    if "first column" not in known:
        # A copy: what is kept of a pool must not hold the pool.
        column = confidence[:, 0].copy()
        known["first column"] = column, bool((column == 0).any())
    found: tuple[Floats, bool] = known["first column"]
    return found


@dataclass(frozen=True, slots=True)
class Laid:
    """The texts of requests (m,) of a trace whose layout is asked for each row; see `specsim.kernels.growth.Text`."""

    confidence: Floats
    rank: Ints
    silent: bool
    layout: Layout
    requests: Ints

    def at(self, member: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,)."""
        return self.layout.rows(self.requests[member], keys, hashed, on, depth)


@dataclass(frozen=True, slots=True)
class AcceptanceTrace:
    """Rows of (top-K confidences, rank of the target's token), addressed by a key of the text and a draft position.

    The text of a request is a walk through keys. On the target's path the key moves by one stride per position. Off it
    the key is a hash of (key of the position where the path was left, ranks taken since). The draft position counts the
    draft tokens behind the last verified one. A row therefore depends neither on the shape of a tree nor on the order
    of calls.

    Attributes
    ----------
    confidence : (rows, K) the drafter's top-K probabilities, descending; a row of zeros proposes nothing, as a lookup
        without a match.
    rank : (rows,) rank of the target's token among them, K for a miss.
    layout : which row a key has.
    keys : (N,) uint64, the key of each request's position 0.
    target_probability : (rows, K) the target's probabilities of the proposed tokens; None: equal to the confidences,
        which are then calibrated by construction.
    likeliest : (rows,) the first column of `confidence`. silent : whether any row proposes nothing.
    """

    confidence: Floats
    rank: Ints
    layout: Layout
    keys: Words
    target_probability: Floats | None = None
    silent: bool = field(init=False, repr=False)
    likeliest: Floats = field(init=False, repr=False)

    def __post_init__(self) -> None:
        pools, rows = self.layout, len(self.rank)
        if isinstance(pools, Pools):
            held = pools.depths * pools.pool_rows
            starts = np.concatenate((pools.start, pools.off_start))
            for wrong in starts[(starts < 0) | (starts > rows - held)][:1].tolist():
                raise SpecsimError(
                    f"a pool of {held:,} rows begins at row {wrong:,} of {rows:,} of an acceptance trace"
                )
        object.__setattr__(self, "confidence", np.ascontiguousarray(self.confidence))
        object.__setattr__(self, "rank", np.ascontiguousarray(self.rank))
        likeliest, silent = _first_column(self.confidence)
        object.__setattr__(self, "likeliest", likeliest)
        object.__setattr__(self, "silent", silent)

    @property
    def depths(self) -> int:
        """Draft positions with an acceptance of their own; deeper ones have that of the last."""
        return int(getattr(self.layout, "depths", 1))

    @property
    def truth(self) -> Floats:
        """The target's probabilities of the proposed tokens, (rows, K)."""
        return self.confidence if self.target_probability is None else self.target_probability

    @property
    def width(self) -> int:
        """K, the most proposals per position."""
        width: int = self.confidence.shape[1]
        return width

    def on_path(self, requests: Ints, positions: Ints) -> Words:
        """Return the keys of output positions on the target's path, (n,); positions continue past the output's end."""
        return self.keys[requests] + STRIDE * positions.astype(np.uint64)

    def text(self, requests: Ints) -> Text:
        """Return the texts of these requests, (m,), as kernels read them."""
        pools = self.layout
        if not isinstance(pools, Pools):
            return Laid(self.confidence, self.rank, self.silent, pools, requests)
        start = pools.start[requests]
        off_start = start if pools.off_start is pools.start else pools.off_start[requests]
        return Pooled(self.confidence, self.rank, self.silent, start, off_start, pools.pool_rows - 1, pools.depths)

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,); see `Layout`."""
        return self.layout.rows(requests, keys, hashed, on, depth)

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows that the texts of these requests are made of at a draft position, each once."""
        return self.layout.text_rows(requests, depth)


Evidence = Literal["assumed", "fitted", "recorded"]
"""The basis of an acceptance: an assumption, summary numbers of a pair of models, or what a pair did token by token."""


class AcceptanceModel(Protocol):
    """How often a drafter agrees with its target, and how sure it is, by the keys of an acceptance file.

    `evidence` is the basis of the numbers. An ``assumed`` acceptance is of any pair unless its file names one. A
    ``recorded`` one is refused on another target. `sha256` is the checksum of the file that is read, or None. A sweep
    makes its runs anew when the checksum changes.
    """

    @property
    def evidence(self) -> Evidence: ...  # noqa: D102
    @property
    def sha256(self) -> str | None: ...  # noqa: D102

    def acceptance_trace(self, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> AcceptanceTrace:
        """Return the acceptance trace of the requests in `rows` (N,) of a trace; `slo_class` (N,) indexes `category`.

        The text of a request may depend only on its category, its row and the seed, so that every scheduler, rate and
        length of the trace meets the same text.
        """
        ...


STRETCHES = 16
"""Kinds of stretch, from hard to easy, that a request has: a pool of rows for each."""
_POSITION = word(pow(int(STRIDE), -1, 1 << 64))
"""Factor from the distance of two keys to one of positions."""
_KINDS, _OFF_PATH_BITS = word(STRETCHES), word(40)


@dataclass(frozen=True, slots=True)
class Stretches:
    """Texts cut into stretches: a hash picks the kind of each stretch, and within it a row for each position.

    Off the target's path every position is of a kind of its own.

    Attributes
    ----------
    start : (N,) first row of the request's `STRETCHES` times `depths` pools.
    pool_rows : rows of one pool, a power of two. depths : as of `Pools`.
    tokens : (N,) uint64, positions of a stretch.
    keys : (N,) uint64, the key of each request's position 0.
    stretch_keys : (N,) uint64, what the kinds of a request's stretches are hashed from, and where its first one begins.
    """

    start: Ints
    pool_rows: int
    tokens: Words
    keys: Words
    stretch_keys: Words
    depths: int = 1

    def rows(self, requests: Ints, keys: Words, hashed: Words, on: Bools, depth: Ints) -> Ints:
        """Return the row of each key, (n,); see `specsim.acceptance.trace.Layout`."""
        tokens, stretch_keys = self.tokens[requests], self.stretch_keys[requests]
        position = (keys - self.keys[requests]) * _POSITION
        stretch = (position + stretch_keys % tokens) // tokens
        kind = np.where(on, mix(stretch_keys + STRIDE * stretch), hashed >> _OFF_PATH_BITS) % _KINDS
        offset = kind * word(self.depths * self.pool_rows) + (hashed & word(self.pool_rows - 1))
        return self.start[requests] + pool_of(depth, self.depths) * self.pool_rows + offset.view(np.int64)

    def text_rows(self, requests: Ints, depth: int = 0) -> Ints:
        """Return the rows of the pools of these requests at a draft position, each once."""
        pools = np.arange(STRETCHES) * self.depths + min(depth, self.depths - 1)
        rows = (pools[:, None] * self.pool_rows + np.arange(self.pool_rows)).ravel()
        return (np.unique(self.start[requests])[:, None] + rows).ravel()
