"""What a run's table and figures say where a twin or a toy that ships stands in for its trace."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from textwrap import wrap
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pandas import DataFrame

STAND_IN = "stand_in"
"""The key of ``metrics.json`` and the column of a sweep's table: the words, None where the trace is what it says."""
SHIPPED = {"twin": "the synthetic twin that ships", "toy": "the toy that ships, its first requests"}
"""By origin of a trace."""


def stand_in(name: str, origin: str) -> str | None:
    """Return what is said of a trace that ships in another's place, None of any other."""
    return f"{name}: {SHIPPED[origin]}" if origin in SHIPPED else None


def stand_ins(blocks: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return what is said of runs, each once, from their blocks ``specsim`` or the rows of a `Sweep.table`."""
    return sorted({said for block in blocks if isinstance(said := block.get(STAND_IN), str)})


def stand_ins_of(table: DataFrame) -> list[str]:
    """Return what is said of the runs of a `Sweep.table`, each once."""
    return stand_ins({STAND_IN: each} for each in table[STAND_IN].unique()) if STAND_IN in table else []


def header(said: Iterable[str], width: int) -> list[str]:
    """Return the lines above a table, none where no trace stands in for another."""
    names = [(each, each.rpartition(": ")[0]) for each in said]
    told = [f"{each}; `specsim trace fetch {name}` gets the original" for each, name in names]
    return [line for each in told for line in wrap(each, width, break_on_hyphens=False)]


def sentences(said: Iterable[str]) -> list[str]:
    """Return the sentences of a caption."""
    return [f"{each}." for each in said]
