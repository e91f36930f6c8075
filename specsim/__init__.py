"""specsim: a discrete-event simulator of multi-SLO speculative LLM serving."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from specsim.api import Found, Run, Sweep, Tuned, find, iterations, load_run, load_sweep, simulate, sweep, tune
    from specsim.errors import SpecsimError

__version__: str
__all__ = [
    "Found",
    "Run",
    "SpecsimError",
    "Sweep",
    "Tuned",
    "find",
    "iterations",
    "load_run",
    "load_sweep",
    "simulate",
    "sweep",
    "tune",
]


def __getattr__(name: str) -> Any:
    """Import the public names on first use, so that ``specsim --help`` stays quick."""
    if name == "SpecsimError":
        from specsim.errors import SpecsimError

        return SpecsimError
    if name in __all__:
        from specsim import api

        return getattr(api, name)
    if name == "__version__":
        from importlib.metadata import version

        return version("specsim")
    raise AttributeError(f"module 'specsim' has no attribute {name!r}")
