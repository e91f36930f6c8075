"""Prompt lookup: proposes what followed an earlier match of the text's last tokens."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.core.request import Ints

NOTHING = -1


class Found(NamedTuple):
    """The token that a lookup proposes, and how many tokens matched; ``NOTHING`` and 0 without a match."""

    token: int
    match: int


def match_lengths(text: Ints, most: int) -> Ints:
    """Return how many tokens up to each index but the last equal those up to the last, at most `most`, (n - 1,)."""
    before = text[:-1]
    run, alike = np.zeros(len(before), dtype=np.int64), np.ones(len(before), dtype=np.bool_)
    for back in range(min(most, len(before))):
        alike[:back] = False
        alike[back:] &= before[: len(before) - back] == text[-1 - back]
        if not alike.any():
            break
        run += alike
    return run


def find(text: Ints, fewest: int, most: int) -> Found:
    """Return what followed the longest match of the last `fewest` to `most` tokens of a text; of several the earliest.

    Parameters
    ----------
    text : (n,) token ids.
    """
    run = match_lengths(text, most)
    if not len(run) or run.max() < fewest:
        return Found(NOTHING, 0)
    at = int(run.argmax())
    return Found(int(text[at + 1]), int(run[at]))


def lookups(text: Ints, first: int, fewest: int, most: int) -> tuple[list[Found], list[Found | None]]:
    """Return the proposal for each output token, and the one behind a wrong proposal in place of the token before.

    Parameters
    ----------
    text : (n,) prompt and output. first : index of the first output token, at least 1.

    Returns
    -------
    on, off : (n - first) each. ``off[t]`` is for position t after the proposal for t - 1 has replaced the target's
        token; None if that proposal was right, or there was none.
    """
    on = [find(text[:index], fewest, most) for index in range(first, len(text))]
    off: list[Found | None] = [None] if on else []
    for index, before in zip(range(first + 1, len(text)), on, strict=False):
        wrong = before.token not in (NOTHING, text[index - 1])
        off.append(find(np.append(text[: index - 1], before.token), fewest, most) if wrong else None)
    return on, off
