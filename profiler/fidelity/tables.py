"""The cells of a study as tables: cells, real passes and requests, kept together beside each other."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from profiler.fidelity.cells import CELLS, LISTS, no_passes, stored
from profiler.fidelity.study import REAL, Cell
from profiler.text import write
from specsim.errors import SpecsimError, first_line
from specsim.files.staging import in_one_step

if TYPE_CHECKING:
    from pandas import DataFrame

NAMES = ("cells", "passes", "requests", "samples")
ABOUT = "study.json"
NUMBERS = (
    "mean_ttft_ms",
    "mean_tpot_ms",
    "mean_e2el_ms",
    "slo_attainment",
    "mean_tokens_per_verification",
    "iterations",
    "slo_goodput_tokens_per_s",
    "pace",
    "own.e2el_s",
    "other.e2el_s",
)
"""Columns of cells that a report reads; those of runs that all failed are empty."""


class Tables(NamedTuple):
    """The findings of a study.

    Attributes
    ----------
    about : the study, its machine, and facts of each pair. cells : a row a run, its numbers by name.
    passes : a row a real pass, on the clock of measured seconds. requests : a row a request of a run.
    samples : a row a point of a measured profile.
    """

    about: dict[str, Any]
    cells: DataFrame
    passes: DataFrame
    requests: DataFrame
    samples: DataFrame


def gathered(files: Sequence[Path], root: Path) -> Tables:
    """Return the tables of cells in their files, and of the profiles in the folder of their study."""
    import pandas as pd

    cells, passes, requests = [], [], []
    for told, table in stored(files):
        cell = told["cell"]
        cells.append(cell | told["numbers"])
        requests.append(pd.DataFrame(told["requests"]).assign(**cell))
        if cell["side"] == REAL and "error" not in told["numbers"]:
            passes.append(table.drop_columns(list(LISTS)).to_pandas().assign(**cell))
    about = json.loads((root / ABOUT).read_text(encoding="utf-8"))
    measured = {name: facts["samples"] for name, facts in about["pairs"].items() if facts.get("samples")}
    samples = [pd.read_parquet(root / CELLS / file).assign(pair=name) for name, file in measured.items()]
    empty = no_passes(), pd.DataFrame(columns=Cell._fields), pd.DataFrame(columns=["pair"])
    whole = [
        pd.concat(each, ignore_index=True) if each else none
        for each, none in zip((passes, requests, samples), empty, strict=True)
    ]
    runs = pd.DataFrame(cells)
    return Tables(about, runs.reindex(columns=[*runs.columns, *(each for each in NUMBERS if each not in runs)]), *whole)


def write_tables(tables: Tables, folder: Path) -> list[Path]:
    """Write the tables and the facts of the study, each in one step; return the files."""
    places = [folder / f"{name}.parquet" for name in NAMES]
    for name, place in zip(NAMES, places, strict=True):
        with in_one_step(place) as partial:
            getattr(tables, name).to_parquet(partial, index=False, compression="zstd")
    write(folder / ABOUT, json.dumps(tables.about, indent=1) + "\n")
    return [*places, folder / ABOUT]


def read_tables(folder: Path) -> Tables:
    """Return the tables in a folder.

    Raises
    ------
    SpecsimError
        One line naming a file that is missing or cannot be read.
    """
    import pandas as pd

    try:
        about = json.loads((folder / ABOUT).read_text(encoding="utf-8"))
        return Tables(about, *(pd.read_parquet(folder / f"{name}.parquet") for name in NAMES))
    except (OSError, ValueError) as error:
        raise SpecsimError(f"{folder}: holds no study of specsim fidelity: {first_line(error)}") from None
