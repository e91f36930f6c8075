"""The streams of a command: a full disk or a closed pipe behind them is one line or none, never a traceback."""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import TextIO

WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}
MOST_CHARACTERS = 2000


def written(command: Callable[[], int]) -> int:
    """Return a command's exit code when all that it printed is written, 2 after a line where it cannot be.

    A reader that has gone, as behind ``| head``, is no mistake: the rest is dropped, and the code is 0.
    """
    _open_streams()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        # What fails at a file of its own has the file's name.
        if error.filename is not None or error.errno not in WRITING:
            raise
        _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return 0
        try:
            sys.stderr.write(f"specsim: stdout cannot be written: {error.strerror}\n")
        except OSError:
            _drop(sys.stderr)
        return 2


def one_line(text: str) -> str:
    """Return a message as one line of at most `MOST_CHARACTERS` that a terminal shows and does not obey."""
    line = " ".join(text.splitlines())
    if len(line) > MOST_CHARACTERS:
        line = f"{line[: MOST_CHARACTERS // 2]} ... {line[-MOST_CHARACTERS // 2 :]}"
    return "".join(each if each.isprintable() else repr(each)[1:-1] for each in line)


def _open_streams() -> None:
    """Give a closed stream somewhere to go, and let characters that a terminal lacks be written as escapes."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        with suppress(AttributeError):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _drop(stream: TextIO) -> None:
    """Point a stream elsewhere: at its exit Python flushes what is left, and says so where that fails."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
