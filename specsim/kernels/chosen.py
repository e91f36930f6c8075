"""Which of the twins run: a setting that changes how long a run takes, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, fields
from functools import cache
from importlib.metadata import version
from importlib.util import find_spec
from threading import Event
from types import ModuleType
from typing import Any, Literal

from specsim.errors import SpecsimError
from specsim.kernels.acceptance import Answer, Texts, numpy_answer, numpy_rounds
from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.blocks import numpy_growth, numpy_hold
from specsim.kernels.books import (
    Books,
    Left,
    Room,
    Taken,
    Tally,
    numpy_commit,
    numpy_deepen,
    numpy_reserve,
    numpy_reserve_draft,
)
from specsim.kernels.growth import Front, Grown, Growth, Pooled, Text, numpy_grow
from specsim.kernels.layers import Layers, numpy_layers
from specsim.kernels.roofline import numpy_pad, numpy_roofline
from specsim.kernels.selection import Bounds, numpy_select
from specsim.kernels.subset import numpy_subset
from specsim.rng import Words

Choice = Literal["auto", "numpy", "numba"]
PATIENCE = 40_000
"""Verifications after which ``auto`` takes numba: its import takes about 0.45 s, and one verification gains 12 us."""
A_DRAFT = 40
"""Verifications that a draft counts as: 1,000 drafts do. A chain gains as much as 9, AdaServe's trees as 20 to 26."""
COMPILING = Event()
"""Set while kernels are compiled or loaded."""


@dataclass(slots=True)
class Kernels:
    """The functions that a run calls; ``auto`` exchanges them on the way."""

    grow: Callable[[Text, Front, Growth], Grown] = numpy_grow
    select: Callable[[Ints, Floats, Floats, Ints, Bounds], Bools] = numpy_select
    layers: Callable[[Grown, int, Ints | None, Ints], Layers] = numpy_layers
    subset: Callable[[Ints, Floats, int, Bools], tuple[Ints, Floats] | None] = numpy_subset
    answer: Callable[[Texts, Ints, Ints, Ints, Ints], Answer] = numpy_answer
    roofline: Callable[[Any, Any, Any, Any, Floats, Floats, Floats], Floats] = numpy_roofline
    pad: Callable[[Any, Ints], Any] = numpy_pad
    rounds: Callable[[Pooled, Words, int, Ints, Ints, int], Ints] = numpy_rounds
    hold: Callable[[Ints, Ints, Ints, int, int], int] = numpy_hold
    growth: Callable[[Ints, Ints, Ints, Ints, int, tuple[int, int]], Ints] = numpy_growth
    reserve: Callable[[Books, Ints, Ints, Ints, Room], Taken] = numpy_reserve
    reserve_draft: Callable[[Books, Ints, Ints, Ints, int, Ints, Room], Taken] = numpy_reserve_draft
    deepen: Callable[[Books, Ints, Ints, Ints, Ints, Room], int] = numpy_deepen
    commit: Callable[[Books, Tally, Ints, Ints, Ints, Answer, bool, bool, float, int], Left] = numpy_commit

    def compile(self) -> None:
        """Take the compiled functions; the time that it takes is no scheduler's."""
        COMPILING.set()
        try:
            compiled = _imported()
        finally:
            COMPILING.clear()
        for each in fields(self):
            setattr(self, each.name, getattr(compiled, f"numba_{each.name}"))


def _imported() -> ModuleType:
    from specsim.kernels import compiled

    return compiled


NUMPY = Kernels()
_USED: ContextVar[Kernels] = ContextVar("kernels")


def chosen() -> Kernels:
    """Return the kernels of the run that goes on, for who is not handed any: a scheduler has its own keys alone."""
    return _USED.get(NUMPY)


def check_kernel(choice: Choice) -> None:
    """Refuse numba where it is not installed.

    Raises
    ------
    SpecsimError
        One line that names the extra.
    """
    if choice == "numba" and _numba() is None:
        raise SpecsimError("kernel=numba: numba is not installed; expected specsim[fast], or kernel=auto")


def kernels(choice: Choice) -> Kernels:
    """Return the kernels of a run; see `check_kernel`."""
    check_kernel(choice)
    made = Kernels()
    if choice == "numba" or (choice == "auto" and "specsim.kernels.compiled" in sys.modules):
        made.compile()
    elif choice == "auto" and _numba() is not None:
        _be_patient(made)
    return made


def _be_patient(made: Kernels) -> None:
    """Let the kernels be compiled when they have been called often."""
    left = PATIENCE

    def hurry(calls: int) -> None:
        nonlocal left
        if left > 0 >= left - calls:
            made.compile()
        left -= calls

    def grow(text: Text, front: Front, growth: Growth) -> Grown:
        hurry(A_DRAFT)
        return numpy_grow(text, front, growth)

    def reserve(books: Books, ids: Ints, chunks: Ints, numbers: Ints, room: Room) -> Taken:
        hurry(1)
        return numpy_reserve(books, ids, chunks, numbers, room)

    made.grow, made.reserve = grow, reserve


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Let a run use these kernels."""
    before = _USED.set(kernels(choice))
    try:
        yield
    finally:
        _USED.reset(before)


def compile_ahead(choices: Iterable[object]) -> None:
    """Let the kernels be kept before several processes begin with them; ``auto`` may never come to need them."""
    if "numba" in choices and _numba() is not None:
        from specsim.kernels.compile_cache import needs_compiling

        if needs_compiling():
            from specsim.kernels import compiled  # noqa: F401


def distrust_kept() -> None:
    """Let kernels be compiled anew: a process that may have used those that are kept has crashed."""
    if _numba() is not None:
        from specsim.kernels.compile_cache import distrust

        distrust()


def described(choice: Choice) -> dict[str, str | None]:
    """Return what was chosen, and the version of numba where it is installed and may have been used."""
    return {"chosen": choice, "numba": None if choice == "numpy" else _numba()}


@cache
def _numba() -> str | None:
    """Return the version of numba; None where it is not installed."""
    return None if find_spec("numba") is None else version("numba")
