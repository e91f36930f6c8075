"""What a replica runs on, and a pass that it ran."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tests.reference.costs import PassCost


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
