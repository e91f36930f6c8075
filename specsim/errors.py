"""The one error a user is meant to see."""

from __future__ import annotations

from collections.abc import Iterable


class SpecsimError(Exception):
    """A mistake in what the user gave: one line that names the value, where it stands and what was expected."""


def nearest(name: str, valid: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest valid name, else ``"; valid: a, b, c"``."""
    from difflib import get_close_matches

    names = sorted(valid)
    close = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; valid: {', '.join(names)}"
