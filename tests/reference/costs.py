"""What a pass costs, as docs/profiles.md and the docstrings of `specsim.latency.forms` give it, and requests' texts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

PassCost = Callable[[int, int, int, int], float]
WORD = 2**64


def linear(alpha_s: float, gamma_s: float, delta_s: float, overhead_s: float) -> PassCost:
    def seconds(context: int, batched: int, pairs: int, logits: int) -> float:
        return alpha_s * context + gamma_s * batched + delta_s + overhead_s

    return seconds


def roofline(overhead_s: float, *values: Any) -> PassCost:
    """Return the cost of a roofline of these values, in the order of its fields."""
    delta_s, gamma_s, compute_delta_s, compute_s, alpha_s, beta_s, tile_tokens, *more = values
    single_s, pair_s, logit_s, few_s, few_logits_s = more

    def seconds(context: int, batched: int, pairs: int, logits: int) -> float:
        padded = batched
        while padded % tile_tokens:
            padded += 1
        total = max(delta_s + gamma_s * batched, compute_delta_s + compute_s * padded)
        total += max(alpha_s * context, beta_s * pairs)
        total += pair_s * pairs
        total += logit_s * logits
        if batched == 1:
            total -= single_s
        total += dict(enumerate(few_s, 1)).get(batched, 0.0)
        total += dict(enumerate(few_logits_s, 1)).get(logits, 0.0)
        return total + overhead_s

    return seconds


def text(key: int, ranks: list[int]) -> Callable[[int], bool]:
    """Return whether the likeliest token is right at a position: SplitMix64 of the request's key picks its rank."""

    def right(position: int) -> bool:
        word = (key + 0x9E3779B97F4A7C15 * position) % WORD
        word = (word ^ word >> 30) * 0xBF58476D1CE4E5B9 % WORD
        word = (word ^ word >> 27) * 0x94D049BB133111EB % WORD
        return ranks[(word ^ word >> 31) % len(ranks)] == 0

    return right
