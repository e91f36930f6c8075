"""Forward passes by what is in them, and grids of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter

from profiler.latency.fit import Samples


@dataclass(frozen=True, slots=True)
class Alike:
    """`requests` alike: each with `context` cached tokens and `queries` new ones, a tree or a chunk."""

    requests: int
    context: int
    queries: int
    tree: bool = False

    @property
    def pairs(self) -> float:
        """Keys attended to, over all queries; a tree's nodes are counted as a chain's, its upper bound."""
        return self.requests * (self.queries * self.context + self.queries * (self.queries + 1) / 2)


@dataclass(frozen=True, slots=True)
class ComposedPass:
    """One forward pass: its kind, for error figures, and its requests."""

    kind: str
    groups: tuple[Alike, ...]

    @property
    def context_tokens(self) -> int:
        """Cached tokens, once per request."""
        return sum(group.requests * group.context for group in self.groups)

    @property
    def batched_tokens(self) -> int:
        """All query tokens."""
        return sum(group.requests * group.queries for group in self.groups)

    @property
    def requests(self) -> int:
        """Requests with a query token."""
        return sum(group.requests for group in self.groups)

    @property
    def attention_pairs(self) -> float:
        """Keys attended to, over all query tokens."""
        return sum(group.pairs for group in self.groups)

    @property
    def logit_rows(self) -> int:
        """Positions whose logits are needed: every tree node, and one for each other request."""
        return sum(group.requests * (group.queries if group.tree else 1) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Sizes:
    """Sizes whose products make a grid: requests, their context, tree nodes and chunk tokens."""

    requests: tuple[int, ...]
    contexts: tuple[int, ...]
    trees: tuple[int, ...]
    chunks: tuple[int, ...]
    behind: tuple[int, ...]


def reaching(sizes: Sizes, times: int) -> Sizes:
    """Return sizes with contexts that go on, in doublings, to so many times as many cached tokens."""
    longer = range(1, times.bit_length())
    contexts, behind = ((*each, *(each[-1] << n for n in longer)) for each in (sizes.contexts, sizes.behind))
    return replace(sizes, contexts=contexts, behind=behind)


def passes(sizes: Sizes, most_context: int, most_batched: int) -> list[ComposedPass]:
    """Return the passes of a grid of at most `most_context` tokens of cache and `most_batched` query tokens.

    A mixed pass is a prompt's chunk beside decoding requests of 1,024 cached tokens each. Trees have a quarter of the
    query tokens at most.
    """
    decode = [ComposedPass("decode", (Alike(n, k, 1),)) for n in sizes.requests for k in sizes.contexts]
    verify = [
        ComposedPass("verify", (Alike(n, k, tree, tree=True),))
        for n in sizes.requests
        for k in sizes.contexts
        for tree in sizes.trees
        if 4 * n * tree <= most_batched
    ]
    prefill = [ComposedPass("prefill", (Alike(1, k, c),)) for c in sizes.chunks for k in sizes.behind]
    mixed = [
        ComposedPass("mixed", (Alike(1, 0, c), Alike(n, 1024, 1)))
        for c in sizes.chunks
        for n in sizes.requests
        if 8 <= n <= 64
    ]
    return [
        work
        for work in decode + verify + prefill + mixed
        if work.context_tokens <= most_context and work.batched_tokens <= most_batched
    ]


def sampled(seconds: Callable[[ComposedPass], float], work: Sequence[ComposedPass]) -> Samples:
    """Compose every pass: `seconds` is what one takes."""
    sizes = attrgetter("kind", "context_tokens", "batched_tokens", "attention_pairs", "logit_rows", "requests")
    return Samples.of((*sizes(each), seconds(each)) for each in work)
