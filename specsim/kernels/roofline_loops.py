"""Rooflines for numba; see `specsim.kernels.roofline` for what they do, and `specsim.kernels.loops` for how."""

from __future__ import annotations

from specsim.kernels.compiling import FLOATS, INTS, NUMBER, WHOLE, elementwise, filled


@elementwise("(),(),(),(),(k),(f),(g)->()", *(NUMBER,) * 4, *(FLOATS,) * 3, filled(NUMBER))
def roofline(context, batched, pairs, logits, rates, few, few_logits, seconds):
    """See `specsim.kernels.roofline.numpy_roofline`."""
    delta_s, gamma_s, compute_delta_s, compute_s = rates[0], rates[1], rates[2], rates[3]
    alpha_s, beta_s, tile, single_s, pair_s, logit_s = rates[4], rates[5], rates[6], rates[7], rates[8], rates[9]
    tiles = -(-batched // tile) * tile
    total = max(delta_s + gamma_s * batched, compute_delta_s + compute_s * tiles) + max(
        alpha_s * context, beta_s * pairs
    )
    total += pair_s * pairs
    total += logit_s * logits
    for size in range(len(few)):
        total += few[size] if batched == size + 1 else 0.0
    for size in range(len(few_logits)):
        total += few_logits[size] if logits == size + 1 else 0.0
    seconds[0] = total - single_s if batched == 1 else total


@elementwise("(),(s)->()", WHOLE, INTS, filled(WHOLE))
def pad(batched, sizes, padded):
    """See `specsim.kernels.roofline.numpy_pad`."""
    low, high = 0, len(sizes)
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if sizes[middle] < batched else (low, middle)
    padded[0] = sizes[low] if low < len(sizes) else batched
