"""Which of the twins run: a setting that changes how long a run takes, and nothing else."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from importlib.metadata import version
from importlib.util import find_spec
from typing import Literal

from specsim.errors import SpecsimError
from specsim.kernels.acceptance import numpy_rounds, numpy_walk
from specsim.kernels.arrays import Bools, Floats, Ints
from specsim.kernels.blocks import numpy_hold
from specsim.kernels.growth import Front, Grown, Growth, Pooled, Text, numpy_grow
from specsim.kernels.selection import Bounds, numpy_select
from specsim.rng import Words

Choice = Literal["auto", "numpy", "numba"]
PATIENCE = 1_000
"""Drafts after which ``auto`` takes numba: what is over sooner does not pay for its import, half a second."""


@dataclass(slots=True)
class Kernels:
    """The functions that a run calls; ``auto`` exchanges them on the way."""

    grow: Callable[[Text, Front, Growth], Grown] = numpy_grow
    select: Callable[[Ints, Floats, Floats, Ints, Bounds], Bools] = numpy_select
    walk: Callable[[Ints, int, Ints], Ints] = numpy_walk
    rounds: Callable[[Pooled, Words, int, Ints, Ints, int], Ints] = numpy_rounds
    hold: Callable[[Ints, Ints, Ints, int, int], int] = numpy_hold

    def compile(self) -> None:
        """Take the compiled functions."""
        from specsim.kernels.compiled import numba_grow, numba_hold, numba_rounds, numba_select, numba_walk

        self.grow, self.select, self.hold = numba_grow, numba_select, numba_hold
        self.walk, self.rounds = numba_walk, numba_rounds


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
    if choice == "numba" and find_spec("numba") is None:
        raise SpecsimError("kernel=numba: numba is not installed; expected specsim[fast], or kernel=auto")


def kernels(choice: Choice) -> Kernels:
    """Return the kernels of a run; see `check_kernel`."""
    check_kernel(choice)
    made = Kernels()
    if choice == "numba" or (choice == "auto" and "specsim.kernels.compiled" in sys.modules):
        made.compile()
    elif choice == "auto" and find_spec("numba") is not None:
        made.grow = _patiently(made)
    return made


def _patiently(made: Kernels) -> Callable[[Text, Front, Growth], Grown]:
    """Return a growth that compiles the kernels when it has been called often."""
    left = PATIENCE

    def grow(text: Text, front: Front, growth: Growth) -> Grown:
        nonlocal left
        left -= 1
        if not left:
            made.compile()
        return numpy_grow(text, front, growth)

    return grow


@contextmanager
def using(choice: Choice) -> Iterator[None]:
    """Let a run use these kernels."""
    before = _USED.set(kernels(choice))
    try:
        yield
    finally:
        _USED.reset(before)


def described(choice: Choice) -> dict[str, str | None]:
    """Return what was chosen, and the version of numba where it is installed and may have been used."""
    there = choice != "numpy" and find_spec("numba") is not None
    return {"chosen": choice, "numba": version("numba") if there else None}
