"""The inner loops of a run that numba compiles: trees grown and selected, and the arithmetic of a ledger."""

from __future__ import annotations

import atexit
import gc
from functools import cache
from types import ModuleType


@cache
def compiled_loops() -> ModuleType:
    """Return the compiled loops. A process imports numba at the first call, and a machine compiles once.

    Numba makes half a million objects. No garbage is collected while it loads, nor of them when the process ends.
    """
    collects = gc.isenabled()
    gc.disable()
    try:
        from specsim.kernels import loops
    finally:
        if collects:
            gc.enable()
    atexit.register(gc.freeze)
    return loops
