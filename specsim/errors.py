"""Errors of one line, and the one place that prints."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

MOST_CHARACTERS = 2000
ADDRESS = re.compile(" at 0x[0-9a-fA-F]+")


def say(*lines: object, error: bool = False, end: str = "\n", flush: bool = False) -> None:
    """Write lines to stdout, or with `error` to stderr; see `printable` for what stands in them."""
    stream = sys.stderr if error else sys.stdout
    stream.write("".join(f"{printable(str(each))}{end}" for each in lines))
    if flush:
        stream.flush()


def printable(text: str) -> str:
    """Return a text as one line without control characters: names and messages may be somebody else's."""
    if text.isprintable():
        return text
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in " ".join(text.splitlines()))


def one_line(text: str) -> str:
    """Return a message as one printable line of at most `MOST_CHARACTERS`."""
    line = " ".join(text.splitlines())
    if len(line) > MOST_CHARACTERS:
        line = f"{line[: MOST_CHARACTERS // 2]} ... {line[-MOST_CHARACTERS // 2 :]}"
    return printable(line)


def all_printable(value: object) -> object:
    """Return plain values in which every text is `printable`: what a stored run says, before a table is made of it."""
    if isinstance(value, str):
        return printable(value)
    if isinstance(value, dict):
        return {all_printable(key): all_printable(each) for key, each in value.items()}
    return [all_printable(each) for each in value] if isinstance(value, list) else value


MOST_BESIDE = 1000
"""Names that a missing file is compared with."""


class SpecsimError(Exception):
    """A mistake in what the user gave: one line that names the value, where it stands and what was expected."""

    def __str__(self) -> str:
        return " ".join(super().__str__().splitlines())


class SchedulerFault(SpecsimError):
    """A scheduler did what no server could run, or failed: one line that names it and the simulated time."""


class ObserverFault(SpecsimError):
    """An observer failed: one line that names it and the simulated time."""


class RouterFault(SpecsimError):
    """A router failed, or named no replica: one line that names it and the simulated time."""


class ModelFault(SpecsimError):
    """A model or a backend answers a pass with what cannot be: a time that no clock can wait for, or other rows."""


class StepTooLong(BaseException):
    """Thrown into code that has not come to the next pass in time; no `Exception`, so that none catches it."""

    def __str__(self) -> str:
        return "no next pass within step_limit_s of wall time"


class IllegalPass(SchedulerFault):
    """A scheduler asked for a pass that no server could run."""


def passes_through(error: BaseException) -> bool:
    """Return whether no part of somebody's own is at fault: Ctrl-C, and what specsim throws and catches itself."""
    return isinstance(error, KeyboardInterrupt) or type(error).__module__.partition(".")[0] == "specsim"


def nearest(name: str, valid: Iterable[str], cutoff: float = 0.75) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest valid name, else ``"; valid: a, b, c"``.

    `cutoff` is the least similarity, 0 to 1, of a name that is meant.
    """
    from difflib import get_close_matches

    names = sorted(set(valid))
    swapped = [each for each in names if sorted(each) == sorted(name)]
    alike = (get_close_matches(word, names, n=1, cutoff=cutoff) for word in (name, name.lower()))
    close = next(filter(None, alike), swapped)
    if close:
        unit = ", in seconds" if name.endswith("_ms") and close[0].endswith("_s") else ""
        return f"; did you mean {close[0]!r}{unit}?"
    return f"; valid: {', '.join(names)}" if names else ""


def beside(path: Path) -> str:
    """Return the hint at a file of a similar name in the same folder, empty where there is none."""
    from difflib import get_close_matches

    folder = path.parent
    try:
        there = [each.name for each in islice(folder.iterdir(), MOST_BESIDE) if each.name != path.name]
    except OSError:
        return ""
    close = get_close_matches(path.name, there, n=1)
    return f"; did you mean {str(folder / close[0])!r}?" if close else ""


def first_line(error: BaseException) -> str:
    """Return what an error says as one line of at most 200 characters, its kind where it says nothing."""
    try:
        return " ".join(str(error).split())[:200] or type(error).__name__
    except Exception:
        return f"{type(error).__name__}, whose text cannot be made"


def reason(error: BaseException) -> str:
    """Return `first_line`, behind the kind of what is no `Exception`: a SystemExit says 0, or nothing."""
    return first_line(error) if isinstance(error, Exception) else f"{type(error).__name__}: {first_line(error)}"


def represented(value: object, most: int = 40) -> str:
    """Return at most so many characters of what a value looks like in Python, in one line, whatever its class does.

    Addresses are left out, and an object that looks like nothing else is its class.
    """
    kind = with_article(type(value).__name__)
    try:
        return kind if is_plain(value) else ADDRESS.sub("", " ".join(repr(value).split()))[:most]
    except Exception:
        return f"{kind} without a representation"


def is_plain(value: object) -> bool:
    """Return whether a value looks like its class and its address in Python."""
    return type(value).__repr__ is object.__repr__


def with_article(name: str) -> str:
    """Return a name behind "a" or "an"."""
    return f"{'an' if name.startswith((*'AEIOaeio', 'ndarray')) else 'a'} {name}"
