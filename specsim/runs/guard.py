"""What ends a process without a word, SystemExit and the like, as an error of one line: at the door of all commands."""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator
from types import FrameType
from typing import ParamSpec, TypeVar

from specsim.errors import SpecsimError, passes_through
from specsim.replica.blame import complaint, own_frames, own_line

PARSERS = ("argparse", "contextlib", "profiler", "specsim")
"""Modules that may end a command: a parser has said by then what was wrong, or shown its help."""
OURS = ("profiler", "specsim")
Given = ParamSpec("Given")
Found = TypeVar("Found")


def guarded(work: Callable[Given, Found], *given: Given.args, **named: Given.kwargs) -> Found:
    """Return what work returns.

    Raises
    ------
    SpecsimError
        One line that names the part of somebody's own that raised what is no `Exception` and not Ctrl-C.
    """
    try:
        return work(*given, **named)
    except BaseException as error:
        fault = fault_of(error)
        if fault is error:
            raise
        raise fault from error


def fault_of(error: BaseException) -> BaseException:
    """Return an error of one line in the place of what a part of somebody's own raised to end the process."""
    chain = list(_chain(error))
    frames = [frame for each in chain for frame, _ in traceback.walk_tb(each.__traceback__)]
    if isinstance(error, Exception) or passes_through(error) or all(map(_of_a_parser, frames)) or _ours(chain[-1]):
        return error
    trace = chain[-1].__traceback__
    named = "".join(f"{frame.f_code.co_qualname}: " for frame, _ in own_frames(trace, None)[:1])
    return SpecsimError(f"{named}{complaint(error)}{own_line(trace, None)}")


def _chain(error: BaseException) -> Iterator[BaseException]:
    """Yield an error, then what it comes of: simpy raises a copy of what was raised in a process."""
    each: BaseException | None = error
    while each is not None:
        yield each
        each = each.__cause__


def _ours(error: BaseException) -> bool:
    """Return whether a line of our own raised it: a handler of signals, which runs wherever the process is."""
    innermost = [frame for frame, _ in traceback.walk_tb(error.__traceback__)][-1:]
    return all(str(each.f_globals.get("__name__", "")).partition(".")[0] in OURS for each in innermost)


def _of_a_parser(frame: FrameType) -> bool:
    return str(frame.f_globals.get("__name__", "")).partition(".")[0] in PARSERS
