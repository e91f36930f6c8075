"""One finished run as Python sees it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError
from specsim.results.request_table import RequestTable
from specsim.results.run_title import run_line
from specsim.results.schema import PASS_COLUMNS
from specsim.store.summaries import BY_THE_CLOCK, Summary, compact

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
    from pandas import DataFrame


@dataclass(frozen=True)
class Run:
    """One finished run.

    Attributes
    ----------
    metrics : what `metrics.json` holds (docs/metrics.md). config : the resolved configuration.
    provenance : wall-clock figures, versions, where the trace came from. notes : lines worth reading.
    folder : where it is stored, None when it is only in memory.
    """

    metrics: dict[str, Any]
    config: dict[str, Any]
    provenance: dict[str, Any]
    _table: RequestTable = field(repr=False)
    _pass_rows: Mapping[str, NDArray[np.generic]] | None = field(default=None, repr=False)
    folder: Path | None = None
    notes: tuple[str, ...] = ()

    def __getstate__(self) -> dict[str, Any]:
        """Return what another process is sent: it makes the tables of pandas itself."""
        return {each.name: getattr(self, each.name) for each in fields(self)}

    @cached_property
    def requests(self) -> DataFrame:
        """One row per request: the rows of ``requests.parquet``."""
        return self._table.frame()

    @cached_property
    def passes(self) -> DataFrame | None:
        """One row per forward pass: the rows of ``passes.parquet``; None unless ``passes=True``."""
        if self._pass_rows is None:
            return None
        from pandas import DataFrame

        return DataFrame({name: self._pass_rows[name] for name in PASS_COLUMNS})

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""
        return float(self.metrics["specsim"]["slo_attainment"])

    def summary(self, key: str, name: str) -> Summary:
        """Return the run without its requests; `key` is the identity of its settings."""
        provenance = {each: value for each, value in self.provenance.items() if each not in BY_THE_CLOCK}
        return Summary(key, name, compact(self.config), compact(self.metrics), compact(provenance))

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Draw the run's figures into `folder`, by default ``figures`` in its own, and return their paths.

        Raises
        ------
        SpecsimError
            When the run is only in memory and no folder is given.
        """
        from specsim.figures.plots import plot_run

        where = folder if folder is not None else self.folder and self.folder / "figures"
        if where is None:
            raise SpecsimError("the run is only in memory; expected plot(folder)")
        return plot_run(self, where)

    def __repr__(self) -> str:
        return run_line(self.config, self.metrics, self.folder)

    def _repr_html_(self) -> str:
        from specsim.results.html import run_html

        return run_html(self.config, self.metrics, self.notes)
