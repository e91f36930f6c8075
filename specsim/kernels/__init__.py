"""The inner loops of a run that numba compiles: trees grown and selected, and the arithmetic of a ledger."""

from __future__ import annotations

from functools import cache
from types import ModuleType


@cache
def compiled_loops() -> ModuleType:
    """Return the compiled loops. A process imports numba at the first call, and a machine compiles once."""
    from specsim.kernels import loops

    return loops
