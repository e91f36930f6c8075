"""Seconds of many passes by a roofline, and the sizes that an engine pads them to."""

from __future__ import annotations

from typing import Any

import numpy as np

from specsim.kernels.arrays import Floats, Ints


def numpy_roofline(
    context: Any, batched: Any, pairs: Any, logits: Any, rates: Floats, few: Floats, few_logits: Floats
) -> Floats:
    """Return the seconds of passes with such counts, which broadcast together; see `specsim.latency.forms.Roofline`.

    Parameters
    ----------
    rates : (10,) its coefficients in order. few, few_logits : its offsets of passes of 1, 2, ... tokens, and logits.
    """
    delta_s, gamma_s, compute_delta_s, compute_s, alpha_s, beta_s, tile, single_s, pair_s, logit_s = rates.tolist()
    context, batched, pairs, logits = (_counts(each) for each in (context, batched, pairs, logits))
    whole = tile == 1 and batched.dtype.kind == "i"
    tiles = batched if whole else -(-batched // tile) * tile
    weights = np.maximum(delta_s + gamma_s * batched, compute_delta_s + compute_s * tiles)
    seconds = weights + np.maximum(alpha_s * context, beta_s * pairs)
    # A coefficient that is not given is not added: most are not, and each costs as long as the lines above.
    for each_s, tokens in ((pair_s, pairs), (logit_s, logits)):
        if each_s:
            seconds = seconds + each_s * tokens
    for offsets, tokens in ((few, batched), (few_logits, logits)):
        for size, offset in enumerate(offsets.tolist(), 1):
            seconds = seconds + np.where(tokens == size, offset, 0.0)
    if single_s:
        seconds = seconds - np.where(batched == 1, single_s, 0.0)
    seconds = np.asarray(seconds, dtype=np.float64)
    shape = np.broadcast_shapes(seconds.shape, logits.shape)
    return seconds if seconds.shape == shape else np.broadcast_to(seconds, shape).copy()


def _counts(values: Any) -> Any:
    """Return counts as int64 or float64, whatever numbers they are given as."""
    array = np.asarray(values)
    return array if array.dtype.kind in "if" and array.itemsize == 8 else array.astype(np.float64)


def numpy_pad(batched: Any, sizes: Ints) -> Any:
    """Return the least of `sizes`, which rise, that is not below each number of batched tokens; those above all stay.

    `batched` are whole numbers, and there is at least one size.
    """
    batched = np.asarray(batched)
    padded = sizes.take(sizes.searchsorted(batched), mode="clip")
    return np.where(batched > sizes[-1], batched, padded)
