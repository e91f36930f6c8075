"""Rules for the depth and width of candidate trees, from the number of requests that speculate."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple


class TreeShape(NamedTuple):
    """Draft passes of a step, and nodes that a request's tree gains in each."""

    depth: int
    width: int


ShapeRule = Callable[[int], TreeShape]


@dataclass(frozen=True, slots=True)
class LoadAdaptive:
    """AdaServe (EuroSys '26) Eq. 8 and 9: d = clip(D_max, D_min, B1 // (n + c1) - 1), w = clip(W_max, 1, B2 // n + c2).

    Parameters
    ----------
    depth_min, depth_max, width_max : D_min, D_max, W_max.
    verify_tokens, draft_tokens : B1 and B2, tokens per verification and per draft pass.
    depth_offset, width_offset : c1 and c2; the paper tunes them by grid search and prints no values.
    """

    depth_min: int
    depth_max: int
    width_max: int
    verify_tokens: int
    draft_tokens: int
    depth_offset: int
    width_offset: int

    def __call__(self, requests: int) -> TreeShape:
        """Return the shape for a batch of `requests` speculating requests."""
        depth = self.verify_tokens // max(requests + self.depth_offset, 1) - 1
        width = self.draft_tokens // max(requests, 1) + self.width_offset
        return TreeShape(
            min(max(depth, self.depth_min), self.depth_max),
            min(max(width, 1), self.width_max),
        )


@dataclass(frozen=True, slots=True)
class Fixed:
    """The same depth and width whatever the load."""

    depth: int
    width: int

    def __call__(self, requests: int) -> TreeShape:
        """Return the shape; `requests` is not looked at."""
        return TreeShape(self.depth, self.width)
