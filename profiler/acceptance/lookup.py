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


def matches(before: Ints, text: Ints, last: int) -> Ints:
    """Return how many tokens up to each index of `text` (n,) equal those up to `last`, the token after `text`, (n,).

    `before` (n - 1,) is the result for ``text[:-1]`` and ``text[-1]``; it is empty at the first token.
    """
    longer = np.concatenate(([0], before))[: len(text)] + 1
    return np.where(text == last, longer, 0)


def find(run: Ints, text: Ints, last: int, fewest: int, most: int) -> Found:
    """Return what followed the longest match of `fewest` to `most` tokens; of several the earliest.

    Parameters
    ----------
    run : (n,) from `matches`. text : (n,) tokens before `last`.
    """
    if not len(run):
        return Found(NOTHING, 0)
    capped = np.minimum(run, most)
    at = int(capped.argmax())
    if capped[at] < fewest:
        return Found(NOTHING, 0)
    return Found(int(text[at + 1]) if at + 1 < len(text) else last, int(capped[at]))


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
    run = shorter = np.zeros(0, dtype=np.int64)
    on: list[Found] = []
    off: list[Found | None] = []
    for index in range(len(text)):
        if index >= first:
            before, last = text[: index - 1], int(text[index - 1])
            wrong = on[-1].token if on else NOTHING
            if wrong in (NOTHING, last):
                off.append(None)
            else:
                off.append(find(matches(shorter, before, wrong), before, wrong, fewest, most))
            on.append(find(run, before, last, fewest, most))
        shorter = run
        run = matches(run, text[:index], int(text[index]))
    return on, off
