"""A command's parser, streams and exit code: nothing that goes wrong gives a traceback."""

from __future__ import annotations

import argparse
import errno
import os
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NoReturn, TextIO

from specsim.errors import SpecsimError, one_line, say

WRITING = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF, errno.EPIPE}


class Parser(argparse.ArgumentParser):
    """An argparse parser whose errors are one line."""

    def error(self, message: str) -> NoReturn:
        """Print the error and exit with 2."""
        say(f"specsim: {one_line(message)} (see {self.prog} --help)", error=True)
        raise SystemExit(2)


def run(command: Callable[[], int], *, debug: bool = False) -> int:
    """Run a command; return its code, 2 after a line about what was wrong, or 130 after an interruption.

    Parameters
    ----------
    debug : whether the traceback of an error is printed as well.
    """
    return written(lambda: _told(command, debug))


def _told(command: Callable[[], int], debug: bool) -> int:
    try:
        return command()
    except SpecsimError as error:
        if debug:
            _print_traceback(error)
        say(f"specsim: {one_line(str(error))}", error=True)
        return 2
    except KeyboardInterrupt as stop:
        say(f"specsim: interrupted; {one_line(str(stop)) or 'nothing is kept'}", error=True)
        return 130


def _print_traceback(error: BaseException) -> None:
    """Print where an error comes from, also where it hides that."""
    import traceback

    each: BaseException | None = error
    while each is not None:
        each.__suppress_context__ = each.__cause__ is not None
        each = each.__cause__ or each.__context__
    say(*"".join(traceback.format_exception(error)).splitlines(), error=True)


def written(command: Callable[[], int]) -> int:
    """Run a command and return its exit code once its output is written; 2, after an error line, if it cannot be.

    A closed pipe, as behind ``| head``, is no mistake: the rest is dropped, and the code is 0.
    """
    _open_streams()
    try:
        try:
            return command()
        finally:
            sys.stdout.flush()
    except OSError as error:
        # An error at another file has that file's name.
        if error.filename is not None or error.errno not in WRITING:
            raise
        _drop(sys.stdout)
        if isinstance(error, BrokenPipeError):
            return 0
        try:
            say(f"specsim: stdout cannot be written: {error.strerror}", error=True)
        except OSError:
            _drop(sys.stderr)
        return 2


def guarded(command: Callable[[], int]) -> int:
    """Run a command and return its exit code.

    Raises
    ------
    SpecsimError
        One line, where a part of somebody's own raised SystemExit or the like.
    """
    try:
        return command()
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        from specsim.runs.execute import fault_of

        fault = fault_of(error)
        if fault is error:
            raise
        raise fault from error


def _open_streams() -> None:
    """Replace closed streams by the null device, and write characters that a terminal lacks as escapes."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:
            setattr(sys, name, Path(os.devnull).open("w", encoding="utf-8"))  # noqa: SIM115
        with suppress(AttributeError):
            getattr(sys, name).reconfigure(errors="backslashreplace")


def _drop(stream: TextIO) -> None:
    """Point a stream at the null device: at exit Python flushes the rest, and would report a failure."""
    with suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
