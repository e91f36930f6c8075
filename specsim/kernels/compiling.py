"""How a kernel is compiled: for one signature, before its first call, and kept for later processes."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import event

from specsim.errors import say
from specsim.files.staging import Unwritable
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
        folder, file = stack.enter_context(_own_folder()), kept_file()
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


@contextmanager
def _own_folder() -> Iterator[Path | None]:
    """Yield a folder of this process alone, None where none can be made; a full disk is an error of one line."""
    with ExitStack() as stack:
        folder = None
        with suppress(OSError):
            made = tempfile.TemporaryDirectory(prefix="specsim-", ignore_cleanup_errors=True)
            folder = Path(stack.enter_context(made))
        try:
            yield folder
        except OSError as error:
            if folder is None:
                raise
            said = "expected room for compiled kernels, here or in a TMPDIR=FOLDER of your own"
            raise Unwritable(f"{folder}: cannot be written: {error.strerror or error}; {said}") from error
