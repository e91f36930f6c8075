"""Axes of the four sweeps of the study, and their runs as a table: a row per level, scheduler, rate and seed."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml
from specsim.metrics.sweep_table import ALL, CLASS

if TYPE_CHECKING:
    from pandas import DataFrame

HERE = Path(__file__).parent
ACCEPTANCE = "acceptance.categories.default.agreement"
KEYS = ("scheduler", "rps", "seed")
BETTER = {"slo_attainment": 1, "slo_goodput_tokens_per_s": 1, "mean_e2el_s": -1, "p99_ttft_s": -1}
"""The measures that are compared, with the sign of an improvement."""
TOLD = (
    "mean_tpot_s",
    "mean_ttft_s",
    "mean_tokens_per_verification",
    "mean_draft_tokens_per_verification",
    "output_throughput",
    "preemptions",
)
"""Columns that explain a difference."""
COLUMNS = ("knob", "level", *KEYS, *BETTER, *TOLD)


class Knob(NamedTuple):
    """One resource.

    Attributes
    ----------
    name : of its sweep's file. says : what it is. key : the setting that tells its levels apart.
    levels : their names, from the weakest to the strongest. base : which of them the other sweeps have.
    """

    name: str
    says: str
    key: str
    levels: tuple[str, ...]
    base: int = 0


KNOBS = (
    Knob("memory", "more memory", "profile.memory_bytes", ("24k tokens", "36k tokens", "96k tokens")),
    Knob("gpu", "a faster GPU", "profile.target.overhead_s", ("1x", "1.1x", "1.5x", "2x")),
    Knob("acceptance", "a better draft", ACCEPTANCE, ("0.60", "0.70", "0.84", "0.92"), base=2),
    Knob("drafter", "a faster drafter", "profile.draft.overhead_s", ("1x", "2x", "4x")),
)


def spanned(knob: Knob) -> dict[str, list[Any]]:
    """Return the values of each setting that the sweep of a knob moves, from the weakest level to the strongest."""
    file = read_yaml(HERE / f"{knob.name}.yaml")
    grid = {key: values for key, values in file["grid"].items() if key not in KEYS}
    return {**grid, **file.get("zip", {})}


def measures(table: DataFrame) -> DataFrame:
    """Return the rows of the study, `COLUMNS`, from the table of its sweeps.

    Raises
    ------
    SpecsimError
        When a run of a sweep is missing.
    """
    from pandas import concat

    whole = table[table[CLASS] == ALL]
    rows = [_at(whole, knob, place) for knob in KNOBS for place in range(len(knob.levels))]
    return concat(rows, ignore_index=True)


def _at(table: DataFrame, knob: Knob, place: int) -> DataFrame:
    """Return the runs at a level of a knob, all other knobs at their base."""
    there = table
    for key, value in {**_base(), **{key: values[place] for key, values in spanned(knob).items()}}.items():
        if key in there:
            there = there[there[key] == value]
    grid = read_yaml(HERE / f"{knob.name}.yaml")
    there = there[there["scheduler"].isin(grid["grid"]["scheduler"])]
    expected = len(grid["grid"]["scheduler"]) * len(grid["grid"]["rps"]) * grid["seeds"]
    if len(there) != expected:
        raise SpecsimError(
            f"{knob.name} {knob.levels[place]}: {len(there)} runs of {expected}; "
            f"`specsim sweep studies/monotonicity/{knob.name}.yaml` makes the others"
        )
    ordered = there.assign(knob=knob.name, level=knob.levels[place]).sort_values(list(KEYS))
    return ordered[list(COLUMNS)]


def _base() -> Mapping[str, Any]:
    return {key: values[knob.base] for knob in KNOBS for key, values in spanned(knob).items()}
