"""Blocks of cache for numba; see `specsim.kernels.blocks` for what they do, and `specsim.kernels.loops` for how."""

from __future__ import annotations

from specsim.kernels.compiling import INTS, WHOLE, array_of, compiled, filled


@compiled(filled(WHOLE), INTS, INTS, WHOLE, WHOLE)
def hold(held, ids, tokens, block_tokens, most):
    """See `specsim.kernels.blocks.numpy_hold`."""
    more = 0
    for place in range(len(ids)):
        more += (tokens[place] + block_tokens - 1) // block_tokens - held[ids[place]]
    if more <= most:
        for place in range(len(ids)):
            held[ids[place]] = (tokens[place] + block_tokens - 1) // block_tokens
    return more


@compiled(array_of(WHOLE, 2), INTS, INTS, INTS, WHOLE, WHOLE, WHOLE, filled(WHOLE))
def growth(blocks, ids, target, draft, block_tokens, target_bytes, draft_bytes, more):
    """Fill `more` (n,) as `specsim.kernels.blocks.numpy_growth` does; return whether all requests are there."""
    for place in range(len(ids)):
        request = ids[place]
        if request < 0 or request >= blocks.shape[1]:
            return False
        target_blocks = (target[place] + block_tokens - 1) // block_tokens - blocks[0, request]
        draft_blocks = (draft[place] + block_tokens - 1) // block_tokens - blocks[1, request]
        more[place] = max(target_blocks, 0) * target_bytes + max(draft_blocks, 0) * draft_bytes
    return True
