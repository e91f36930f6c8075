"""The same three things from Python as from the command line: `simulate`, `load_run`, `sweep`."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from specsim.errors import SpecsimError, first_line
from specsim.files.checked_mapping import expanded, shown
from specsim.results.store import StoredRun, read_run
from specsim.results.sweeps import Sweep, load_sweep
from specsim.runs.execute import execute
from specsim.runs.places import check_place
from specsim.runs.plan import checked, plan
from specsim.runs.run import Run
from specsim.runs.sweep import run_all
from specsim.settings.points import check_key, product

__all__ = ["Run", "Sweep", "load_run", "load_sweep", "simulate", "sweep"]


def simulate(
    scheduler: str = "adaserve",
    trace: str = "azure_code",
    *,
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> Run:
    """Run one simulation; without `out` nothing is written.

    Parameters
    ----------
    scheduler, trace : names as `specsim list` shows them, or paths.
    out : run folder to write.
    progress : draw a progress bar on a terminal or in Jupyter.
    **settings : any other key of a run: ``profile=, slo=, acceptance=, rps=, slo_scale=, requests=, seed=, passes=``;
        a key below a group is written with two underscores: ``scheduler__verify_tokens=256``.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given.

    Examples
    --------
    >>> run = simulate("continuous", "poisson", requests=50, profile="llama8b_1b_h100")
    >>> run.metrics["completed"]
    50
    """
    given = {"scheduler": scheduler, "trace": trace, **settings}
    ((config, experiment),) = checked([{_key(name): _typed(name, value) for name, value in given.items()}])
    folder = None if out is None else expanded(str(out), "out=")
    check_place(config, folder)
    return execute(config, folder, experiment, progress=progress)


def load_run(folder: str | Path) -> StoredRun:
    """Return a stored run; its tables are read when they are asked for.

    Raises
    ------
    SpecsimError
        When the folder is missing, damaged, or of a newer schema.
    """
    return read_run(expanded(str(folder)))


def sweep(
    axes: Mapping[str, Iterable[Any]],
    *,
    out: str | Path | None = None,
    progress: bool = True,
    **settings: Any,
) -> Sweep:
    """Run every combination of `axes`, the last one fastest; every point is checked before the first starts.

    A run that fails is among the sweep's `failures`, with a warning, and the rest runs.

    Parameters
    ----------
    axes : values by key: a list, range, numpy array or pandas Series each. ``__`` in a key stands for a dot.
    out : folder below which each run gets one of its own; runs that are already there are not run again. Without it
        all runs stay in memory, their tables included.
    progress : draw a progress bar on a terminal or in Jupyter. **settings : as of `simulate`.

    Raises
    ------
    SpecsimError
        One line for any mistake in what was given, before anything has run.

    Examples
    --------
    >>> runs = sweep({"scheduler": ["fcfs", "continuous"], "rps": [2, 4]}, trace="poisson", requests=20)
    >>> [run.config["rps"] for run in runs]
    [2, 4, 2, 4]
    """
    chosen = product(_axes(axes, settings))
    planned = plan(chosen, checked(chosen), None if out is None else expanded(str(out), "out="))
    made = run_all(planned, progress=progress)
    if made.failures:
        said = f"{len(made.failures)} of {len(planned)} runs failed, the first: {made.failures[0].error}"
        warnings.warn(said, stacklevel=2)
    return made


def _axes(axes: Mapping[str, Iterable[Any]], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    if not isinstance(axes, Mapping):
        raise SpecsimError(f"sweep: {shown(axes)}: expected values by key, as {{'rps': [2, 4]}}")
    values = {_key(name): [_typed(name, value)] for name, value in settings.items()}
    for name, several in axes.items():
        if isinstance(several, str | bytes | Mapping | set | frozenset) or not _iterable(several):
            raise SpecsimError(f"sweep: {name}={several!r}: expected a list of values")
        if _key(name) in values:
            raise SpecsimError(f"{name}: given twice; expected it among the axes or the settings")
        values[_key(name)] = [_typed(name, value) for value in several]
    return values


def _iterable(value: Any) -> bool:
    """Return whether a value holds several, in order; an array without a dimension holds none."""
    return isinstance(value, Iterable) and getattr(value, "ndim", 1) > 0


def _key(name: object) -> str:
    if not isinstance(name, str):
        raise SpecsimError(f"sweep: {shown(name)}: expected a key, as 'rps'")
    key = name.replace("__", ".")
    check_key(key)
    return key


def _typed(name: str, value: Any) -> str:
    """Return a value as it would be typed; one without a text of its own is refused."""
    try:
        return _word(value)
    except Exception as error:
        what = f"{type(value).__name__} that cannot be written as text"
        raise SpecsimError(f"{name}: a {what} ({first_line(error)}); expected a setting") from None


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool | np.bool_):
        return str(value).lower()
    if isinstance(value, list | tuple | np.ndarray) and np.ndim(value) > 0:
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    return str(value)
