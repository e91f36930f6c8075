"""The same three things from Python as from the command line: `simulate`, `load_run`, `sweep`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.execution import Run, check_places, configs, execute, folders, run_all
from specsim.metrics.store import StoredRun, read_run
from specsim.points import check_key, product
from specsim.reading import expanded

if TYPE_CHECKING:
    from pandas import DataFrame

__all__ = ["Run", "load_run", "load_sweep", "simulate", "sweep"]


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
    progress : draw a progress bar on a terminal.
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
    ready = configs([{_key(name): _word(value) for name, value in given.items()}])
    folder = None if out is None else expanded(str(out), "out=")
    check_places(ready, [folder])
    return execute(ready[0], folder, progress=progress)


def load_run(folder: str | Path) -> StoredRun:
    """Return a stored run; its tables are read when they are asked for.

    Raises
    ------
    SpecsimError
        When the folder is missing, damaged, or of a newer schema.
    """
    return read_run(expanded(str(folder)))


def load_sweep(folder: str | Path) -> DataFrame:
    """Return one row per run below `folder` and class: choices, settings, and what the class attained.

    Raises
    ------
    SpecsimError
        When the folder holds no run, or one is damaged.
    """
    from specsim.metrics.sweeps import read_sweep

    return read_sweep(expanded(str(folder)))


def sweep(
    axes: Mapping[str, Sequence[Any]],
    *,
    out: str | Path | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[Run]:
    """Run every combination of `axes`, the last one fastest; every point is checked before the first starts.

    With `out` each run gets a folder of its own below it, and runs that are already there are not run again.

    Examples
    --------
    >>> runs = sweep({"scheduler": ["fcfs", "continuous"], "rps": [2, 4]}, trace="poisson", requests=20)
    >>> [run.config["rps"] for run in runs]
    [2, 4, 2, 4]
    """
    chosen = product(_axes(axes, settings))
    ready = configs(chosen)
    places = [None] * len(chosen) if out is None else folders(expanded(str(out), "out="), chosen)
    return run_all(ready, places, progress=progress)


def _axes(axes: Mapping[str, Sequence[Any]], settings: Mapping[str, Any]) -> dict[str, list[str]]:
    values = {_key(name): [_word(value)] for name, value in settings.items()}
    for name, several in axes.items():
        if isinstance(several, str) or not isinstance(several, Sequence):
            raise SpecsimError(f"sweep: {name}={several!r}: expected a list of values")
        if _key(name) in values:
            raise SpecsimError(f"{name}: given twice; expected it among the axes or the settings")
        values[_key(name)] = [_word(value) for value in several]
    return values


def _key(name: str) -> str:
    key = name.replace("__", ".")
    check_key(key)
    return key


def _word(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list | tuple):
        return f"[{','.join(map(_word, value))}]"
    if isinstance(value, Mapping):
        return "{" + ",".join(f"{key}:{_word(each)}" for key, each in value.items()) + "}"
    return str(value)
