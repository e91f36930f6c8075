"""Cells of a table made to fit its width; the values of a column that differ still do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import takewhile

LEAST = 6
"""Characters of the narrowest column that is shortened further."""


def fitted(rows: Sequence[Sequence[str]], room: int) -> list[list[str]]:
    """Shorten the widest columns, one character at a time, until the columns fit into ``room`` characters.

    The first row holds the names of the columns. A column is shortened no further where two values would look alike.
    """
    shown = [{cell: cell for cell in column} for column in zip(*rows, strict=True)]
    heads = list(rows[0])
    narrowest: set[int] = set()
    while sum(widths := [_width(column) for column in shown]) > room:
        open_ones = [place for place, width in enumerate(widths) if width > LEAST and place not in narrowest]
        if not open_ones:
            break
        widest = max(open_ones, key=lambda place: widths[place])
        values = [cell for cell in shown[widest] if cell != heads[widest]]
        found = _distinct(values, widths[widest] - 1)
        if found is None:
            narrowest.add(widest)
        else:
            shown[widest] = {heads[widest]: shorten(heads[widest], widths[widest] - 1), **found}
    return [[column[cell] for cell, column in zip(row, shown, strict=True)] for row in rows]


def shorten(text: str, width: int) -> str:
    """Cut out the middle, since swept values mostly differ at the ends."""
    kept = width - 2
    return _cut(text, width, kept - kept // 2)


def _distinct(values: Sequence[str], width: int) -> Mapping[str, str] | None:
    """Return each value in so many characters, all different; None where they would not be."""
    kept = width - 2
    ways = [{value: _cut(value, width, head) for value in values} for head in (kept - kept // 2, kept, 0)]
    long = [value for value in values if len(value) > width]
    ways.append({value: shorten(_without_ends(value, long), width) if value in long else value for value in values})
    return next((way for way in ways if len(set(way.values())) == len(values)), None)


def _cut(text: str, width: int, head: int) -> str:
    if len(text) <= width:
        return text
    tail = width - 2 - head
    return f"{text[:head]}..{text[len(text) - tail :]}"


def _without_ends(value: str, others: Sequence[str]) -> str:
    """Return a value without the beginning and the end that it shares with all others."""
    begin = _shared(others)
    end = _shared([each[begin:][::-1] for each in others])
    return f"..{value[begin : len(value) - end]}.."


def _shared(texts: Sequence[str]) -> int:
    """Return how many first characters texts share."""
    return sum(1 for _ in takewhile(lambda characters: len(set(characters)) == 1, zip(*texts, strict=False)))


def _width(column: Mapping[str, str]) -> int:
    return max(map(len, column.values()))
