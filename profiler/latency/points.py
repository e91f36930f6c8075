"""The points of a sweep: shapes of pass, the work of each, and the order in which they are timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar
from zlib import crc32

import numpy as np

from profiler.passes.packing import Ints, Work

ROLES = ("target", "draft")
TARGET_KINDS = ("decode", "verify", "prefill", "mixed")
DRAFT_KINDS = ("draft", "catchup", "prefill")
RAGGED = 0.25
DRAFTED_BEFORE = 2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Point:
    """A shape of pass to be timed.

    Attributes
    ----------
    kind : decode, verify, prefill, mixed; of the draft: draft (a step), catchup, prefill.
    requests : rows of this kind.
    context : cached tokens of a row, up to a quarter more or less; in a mixed pass of the decoding rows.
    queries : new tokens of a row: 1, a tree with its root, a chunk, or the leaves of a draft step.
    decoding : in a mixed pass, the rows that decode beside the chunk.
    tree : in a mixed pass, the tokens of each decoding row: 1, or a tree with its root.
    """

    kind: str
    requests: int
    context: int
    queries: int
    decoding: int = 0
    tree: int = 1

    @property
    def key(self) -> str:
        """The unique name of the point."""
        return f"{self.kind}/{self.requests}x{self.queries}@{self.context}{self._beside if self.decoding else ''}"

    @property
    def shape(self) -> str:
        """Batch, queries and context, without the kind; points of one shape are held out together."""
        return f"{self.requests}x{self.queries}@{self.context}{self._beside}"

    @property
    def _beside(self) -> str:
        return f"+{self.decoding}" if self.tree == 1 else f"+{self.decoding}x{self.tree}"

    def work(self) -> Work:
        """Return the pass, always the same, with rows of unequal context."""
        rng = np.random.default_rng(crc32(self.key.encode()))
        return _WORK[self.kind](self, rng)

    def tokens_most(self) -> tuple[int, int]:
        """Return the cached tokens, at most, and the batched tokens."""
        rows = self.decoding if self.kind == "mixed" else self.requests
        return rows * self.context, self.requests * self.queries + self.decoding * self.tree


def _contexts(rows: int, context: int, rng: np.random.Generator) -> Ints:
    """Return contexts around `context` whose sum is `rows` * `context`."""
    half = rng.integers(0, int(RAGGED * context) + 1, rows // 2)
    odd = np.zeros(rows % 2, np.int64)
    return np.asarray(rng.permutation(context + np.concatenate([half, -half, odd])), dtype=np.int64)


def _chunks(point: Point, rng: np.random.Generator) -> Work:
    context = _contexts(point.requests, point.context, rng)
    return Work.of(context, np.full(point.requests, point.queries))


def _verify(point: Point, rng: np.random.Generator) -> Work:
    row, parent = _trees(point.requests, point.queries - 1, rng)
    return Work.of(_contexts(point.requests, point.context, rng), np.ones(point.requests), row, parent)


def _trees(rows: int, nodes: int, rng: np.random.Generator) -> tuple[Ints, Ints]:
    """Return the row and the parent of each node of trees like those of a beam search, (rows * nodes,) each.

    The parent is one of the three nodes before it, or the root.
    """
    row = np.repeat(np.arange(rows), nodes)
    place = np.tile(np.arange(nodes), rows)
    parent = np.maximum(place - rng.integers(1, 4, len(place)), -1)
    return row, np.where(parent >= 0, parent + row * nodes, -1)


def _mixed(point: Point, rng: np.random.Generator) -> Work:
    """Return chunks of fresh prompts beside rows that decode, or verify trees."""
    context = np.r_[np.zeros(point.requests, np.int64), _contexts(point.decoding, point.context, rng)]
    chunk = np.r_[np.full(point.requests, point.queries), np.ones(point.decoding, np.int64)]
    row, parent = _trees(point.decoding, point.tree - 1, rng)
    return Work.of(context, chunk, row + point.requests, parent)


def _draft(point: Point, rng: np.random.Generator) -> Work:
    """Return the third pass of a draft step: leaves behind two cached levels, with as many beams as leaves."""
    levels, width = DRAFTED_BEFORE + 1, point.queries
    nodes = levels * width
    row = np.repeat(np.arange(point.requests), nodes)
    place = np.tile(np.arange(nodes), point.requests)
    parent = np.where(place < width, -1, place - width + row * nodes)
    context = _contexts(point.requests, point.context, rng)
    return Work.of(context, np.zeros(point.requests), row, parent, place < DRAFTED_BEFORE * width)


_WORK: dict[str, Callable[[Point, np.random.Generator], Work]] = {
    "decode": _chunks,
    "prefill": _chunks,
    "catchup": _chunks,
    "verify": _verify,
    "mixed": _mixed,
    "draft": _draft,
}


def spread(ordered: Sequence[T]) -> list[T]:
    """Return a sequence from its ends inwards: the first, the last, then the middles of the gaps (van der Corput)."""
    most = len(ordered) - 1
    bits = max(most, 0).bit_length()
    reversed_bits = sorted(range(len(ordered)), key=lambda place: f"{place:0{bits}b}"[::-1])
    places = dict.fromkeys([*reversed_bits[:1], most, *reversed_bits]) if ordered else {}
    return [ordered[place] for place in places]


def interleaved(by_role: Mapping[str, Sequence[Point]]) -> list[tuple[str, Point]]:
    """Return every point with its role; of any first part each kind of each role has its share, small and large."""
    turns = []
    for role, points in by_role.items():
        kinds = dict.fromkeys(point.kind for point in points)
        for kind in kinds:
            of_kind = spread([point for point in points if point.kind == kind])
            turns += [((place + 0.5) / len(of_kind), role, point) for place, point in enumerate(of_kind)]
    turns.sort(key=lambda turn: turn[0])
    return [(role, point) for _, role, point in turns]
