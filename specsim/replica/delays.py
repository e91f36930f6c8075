"""Waiting for several passes at once: the clock shows what it shows when it waits for each."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter


def delays(start_s: float, seconds: Sequence[float]) -> Sequence[float]:
    """Return delays from `start_s` that end where these `seconds` end when they are waited for one by one.

    One delay wherever floats allow it, else `seconds`.
    """
    if len(seconds) == 1:
        return seconds
    end_s = start_s
    for each in seconds:
        end_s += each
    delay_s = single(start_s, end_s)
    return seconds if delay_s is None else (delay_s,)


def single(start_s: float, end_s: float) -> float | None:
    """Return the delay that ends at exactly `end_s`; None where there is none.

    Where the clock is about as fine as the delay, sums may fall between two numbers and round to the even one: no
    single delay ends at an odd one.
    """
    delay_s = end_s - start_s
    for near_s in (delay_s, nextafter(delay_s, 0.0), nextafter(delay_s, inf)):
        if start_s + near_s == end_s:
            return near_s
    return None
