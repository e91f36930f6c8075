"""A command's parser, its options and the words that they take, streams and exit code: nothing gives a traceback."""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NoReturn, TextIO

from specsim.errors import SpecsimError, one_line, say
from specsim.files.checked_mapping import expanded
from specsim.files.staging import Unwritable

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
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL
    try:
        if ours:
            # As Ctrl-C: joblib's processes end before this one does, and leave nothing behind.
            signal.signal(signal.SIGTERM, signal.default_int_handler)
        return command()
    except (SpecsimError, PermissionError) as error:
        if debug:
            _print_traceback(error)
        say(f"specsim: {one_line(str(error))}", error=True)
        return 2
    except KeyboardInterrupt as stop:
        say(f"specsim: interrupted; {one_line(str(stop)) or 'nothing is kept'}", error=True)
        return 130
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


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


def added(
    commands: Any, name: str, command: Callable[[argparse.Namespace], int], said: str, epilog: str | None = None
) -> argparse.ArgumentParser:
    """Return the parser of a command that is added to the others; `said` is its line of help."""
    raw = argparse.RawDescriptionHelpFormatter
    parser: argparse.ArgumentParser = commands.add_parser(name, help=said, epilog=epilog, formatter_class=raw)
    parser.set_defaults(command=command)
    return parser


def add_search_options(parser: argparse.ArgumentParser, target: str, out: Path) -> None:
    """Add the options of a search: `find` and `tune`."""
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    said = f"of requests that meet their objectives ({target}%)"
    parser.add_argument("--target", default=target, metavar="SHARE", help=said)
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes that run at once (1)")
    parser.add_argument("--executor", default="local", metavar="NAME", help="local, ray, dask or slurm")
    parser.add_argument("--out", type=expanded, default=out, metavar="DIR", help=f"of runs and results ({out})")


def how(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return how a search runs, as `specsim.search.find.search` takes it."""
    return {"jobs": arguments.jobs, "executor": arguments.executor, "say": told, "progress": True}


def told(line: str) -> None:
    """Print a line about the progress of a search."""
    say(line, error=True, flush=True)


@contextmanager
def resumable(root: Path) -> Iterator[None]:
    """Tell an interruption, or a full disk, how the search in a folder goes on."""
    try:
        yield
    except (KeyboardInterrupt, Unwritable) as stop:
        said = f"the runs that ended are kept; the same command with --out {root} goes on"
        raise type(stop)(f"{stop}; {said}" if str(stop) else said) from None


def asked_for(arguments: argparse.Namespace, names: Iterable[str]) -> dict[str, Any]:
    """Return the options of these names that were typed."""
    values = {name: getattr(arguments, name) for name in names}
    return {name: value for name, value in values.items() if value is not None and value is not False}


def share(flag: str, word: str) -> float:
    """Return a share that is written as one, or in %; SpecsimError where it is none."""
    number, percent = word.removesuffix("%"), word.endswith("%")
    try:
        share = float(number) / (100 if percent else 1)
    except ValueError:
        share = float("nan")
    if not 0 < share <= 1:
        raise SpecsimError(f"{flag} {word}: expected a share above 0 up to 1, or a percentage such as 90%")
    return share
