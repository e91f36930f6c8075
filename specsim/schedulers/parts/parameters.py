"""Checks of schedulers' parameters; a ValueError becomes an error line for the user."""

from __future__ import annotations

from specsim.replica.passes import DEEPEST


def at_least(low: float, **values: float) -> None:
    """Raise ValueError for the first of the named values that is below `low`."""
    for name, value in values.items():
        if value < low:
            raise ValueError(f"{name}={value!r} is below {low:g}")


def draft_length(low: int = 0, **values: int) -> None:
    """Raise ValueError for the first of the named values that is no length of a draft, `low` to `DEEPEST` tokens."""
    at_least(low, **values)
    for name, value in values.items():
        if value > DEEPEST:
            raise ValueError(f"{name}={value!r} is above {DEEPEST:,}")


def share(**values: float) -> None:
    """Raise ValueError for the first of the named values that is no share in [0, 1)."""
    for name, value in values.items():
        if not 0 <= value < 1:
            raise ValueError(f"{name}={value!r} is not in [0, 1)")


def probability(**values: float) -> None:
    """Raise ValueError for the first of the named values that is not in [0, 1]."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value!r} is not in [0, 1]")
