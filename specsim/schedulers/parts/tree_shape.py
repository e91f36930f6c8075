"""Rules for the depth and width of candidate trees, from the number of requests that speculate."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple, Protocol

import numpy as np

from specsim.core.protocols import CostModel
from specsim.core.request import Floats, Ints
from specsim.pass_shape import PassShapes
from specsim.schedulers.parts.protocols import at_least, draft_length

LEAST_DEPTH, MOST_DEPTH = 2, 8
"""Depths among which a profiled budget chooses."""
NEAR = 0.98
"""The share of the most tokens a second from which on a shallower chain is taken: near its top the curve is flat."""
LEAST_TOKENS, LONGER = 48, 1.125
"""The least of a budget that follows the batch, where a step takes at most so many times as long as with chains."""
ACCEPTED, CONTEXT_TOKENS = 0.8, 1024
"""Of the chains that are profiled: the share of drafted tokens that is right, and the cached tokens of a request."""


class TreeShape(NamedTuple):
    """Depth: draft passes of a step. Width: nodes that a tree gains in each pass."""

    depth: int
    width: int


class ShapeRule(Protocol):
    """Gives the shape for a number of speculating requests, and the largest depth and width of any number."""

    @property
    def depth_max(self) -> int: ...  # noqa: D102

    @property
    def width_max(self) -> int: ...  # noqa: D102

    def __call__(self, requests: int) -> TreeShape: ...  # noqa: D102


@dataclass(frozen=True, slots=True)
class BatchBudget:
    """A verification budget that follows the batch.

    Parameters
    ----------
    tokens : B of each request, root included, in a batch of 1, 2, ... requests; the last holds for larger ones. They
        are the depth of the profiled chain, and its root.
    least_tokens : the least B in a batch of 1, 2, ... requests.
    """

    tokens: tuple[int, ...] = (1 + LEAST_DEPTH,)
    least_tokens: tuple[int, ...] = (LEAST_TOKENS,)

    def __call__(self, requests: int) -> int:
        """Return B for a batch of `requests`."""
        least = self.least_tokens[min(requests, len(self.least_tokens)) - 1]
        return max((1 + self.depth(requests)) * requests, least)

    def depth(self, requests: int) -> int:
        """Return the depth of the chains that were profiled for a batch of `requests`."""
        return self.tokens[min(max(requests, 1), len(self.tokens)) - 1] - 1


def profiled_budget(cost_model: CostModel, most: int) -> BatchBudget:
    """Return the budget that profiling chains finds for batches of 1 to `most` requests (AdaServe, section 5.2).

    A chain of depth d yields (1 - a^(d + 1)) / (1 - a) tokens, a = `ACCEPTED`, in d draft passes and one verification.
    B gives each request the least depth, from `LEAST_DEPTH` to `MOST_DEPTH` or what the drafter proposes, that yields
    `NEAR` of the most tokens a second, and its root. In small batches it is the most tokens, up to `LEAST_TOKENS`, with
    which a step takes at most `LONGER` times as long: a mixture of experts pays for each token there.
    """
    n = np.arange(1, most + 1)
    decode = PassShapes.decode(n * CONTEXT_TOKENS, n)
    draft_s = cost_model.draft.seconds_array(decode)

    def step_s(depth: Ints, nodes: Ints) -> Floats:
        verify = PassShapes.with_nodes(decode, nodes, nodes * (CONTEXT_TOKENS + 2))
        return (1 if cost_model.draft.one_pass else depth) * draft_s + cost_model.target.seconds_array(verify)

    depths = np.arange(LEAST_DEPTH, max(min(MOST_DEPTH, cost_model.draft.max_depth), LEAST_DEPTH) + 1)[:, None]
    per_s = (1 - ACCEPTED ** (depths + 1)) / (1 - ACCEPTED) / step_s(depths, depths * n)
    depth = LEAST_DEPTH + np.argmax(per_s >= NEAR * per_s.max(axis=0), axis=0)
    tokens = np.arange(1, LEAST_TOKENS + 1)[:, None]
    allowed = step_s(depth, np.maximum(tokens - n, 0)) <= LONGER * step_s(depth, depth * n)
    return BatchBudget(tuple((1 + depth).tolist()), tuple(np.max(tokens * allowed, axis=0).tolist()))


def budget_of(verify_tokens: int | BatchBudget, requests: int) -> int:
    """Return B for a batch of `requests`."""
    return verify_tokens if isinstance(verify_tokens, int) else verify_tokens(requests)


@dataclass(frozen=True, slots=True)
class Budgeted:
    """The parameters of both of AdaServe's rules: two budgets of tokens for all requests, and bounds.

    Parameters
    ----------
    depth_max, width_max : D_max, W_max.
    verify_tokens, draft_pass_tokens : B1 of the depth, B2 of the width; tokens per verification and per draft pass.
        Without a B2 it is B1.
    """

    depth_max: int
    width_max: int
    verify_tokens: int | BatchBudget
    draft_pass_tokens: int | None

    def __post_init__(self) -> None:
        at_least(1, width_max=self.width_max)
        at_least(1, verify_tokens=budget_of(self.verify_tokens, 1), draft_pass_tokens=self.pass_tokens(1))

    def pass_tokens(self, requests: int) -> int:
        """Return B2 for a batch of `requests`."""
        return budget_of(self.verify_tokens, requests) if self.draft_pass_tokens is None else self.draft_pass_tokens


@dataclass(frozen=True, slots=True)
class LoadAdaptive(Budgeted):
    """AdaServe (EuroSys '26) Eq. 8 and 9: d = clip(D_max, D_min, B1 // (n + c1) - 1), w = clip(W_max, 1, B2 // n + c2).

    A B1 that follows the batch brings the depth that was profiled, also where its least would allow a greater one.

    Parameters
    ----------
    depth_min : D_min.
    depth_offset, width_offset : c1 and c2; the paper tunes them by grid search and prints no values.
    """

    depth_min: int
    depth_offset: int
    width_offset: int

    def __post_init__(self) -> None:
        Budgeted.__post_init__(self)
        at_least(0, depth_min=self.depth_min)
        draft_length(depth_max=self.depth_max)
        if self.depth_min > self.depth_max:
            raise ValueError(f"depth_min={self.depth_min} exceeds depth_max={self.depth_max}")

    def __call__(self, requests: int) -> TreeShape:
        """Return the shape for a batch of `requests` speculating requests."""
        if isinstance(self.verify_tokens, int):
            depth = self.verify_tokens // max(requests + self.depth_offset, 1) - 1
        else:
            depth = self.verify_tokens.depth(requests)
        width = self.pass_tokens(requests) // max(requests, 1) + self.width_offset
        return TreeShape(
            min(max(depth, self.depth_min), self.depth_max),
            min(max(width, 1), self.width_max),
        )


@dataclass(frozen=True, slots=True)
class BudgetShare(Budgeted):
    """AdaServe v1 (arXiv 2025): d = max(1, min(D_max, ceil(B / n))), w = max(1, min(W_max, B2 // n)).

    v1 uses B for both. The authors' public branch uses the tokens of a draft pass for the width.
    """

    def __post_init__(self) -> None:
        Budgeted.__post_init__(self)
        draft_length(1, depth_max=self.depth_max)

    def __call__(self, requests: int) -> TreeShape:
        """Return the shape for a batch of `requests` speculating requests."""
        n = max(requests, 1)
        depth, width = -(-budget_of(self.verify_tokens, n) // n), self.pass_tokens(n) // n
        return TreeShape(max(1, min(self.depth_max, depth)), max(1, min(self.width_max, width)))


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same depth and width for any load."""

    depth: int
    width: int

    def __post_init__(self) -> None:
        draft_length(depth=self.depth)
        at_least(1, width=self.width)

    @property
    def depth_max(self) -> int:
        """The depth."""
        return self.depth

    @property
    def width_max(self) -> int:
        """The width."""
        return self.width

    def __call__(self, requests: int) -> TreeShape:
        """Return the shape, whatever `requests`."""
        return TreeShape(self.depth, self.width)
