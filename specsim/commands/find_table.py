"""The table of `specsim find` on the terminal, with marks that its footnotes explain."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from math import isfinite
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from specsim.results.found import Found, Line

HEAD = ("keeps", "misses", "seeds", "95% ±", "per GPU")
SHORT, OVERLOADED, FAILED = "*", "+", "!"
FOOTNOTES = {
    SHORT: "a run at this rate is too short to judge",
    OVERLOADED: "a run at this rate is overloaded or near saturation; a longer run would attain less",
    FAILED: "a run at this rate failed, and counts as 0%",
}
CELL = 8


def find_table(found: Found) -> Iterator[str]:
    """Yield the lines of the table: a row a system, below them what the marks in it mean."""
    keys = found.lines[0].keys
    wide = max(8, len(keys), *(len(line.values) for line in found.lines))
    rows = [_row(found, line) for line in found.lines]
    yield f"highest rate at which {100 * found.asked.target:g}% of {found.whose} attain, requests/s"
    yield (f"{keys:{wide}}" + "".join(f"  {each:>{CELL}} " for each in HEAD)).rstrip()
    yield "-" * (wide + len(HEAD) * (CELL + 3) - 1)
    for line, cells in zip(found.lines, rows, strict=True):
        marked = "".join(f"  {number:>{CELL}}{marks or ' '}" for number, marks in cells)
        yield f"{line.values:{wide}}{marked}".rstrip()
    for mark, meaning in FOOTNOTES.items():
        if any(mark in marks for cells in rows for _, marks in cells):
            yield f"{mark} {meaning}"


def _row(found: Found, line: Line) -> list[tuple[str, str]]:
    """Return the numbers of a row, each with its marks."""
    each = found.capacity(line)
    kept, missed = _marks(line, each.keeps), _marks(line, each.misses, (SHORT, FAILED))
    per_gpu = None if each.keeps is None else each.keeps / line.gpus
    return [
        (_number(each.keeps), kept),
        (_number(each.misses), missed),
        (_number(each.mean), ""),
        (_number(each.half_width), ""),
        (_number(per_gpu), kept),
    ]


def _marks(line: Line, rate: float | None, shown: Collection[str] = tuple(FOOTNOTES)) -> str:
    marks = {SHORT: line.too_short, OVERLOADED: line.overloaded, FAILED: line.failed}
    return "".join(mark for mark in shown if marks[mark](rate))


def _number(value: float | None) -> str:
    return "-" if value is None or not isfinite(value) else f"{value:.4g}"
