"""How far a sweep is: one live line where somebody watches, a plain line now and then where nobody does."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

from specsim.lines import printable, say
from specsim.runs.progress import bar_of, is_watched

if TYPE_CHECKING:
    from tqdm import tqdm

Piece = TypeVar("Piece")
LINE_S = 10.0
"""Seconds between two plain lines: a sweep that ends sooner prints none."""
BAR_S = 1.0
"""Seconds after which a sweep that is not ready to run draws a bar."""


class Worst(NamedTuple):
    """The SLO class that fared worst, in a run or in all runs so far."""

    attainment: float
    slo_class: str

    def __str__(self) -> str:
        """Return the class and its attainment."""
        return f"{printable(self.slo_class)} {100 * self.attainment:.1f}%"


def worst_of(metrics: Mapping[str, Any]) -> Worst:
    """Return the worst class of a run."""
    block = metrics["specsim"]
    return Worst(block["worst_class_attainment"], block["worst_class"])


class Tally:
    """Counts the runs of a sweep as they end, and tells of them on stderr.

    Attributes
    ----------
    total, kept, made, failed : runs in all, those that stood already, those made now, and those of them that failed.
    worst : the worst class of all runs so far, None before the first.
    """

    def __init__(self, total: int, drawn: tqdm[Any] | None, speaks: bool):
        self.total, self.kept, self.made, self.failed = total, 0, 0, 0
        self.worst: Worst | None = None
        self._drawn, self._speaks = drawn, speaks
        self._began_s = self._told_s = time.monotonic()

    def add(self, worst: Worst | None, *, stood: bool = False) -> None:
        """Count a run; `worst` is its worst class, None where it failed; `stood` tells that it was there already."""
        self.kept += stood
        self.made += not stood
        self.failed += worst is None
        self.worst = min(filter(None, (self.worst, worst)), default=None)
        if self._drawn is not None:
            self._draw(self._drawn, stood)
        elif self._speaks and time.monotonic() - self._told_s >= LINE_S:
            self._told_s = time.monotonic()
            say(self.line(self._told_s - self._began_s), error=True)

    def line(self, spent_s: float) -> str:
        """Return the plain line after so many seconds."""
        from tqdm import tqdm

        done = self.kept + self.made
        per_s = self.made / spent_s
        left = tqdm.format_interval((self.total - done) / per_s) if per_s else "?"
        told = f"{done} of {self.total} runs done, {self.failed} failed, {per_s:.3g} runs/s, {left} left"
        return told if self.worst is None else f"{told}, worst class {self.worst}"

    def _draw(self, drawn: tqdm[Any], stood: bool) -> None:
        drawn.set_postfix_str(f"{self.failed} failed, worst {self.worst or '-'}", refresh=False)
        if stood:
            # What stood already says nothing of the rate.
            drawn.initial += 1
            drawn.n += 1
            drawn.last_print_n = drawn.n
        else:
            drawn.update()


@contextmanager
def tallied(total: int, progress: bool) -> Iterator[Tally]:
    """Yield the tally of a sweep of `total` runs, silent without `progress`."""
    if not progress or not is_watched():
        yield Tally(total, None, progress)
        return
    with bar_of(total, "run") as drawn:
        yield Tally(total, drawn, progress)


def told(each: Iterable[Piece], total: int, done: str, progress: bool) -> Iterator[Piece]:
    """Yield each of so many points, and tell on stderr how many are `done`, as "checked"; silent without `progress`."""
    if not progress:
        yield from each
    elif is_watched():
        with bar_of(total, "point", desc=done, delay=BAR_S) as drawn:
            for one in each:
                yield one
                drawn.update()
    else:
        told_s = time.monotonic()
        for count, one in enumerate(each, 1):
            yield one
            if time.monotonic() - told_s >= LINE_S:
                told_s = time.monotonic()
                say(f"{count} of {total} points {done}", error=True)


def composed(points: Sequence[Piece]) -> Iterator[Piece]:
    """Yield points, and tell how many are composed."""
    return told(points, len(points), "composed", progress=True)
