"""Random numbers keyed by (seed, row, position) instead of drawn in order: counter-based hashing of 64-bit words."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Words = npt.NDArray[np.uint64]
"""Arrays of 64-bit words: keys, and what is hashed from them."""


def word(number: int) -> Words:
    """Return a constant as a 0-d array: numpy combines it with a short array in half the time of a scalar."""
    constant = np.array(number, dtype=np.uint64)
    constant.flags.writeable = False
    return constant


STRIDE = word(0x9E3779B97F4A7C15)
"""The odd step between two neighbouring positions of one stream (2^64 / golden ratio)."""

_S30, _S27, _S31, _S11 = (word(n) for n in (30, 27, 31, 11))
M1, M2 = word(0xBF58476D1CE4E5B9), word(0x94D049BB133111EB)


def mix(words: Words) -> Words:
    """Return the avalanche of each 64-bit word, same shape (finaliser of SplitMix64, Steele et al. 2014)."""
    z: Words = (words ^ (words >> _S30)) * M1
    z = (z ^ (z >> _S27)) * M2
    return z ^ (z >> _S31)


def stream_keys(seed: int, purpose: str, rows: npt.ArrayLike) -> Words:
    """Return one independent 64-bit key for each trace row, for one named purpose of one seed; shape of `rows`."""
    name = np.frombuffer(purpose.encode().ljust(8 * (len(purpose.encode()) // 8 + 1), b"\0"), dtype=np.uint64)
    key = mix(np.array([seed], dtype=np.uint64) + STRIDE)
    for word in name:
        key = mix((key ^ word) + STRIDE)
    return mix(key + STRIDE * np.asarray(rows, dtype=np.uint64))


def uniforms(words: Words) -> npt.NDArray[np.float64]:
    """Return a uniform number in [0, 1) for each key, same shape."""
    unit: npt.NDArray[np.float64] = (mix(words) >> _S11).astype(np.float64) * 2.0**-53
    return unit
