"""Options that several commands read alike."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from typing import TypeVar

Number = TypeVar("Number", int, float)


def minutes(text: str) -> float:
    """Return minutes of at least 0; argparse reports anything else."""
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not 0 <= value < math.inf:
        raise argparse.ArgumentTypeError(f"{text}: expected a number of minutes, 0 or more")
    return value


def listed(kind: Callable[[str], Number], expected: str) -> Callable[[str], tuple[Number, ...]]:
    """Return what reads numbers between commas; argparse reports anything else."""

    def read(text: str) -> tuple[Number, ...]:
        try:
            return tuple(kind(each) for each in text.split(",") if each)
        except ValueError:
            raise argparse.ArgumentTypeError(f"{text}: expected {expected}") from None

    return read


wholes = listed(int, "whole numbers, such as 4,5,25")
