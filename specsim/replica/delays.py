"""Waiting for several passes at once: the clock shows what it shows when it waits for each."""

from __future__ import annotations

from collections.abc import Sequence
from math import inf, nextafter
from typing import NoReturn

import numpy as np

from specsim.errors import ModelFault
from specsim.replica.request import Floats

TARGET, DRAFTER = "the target", "the drafter"
POSSIBLE = "expected a finite number of seconds, at least 0"


def delays(start_s: float, seconds: Sequence[float]) -> Sequence[float]:
    """Return delays from `start_s` that end where these `seconds` end when they are waited for one by one.

    One delay wherever floats allow it, else `seconds`, which are those of a drafter's passes.

    Raises
    ------
    ModelFault
        When no clock can wait for one of them.
    """
    end_s = start_s
    for each in seconds:
        if not 0 <= each < inf:
            refuse(each, DRAFTER)
        end_s += each
    if len(seconds) == 1:
        return seconds
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


def possible(seconds: float) -> float:
    """Return the seconds of a pass of the target; refuse those that no clock can wait for."""
    return seconds if 0 <= seconds < inf else refuse(seconds, TARGET)


def check_rounds(seconds: Floats, end_s: float) -> None:
    """Refuse rounds (n, passes) with a pass that no clock can wait for; they end at `end_s`, each with the target's."""
    if np.minimum.reduce(seconds, axis=None) >= 0 and end_s < inf:
        return
    for model, each in ((DRAFTER, seconds[:, :-1]), (TARGET, seconds[:, -1:])):
        wrong = each[~((each >= 0) & (each < inf))]
        if len(wrong):
            refuse(float(wrong[0]), model)


def refuse(seconds: float, model: str) -> NoReturn:
    """Raise a ModelFault that names the model and its seconds."""
    raise ModelFault(f"a pass of {model} takes {seconds:g} s; {POSSIBLE}")
