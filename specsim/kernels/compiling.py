"""How a kernel is compiled: for one signature, before its first call, and kept for later processes."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import event

from specsim.files.kept import user_cache

WHOLE, NUMBER, FLAG, WORD = types.int64, types.float64, types.boolean, types.uint64
Kernel = Callable[..., Any]


def array_of(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that is only read."""
    return types.Array(kind, dimensions, "C", readonly=True)


def filled(kind: Any, dimensions: int = 1) -> Any:
    """Return the type of a contiguous array that the kernel writes to."""
    return types.Array(kind, dimensions, "C")


INTS, FLOATS, BOOLS, WORDS = (array_of(each) for each in (WHOLE, NUMBER, FLAG, WORD))

inner: Callable[[Kernel], Kernel] = numba.njit
"""Decorates a function that compiled ones call."""


def compiled(*signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel: it is compiled now, or loaded from the cache if this machine has compiled it before."""

    def made(kernel: Kernel) -> Kernel:
        with _kept_in(_folder()) as cached:
            done: Kernel = numba.njit(signature, cache=cached)(kernel)
            return done

    return made


def elementwise(layout: str, *signature: Any) -> Callable[[Kernel], Kernel]:
    """Decorate a kernel of single numbers, and of whole arrays where the layout says so; it broadcasts as numpy does.

    The last argument is what it answers. See `numba.guvectorize`.
    """

    def made(kernel: Kernel) -> Kernel:
        with _kept_in(_folder()) as cached:
            done: Kernel = numba.guvectorize([signature], layout, nopython=True, cache=cached)(kernel)
            return done

    return made


def _folder() -> Path | None:
    """Return a folder that can be written to, $NUMBA_CACHE_DIR or the user's cache; None where there is none."""
    named = os.environ.get("NUMBA_CACHE_DIR")
    folder = Path(named) if named else user_cache() / "numba"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError:
        return None
    return folder


@contextmanager
def _kept_in(folder: Path | None) -> Iterator[bool]:
    """Let numba keep what it compiles in this folder, not beside the source; yield whether it keeps anything."""
    before = numba.config.CACHE_DIR
    numba.config.CACHE_DIR = str(folder or before)
    try:
        yield folder is not None
    finally:
        numba.config.CACHE_DIR = before


class _Told(event.TimingListener):  # type: ignore[misc]
    """Says on stderr that something is compiled, once; nothing where all comes from the cache."""

    def on_start(self, event: Any) -> None:
        """Note the beginning, and tell of the first."""
        if not self.done and not self._depth:
            sys.stderr.write("specsim: compiling its kernels, once for this machine ... ")
            sys.stderr.flush()
        super().on_start(event)


@contextmanager
def told() -> Iterator[None]:
    """Show on stderr what compiling takes, in one line."""
    listener = _Told()
    with event.install_listener("numba:compile", listener):
        yield
    if listener.done:
        sys.stderr.write(f"{listener.duration:.1f} s\n")
