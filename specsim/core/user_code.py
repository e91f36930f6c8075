"""The line of the user's own code, and what an exception says, in one line."""

from __future__ import annotations

import inspect
import os
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from difflib import get_close_matches
from pathlib import Path
from types import FrameType, ModuleType, TracebackType
from typing import Any

import numpy as np

from specsim.core.passes import DraftPass, TargetPass
from specsim.core.protocols import Beginning, Noting, Oracle, Scheduler, UsesOracle, View
from specsim.core.request import Floats
from specsim.errors import (
    SchedulerFault,
    SpecsimError,
    StepTooLong,
    first_line,
    is_plain,
    nearest,
    represented,
    with_article,
)

_OURS = str(Path(__file__).parents[1])
_LIBRARIES = {_OURS, *(sysconfig.get_paths()[name] for name in ("stdlib", "platlib", "purelib"))}
_FOLDERS = tuple(folder + os.sep for folder in _LIBRARIES)
_FIELDS = {"DraftPass": DraftPass._fields, "TargetPass": TargetPass._fields}


def own_line(trace: TracebackType | None, scheduler: object) -> str:
    """Return ``" (file:line)"`` of the innermost frame of the user's own code, else of the innermost frame.

    The user's own is what lies neither in specsim nor in a library, and what shares its package with `scheduler`.
    """
    frames = own_frames(trace, scheduler)
    return f" ({_short(frames[-1][0].f_code.co_filename)}:{frames[-1][1]})" if frames else ""


def own_place(error: BaseException) -> str:
    """Return `own_line` of an error, empty where none of the user's own code ran."""
    return own_line(error.__traceback__, None) if _own(error.__traceback__, None) else ""


def own_frames(trace: TracebackType | None, scheduler: object) -> list[tuple[FrameType, int]]:
    """Return the frames of the user's own code with their lines, the innermost last; that alone where none is own."""
    return _own(trace, scheduler) or list(traceback.walk_tb(trace))[-1:]


def _own(trace: TracebackType | None, scheduler: object) -> list[tuple[FrameType, int]]:
    package = type(scheduler).__module__.partition(".")[0]
    return [
        (frame, line)
        for frame, line in traceback.walk_tb(trace)
        if _is_own(frame.f_code.co_filename, frame.f_globals.get("__name__", ""), package)
    ]


def attribute(error: BaseException, *methods: Any) -> None:
    """Note on an error which answer it comes of: that of the first method that is not specsim's own."""
    error.__dict__.setdefault("part", next((each for each in methods if not _is_ours(each)), None))


@contextmanager
def attributed_to(method: Any) -> Iterator[None]:
    """Note on an error that it comes of this method of a part."""
    try:
        yield
    except Exception as error:
        attribute(error, method)
        raise


def placed(said: str, error: BaseException, method: Any) -> str:
    """Return what is `said` of an error and the line of the user's own code that raised it.

    Where none did, an answer is at fault, of `method` or of the part in `error.part`: it is named by its definition.
    """
    trace, part = error.__traceback__, getattr(error, "part", None)
    of = part or method
    owner = getattr(of, "__self__", None)
    if _own(trace, owner):
        return said + own_line(trace, owner)
    if _is_ours(of):
        return said + (own_line(trace and trace.tb_next, owner) or definition(of))  # The first frame is the caller's.
    name = f"{type(owner).__name__}.{of.__name__}"
    return f"{'' if part is None or name in said else f'{name}: '}{said}{definition(of)}"


def _is_ours(method: Any) -> bool:
    return type(getattr(method, "__self__", None)).__module__.partition(".")[0] == "specsim"


def definition(function: Any) -> str:
    """Return ``" (file:line)"`` of where a function is defined, empty where that is unknown."""
    code = getattr(inspect.unwrap(getattr(function, "__func__", function)), "__code__", None)
    return "" if code is None else f" ({_short(code.co_filename)}:{code.co_firstlineno})"


def own_modules(given: object) -> set[str]:
    """Return the names of the user's modules that hold the class of an object or of its parts, or their functions."""
    found, seen, todo = set[str](), list[object](), [given]
    while todo:
        each = todo.pop()
        if any(each is other for other in seen) or isinstance(each, str | bytes | int | float | ModuleType):
            continue
        seen.append(each)
        if isinstance(each, Mapping | list | tuple | set | frozenset):
            todo += each.values() if isinstance(each, Mapping) else each
        name = getattr(each if hasattr(each, "__qualname__") else type(each), "__module__", None) or "builtins"
        file = getattr(sys.modules.get(name), "__file__", None) or ""
        ours = file.startswith(_OURS + os.sep)
        # Code that was typed has no file, or one such as <stdin>.
        if ours or (name not in sys.builtin_module_names and not file.startswith(_FOLDERS)):
            found |= set() if ours else {name}
            slots = (slot for kind in type(each).__mro__ for slot in getattr(kind, "__slots__", ()))
            todo += [getattr(each, slot) for slot in (*getattr(each, "__dict__", {}), *slots) if hasattr(each, slot)]
    return found


def complaint(error: BaseException) -> str:
    """Return the kind of an error and what it says, with the nearest valid name where an unknown one was used."""
    name, said = type(error).__name__, first_line(error)
    return (said if said == name or isinstance(error, StepTooLong) else f"{name}: {said}") + _nearest_name(error)


def _nearest_name(error: BaseException) -> str:
    if isinstance(error, AttributeError) and error.name is not None and error.obj is not None:
        if isinstance(error.obj, View) and error.name.startswith("output"):
            return "; no scheduler knows the length of an output before its end"
        public = [name for name in dir(error.obj) if not name.startswith("_")]
        ours = type(error.obj).__module__.partition(".")[0] == "specsim"
        return nearest(error.name, public) if ours or get_close_matches(error.name, public, 1, 0.5) else ""
    if isinstance(error, TypeError):
        unknown = re.match(
            r"(DraftPass|TargetPass)\.__new__\(\) got an unexpected keyword argument '(\w+)'", first_line(error)
        )
        if unknown is not None:
            return nearest(unknown[2], _FIELDS[unknown[1]])
    return ""


def _is_own(file: str, module: str, package: str) -> bool:
    if package == module.partition(".")[0] != "specsim":
        return True
    return not file.startswith(("<", *_FOLDERS))


def _short(file: str) -> str:
    here = Path.cwd()
    return str(Path(file).relative_to(here)) if Path(file).is_relative_to(here) else file


def kind_of(value: Any) -> str:
    """Return in words what somebody gave."""
    if isinstance(value, DraftPass | TargetPass) or is_plain(value):
        return with_article(type(value).__name__)
    if value is None:
        return "None"
    if isinstance(value, np.ndarray):
        kind = "an array" if type(value) is np.ndarray else with_article(type(value).__name__)
        return f"{kind} {value.shape} of {value.dtype}"
    return f"{represented(value)} ({type(value).__name__})"


def guarded(
    method: Callable[..., Any], arguments: tuple[Any, ...], who: str, fault: type[SpecsimError], of: Any = None
) -> Any:
    """Return what a method of somebody's object answers; any exception of it becomes a fault of one line.

    `of` is the method that `method` asks, if it asks one.
    """
    try:
        return method(*arguments)
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise fault(f"{who}: {placed(complaint(error), error, of or method)}") from error


def columns(noting: Noting, requests: int) -> dict[str, Floats]:
    """Return what somebody's object notes of each request, (requests,) by name; TypeError where it is no mapping."""
    told: Any = noting.noted(requests)
    if not isinstance(told, Mapping):
        raise TypeError(f"noted returned {kind_of(told)}; expected arrays by name")
    return {name: np.asarray(column, dtype=np.float64) for name, column in told.items()}


def begun(scheduler: Scheduler, oracle: Oracle, requests: int) -> None:
    """Hand a scheduler its oracle, and one with state a request how many requests there are.

    Raises
    ------
    SchedulerFault
        When it fails at that: one line with its name and where.
    """
    who = f"scheduler {type(scheduler).__name__}"
    if isinstance(scheduler, UsesOracle):
        guarded(scheduler.use_oracle, (oracle,), who, SchedulerFault)
    if isinstance(scheduler, Beginning):
        guarded(scheduler.begin, (requests,), who, SchedulerFault)
