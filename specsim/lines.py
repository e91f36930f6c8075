"""The one place that prints: each line of each command is written here, and none tells a terminal what to do."""

from __future__ import annotations

import sys

MOST_CHARACTERS = 2000


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
