"""How a kernel is compiled: for one signature, before its first call, and kept for later processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import event

from specsim.errors import say
from specsim.kernels.compile_cache import distrust, folder_of_kernels, kept_file, watch

WHOLE, NUMBER, FLAG, WORD = types.int64, types.float64, types.boolean, types.uint64
Kernel = Callable[..., Any]
KEPT = "once for this machine"
NOT_KEPT = "for this process alone: there is no folder to keep them in"


def array_of(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that is only read."""
    return types.Array(kind, dimensions, "C", readonly=True)


def filled(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that the kernel writes to."""
    return types.Array(kind, dimensions, "C")


INTS, FLOATS, BOOLS, WORDS = (array_of(each) for each in (WHOLE, NUMBER, FLAG, WORD))

inner: Callable[[Kernel], Kernel] = numba.njit
"""Decorates a function that compiled ones call."""


_keeps = False  # Whether numba keeps what it compiles.


def compiled(*signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel: it is compiled now, or loaded from the cache if this machine has compiled it before."""

    def made(kernel: Kernel) -> Kernel:
        done: Kernel = numba.njit(signature, cache=_keeps)(kernel)
        return done

    return made


class _Told(event.TimingListener):  # type: ignore[misc]
    """Says on stderr that something is compiled, once; nothing where all comes from the cache."""

    def __init__(self, kept: bool) -> None:
        super().__init__()
        self._line = f"specsim: compiling its kernels, {KEPT if kept else NOT_KEPT} ... "

    def on_start(self, event: Any) -> None:
        """Note the beginning, and tell of the first."""
        if not self.done and not self._depth:
            say(self._line, error=True, end="", flush=True)
        super().on_start(event)


@contextmanager
def compiling() -> Iterator[None]:
    """Let kernels be defined that are kept in a file of specsim's own; show what compiling takes in one line."""
    global _keeps
    with ExitStack() as stack:
        folder, file = _own_folder(stack), kept_file()
        file = file if folder is not None else None
        there = stack.enter_context(folder_of_kernels(file, folder or Path()))
        listener = _Told(file is not None)
        before, numba.config.CACHE_DIR = numba.config.CACHE_DIR, str(folder or "")
        _keeps = file is not None
        try:
            with event.install_listener("numba:compile", listener):
                yield
        finally:
            _keeps, numba.config.CACHE_DIR = False, before
    if listener.done:
        say(f"{listener.duration:.1f} s", error=True)
    if listener.done and there:
        # numba knows something by which what is kept is another's: a mixture of both is not to be kept.
        distrust()
    if file is not None:
        watch(file)


def _own_folder(stack: ExitStack) -> Path | None:
    """Return a folder of this process alone while the stack is open, None where none can be made."""
    try:
        return Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="specsim-", ignore_cleanup_errors=True)))
    except OSError:
        return None
