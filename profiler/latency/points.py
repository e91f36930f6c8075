"""The points of a sweep: shapes of pass, the work of each, their order; grids of them, shipped and a user's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TypeVar
from zlib import crc32

import numpy as np

from profiler.attention.packing import Ints, Work
from profiler.typed import typed
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.files.yaml_file import read_yaml

ROLES = ("target", "draft")
TARGET_KINDS = ("decode", "verify", "prefill", "mixed")
DRAFT_KINDS = ("draft", "catchup", "prefill")
RAGGED = 0.25
DRAFTED_BEFORE = 2
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class GridPoint:
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

    @property
    def sizes(self) -> list[tuple[str, int]]:
        """The sizes of a grid that the point is made of, each behind its key."""
        if self.kind == "mixed" and self.tree > 1:
            return [("speculating", self.decoding)]
        if self.kind == "prefill" and self.requests > 1:
            return [("together", self.requests)]
        return [(key, getattr(self, name)) for key, name in _SIZES[self.kind].items()]

    def tokens_most(self) -> tuple[int, int]:
        """Return the cached tokens, at most, and the batched tokens."""
        rows = self.decoding if self.kind == "mixed" else self.requests
        return rows * self.context, self.requests * self.queries + self.decoding * self.tree


def _contexts(rows: int, context: int, rng: np.random.Generator) -> Ints:
    """Return contexts around `context` whose sum is `rows` * `context`."""
    half = rng.integers(0, int(RAGGED * context) + 1, rows // 2)
    odd = np.zeros(rows % 2, np.int64)
    return np.asarray(rng.permutation(context + np.concatenate([half, -half, odd])), dtype=np.int64)


def _chunks(point: GridPoint, rng: np.random.Generator) -> Work:
    context = _contexts(point.requests, point.context, rng)
    return Work.of(context, np.full(point.requests, point.queries))


def _verify(point: GridPoint, rng: np.random.Generator) -> Work:
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


def _mixed(point: GridPoint, rng: np.random.Generator) -> Work:
    """Return chunks of fresh prompts beside rows that decode, or verify trees."""
    context = np.r_[np.zeros(point.requests, np.int64), _contexts(point.decoding, point.context, rng)]
    chunk = np.r_[np.full(point.requests, point.queries), np.ones(point.decoding, np.int64)]
    row, parent = _trees(point.decoding, point.tree - 1, rng)
    return Work.of(context, chunk, row + point.requests, parent)


def _draft(point: GridPoint, rng: np.random.Generator) -> Work:
    """Return the third pass of a draft step: leaves behind two cached levels, with as many beams as leaves."""
    levels, width = DRAFTED_BEFORE + 1, point.queries
    nodes = levels * width
    row = np.repeat(np.arange(point.requests), nodes)
    place = np.tile(np.arange(nodes), point.requests)
    parent = np.where(place < width, -1, place - width + row * nodes)
    context = _contexts(point.requests, point.context, rng)
    return Work.of(context, np.zeros(point.requests), row, parent, place < DRAFTED_BEFORE * width)


_WORK: dict[str, Callable[[GridPoint, np.random.Generator], Work]] = {
    "decode": _chunks,
    "prefill": _chunks,
    "catchup": _chunks,
    "verify": _verify,
    "mixed": _mixed,
    "draft": _draft,
}


_ROWS = {"requests": "requests", "contexts": "context"}
_SIZES = {
    "decode": _ROWS,
    "verify": _ROWS | {"trees": "queries"},
    "draft": _ROWS | {"leaves": "queries"},
    "catchup": _ROWS | {"catchup": "queries"},
    "prefill": {"chunks": "queries", "behind": "context"},
    "mixed": {"chunks": "queries", "beside": "decoding"},
}
"""The keys of a grid by kind of pass, and the attribute of a point that holds each."""


def spread(ordered: Sequence[T]) -> list[T]:
    """Return a sequence from its ends inwards: the first, the last, then the middles of the gaps (van der Corput)."""
    most = len(ordered) - 1
    bits = max(most, 0).bit_length()
    reversed_bits = sorted(range(len(ordered)), key=lambda place: f"{place:0{bits}b}"[::-1])
    places = dict.fromkeys([*reversed_bits[:1], most, *reversed_bits]) if ordered else {}
    return [ordered[place] for place in places]


def interleaved(by_role: Mapping[str, Sequence[GridPoint]]) -> list[tuple[str, GridPoint]]:
    """Return every point with its role; of any first part each kind of each role has its share, small and large."""
    turns = []
    for role, points in by_role.items():
        kinds = dict.fromkeys(point.kind for point in points)
        for kind in kinds:
            of_kind = spread([point for point in points if point.kind == kind])
            turns += [((place + 0.5) / len(of_kind), role, point) for place, point in enumerate(of_kind)]
    turns.sort(key=lambda turn: turn[0])
    return [(role, point) for _, role, point in turns]


@dataclass(frozen=True, slots=True)
class Grid:
    """Sizes whose combinations are timed, within the limits.

    Attributes
    ----------
    requests, contexts : rows of a decode, verify, draft or catch-up pass, and the cached tokens of each.
    trees : tokens of a verified tree, its root included (a chain of k drafts is a tree of k + 1).
    chunks, behind : tokens of a prompt's chunk, and cached tokens before it.
    beside : decoding rows beside the chunk of a mixed pass.
    leaves : leaves that a row extends in a draft step.
    catchup : tokens that a row's draft cache lacks before drafting.
    max_batched_tokens, max_context_tokens : limits of one pass.
    repeats : the most timed runs of a point.
    seconds : after so many seconds no further run of a point is started, once five are done.
    together : numbers of prompts, of the shortest chunk each, that are read in one pass beside the single ones.
    speculating : rows that verify a tree each, of each size, beside the middle chunk of a mixed pass.
    """

    requests: tuple[int, ...]
    contexts: tuple[int, ...]
    trees: tuple[int, ...]
    chunks: tuple[int, ...]
    behind: tuple[int, ...]
    beside: tuple[int, ...]
    leaves: tuple[int, ...]
    catchup: tuple[int, ...]
    max_batched_tokens: int
    max_context_tokens: int
    repeats: int
    seconds: float
    together: tuple[int, ...] = ()
    speculating: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name, values in asdict(self).items():
            least = 0 if name in ("behind", "contexts", "together", "speculating") else 1
            listed = values if isinstance(values, tuple) else (values,)
            if any(each < least if name != "seconds" else each <= 0 for each in listed) or (least and not listed):
                raise SpecsimError(f"{name}: {values}; expected {'0 or more' if not least else 'numbers above 0'}")
        lost = self._beyond()
        keys = {name for name, _ in lost if {(name, each) for each in getattr(self, name)} <= lost.keys()}
        if whole := {size: needs for size, needs in lost.items() if size[0] in keys}:
            raise SpecsimError(self._said(whole))

    @property
    def left_out(self) -> list[str]:
        """A line about sizes that no pass within the limits has, if there are any."""
        lost = self._beyond()
        return [f"{len(lost)} {'size' if len(lost) == 1 else 'sizes'} left out: {self._said(lost)}"] if lost else []

    def _beyond(self) -> dict[tuple[str, int], tuple[int, int]]:
        """Return the sizes that no pass within the limits has, and the fewest cached and batched tokens of one."""
        least: dict[tuple[str, int], tuple[int, int]] = {}
        every = [*self._target(), *self._draft()]
        kept = {size for point in every if self._within(point) for size in point.sizes}
        for point in every:
            context, batched = point.tokens_most()
            for size in set(point.sizes) - kept:
                held, ran = least.get(size, (context, batched))
                least[size] = min(held, context), min(ran, batched)
        return dict(sorted(least.items()))

    def _said(self, lost: Mapping[tuple[str, int], tuple[int, int]]) -> str:
        """Return which sizes are lost, only those beyond a limit by themselves if there are any."""
        most = {name: self.max_context_tokens for name in ("contexts", "behind")}
        told = {size: lost[size] for size in lost if size[1] > most.get(size[0], self.max_batched_tokens)} or lost
        limits = []
        for place, name in enumerate(("max_context_tokens", "max_batched_tokens")):
            wanted, limit = max(needs[place] for needs in told.values()), getattr(self, name)
            limits += [f"{name}: {wanted} (it is {limit})"] if wanted > limit else []
        sizes = ", ".join(f"{name} {each}" for name, each in told)
        return f"{sizes}: in no pass within the limits; expected {' and '.join(limits)}"

    def passes(self, role: str) -> list[GridPoint]:
        """Return the points of the ``target`` or the ``draft``, small ones first."""
        every = self._target() if role == "target" else self._draft()
        kept = {point.key: point for point in every if self._within(point)}
        return sorted(kept.values(), key=lambda point: (point.tokens_most()[1], point.tokens_most()[0], point.key))

    def _within(self, point: GridPoint) -> bool:
        context, batched = point.tokens_most()
        return context <= self.max_context_tokens and batched <= self.max_batched_tokens

    def _target(self) -> Iterator[GridPoint]:
        for n in self.requests:
            for context in self.contexts:
                yield GridPoint("decode", n, context, 1)
                yield from (GridPoint("verify", n, context, tree) for tree in self.trees)
        yield from self._prefill()
        middle = self.contexts[len(self.contexts) // 2]
        yield from (GridPoint("mixed", 1, middle, chunk, n) for chunk in self.chunks for n in self.beside)
        chunk = sorted(self.chunks)[len(self.chunks) // 2]
        yield from (GridPoint("mixed", 1, middle, chunk, n, tree) for n in self.speculating for tree in self.trees)

    def _draft(self) -> Iterator[GridPoint]:
        for n in self.requests:
            for context in self.contexts:
                yield from (GridPoint("draft", n, context, leaves) for leaves in self.leaves)
                yield from (GridPoint("catchup", n, context, tokens) for tokens in self.catchup)
        yield from self._prefill()

    def _prefill(self) -> Iterator[GridPoint]:
        yield from (GridPoint("prefill", 1, behind, chunk) for chunk in self.chunks for behind in self.behind)
        yield from (GridPoint("prefill", n, self.behind[0], min(self.chunks)) for n in self.together)


# As many points as eight minutes on a GPU hold. Kernels of FlexAttention are compiled for every combination of rows and
# padded queries, so there are few row counts. 3 and 20 rows are between captured sizes.
FULL = Grid(
    requests=(1, 3, 8, 20, 64, 128, 256),
    contexts=(128, 2048),
    trees=(5, 16, 64),
    chunks=(128, 512, 2048, 4096),
    behind=(0, 2048),
    beside=(32,),
    leaves=(1, 3),
    catchup=(3,),
    max_batched_tokens=4096,
    max_context_tokens=2**18,
    repeats=20,
    seconds=0.5,
)
QUICK = Grid(
    requests=(1, 32),
    contexts=(128, 1024, 4096),
    trees=(8,),
    chunks=(8, 2048),
    behind=(0,),
    beside=(32,),
    leaves=(3,),
    catchup=(4,),
    max_batched_tokens=2048,
    max_context_tokens=2**17,
    repeats=10,
    seconds=0.2,
)
CPU = Grid(
    requests=(1, 2, 4, 8, 16),
    contexts=(64, 512, 1024),
    trees=(2, 4, 8, 16),
    chunks=(16, 32, 64, 128, 256),
    behind=(0, 512),
    beside=(4, 8),
    leaves=(1, 3),
    catchup=(2, 4, 8),
    max_batched_tokens=264,
    max_context_tokens=2**14,
    repeats=7,
    seconds=1.5,
)
CPU_QUICK = Grid(
    requests=(1, 4),
    contexts=(16, 64, 128),
    trees=(3,),
    chunks=(8, 32, 64),
    behind=(0,),
    beside=(2,),
    leaves=(1, 2),
    catchup=(2,),
    max_batched_tokens=128,
    max_context_tokens=2**12,
    repeats=5,
    seconds=0.2,
)


def shipped(device: str, quick: bool) -> Grid:
    """Return the grid for a kind of device, ``cuda`` or ``cpu``."""
    if device == "cpu":
        return CPU_QUICK if quick else CPU
    return QUICK if quick else FULL


def shares() -> str:
    """Return in words how many points the quick grids and the full grids have."""
    counts = [sum(len(grid.passes(role)) for role in ROLES) for grid in (QUICK, FULL, CPU_QUICK, CPU)]
    return "{} points of {} on a GPU, {} of {} on the CPU".format(*counts)


def read_grid(path: Path, base: Grid) -> Grid:
    """Return the grid of a YAML file; keys that it leaves out are those of `base`.

    Raises
    ------
    SpecsimError
        When the file cannot be read, or a key is unknown or wrong.
    """
    return typed(Grid, CheckedMapping(str(path), "", read_yaml(path, "grid file")), base)
