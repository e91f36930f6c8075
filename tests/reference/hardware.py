"""What a replica runs on, what a pass costs there (docs/profiles.md, `specsim.latency.forms`), and requests' texts."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

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


class Hardware(NamedTuple):
    """What a pass of each model costs; the cache's bytes, tokens a block, and bytes a token of each model.

    A request is in the queue `frontend_s` after its arrival. `ahead` is docs/engines.md's `pipeline_steps`.
    """

    draft_s: PassCost
    target_s: PassCost
    capacity: int
    block: int
    target_bytes: int
    draft_bytes: int
    frontend_s: float = 0.0
    ahead: int = 0

    def bytes_of(self, target: int, draft: int) -> int:
        """Return the bytes of the blocks that so many cached tokens of each model lie in."""
        blocks_target, blocks_draft = -(-target // self.block), -(-draft // self.block)
        return blocks_target * self.block * self.target_bytes + blocks_draft * self.block * self.draft_bytes


@dataclass
class Pass:
    """A row of `passes.parquet`."""

    start_s: float
    seconds: float
    kind: int
    requests: int
    batched_tokens: int
    context_tokens: int
    prefill_tokens: int
    draft_tokens: int
    depth: int
    emitted_tokens: int = 0
    accepted_tokens: int = 0
    queued: int = 0
