"""A run, in memory or in its folder, and the methods of both."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from specsim.config.configured import Configured
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from pandas import DataFrame


class AnyRun(Protocol):
    """A run in memory (`Run`), in its folder (`StoredRun`), or without its requests (`Summary`)."""

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""

    @property
    def made_of(self) -> Configured:
        """Its settings and choices, typed, and the resolved configuration."""

    @property
    def provenance(self) -> dict[str, Any]:
        """Wall-clock figures, versions, where the trace came from."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that a reader of the results should know."""

    @property
    def requests(self) -> DataFrame:
        """One row per request."""

    @property
    def passes(self) -> DataFrame | None:
        """One row per forward pass; None if they were not kept."""

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""

    @property
    def folder(self) -> Path | None:
        """Where the run is stored; None: only in memory."""


class WithReport:
    """The page of a run or a sweep."""

    __slots__ = ()

    def report(self: Any, file: str | Path) -> Path:
        """Write one HTML page (docs/report.md) and return the file.

        Raises
        ------
        SpecsimError
            When the extra `report` is not installed, the runs are damaged, or the file cannot be written.
        """
        try:
            from specsim.figures.report import write_report
        except ModuleNotFoundError as error:
            raise SpecsimError(
                f'report: {error.name} is not installed; expected pip install "specsim[report]"'
            ) from None

        return write_report(self, Path(file))


class Shown(WithReport):
    """The common part of a run in memory (`Run`), in its folder (`StoredRun`), or without its requests (`Summary`)."""

    __slots__ = ()

    @property
    def made_of(self: Any) -> Configured:
        """Its settings and choices, typed, and the resolved configuration."""
        return Configured({}, self.config)

    @property
    def slo_attainment(self: AnyRun) -> float:
        """Share of all arrived requests that met their objectives."""
        return float(self.metrics["specsim"]["slo_attainment"])

    def plot(self: AnyRun, folder: str | Path | None = None) -> list[Path]:
        """Draw the run's figures into `folder`, by default ``figures`` in its own, and return their paths.

        Raises
        ------
        SpecsimError
            When the run has no folder and none is given, or keeps no requests.
        """
        from specsim.figures.plots import run_figures, save

        where = folder if folder is not None else self.folder and self.folder / "figures"
        if where is None:
            raise SpecsimError("the run has no folder of its own; expected plot(folder)")
        return save(run_figures(self), where)

    def why(self: AnyRun) -> DataFrame:
        """Return what limited the run, a row a class: see `specsim.metrics.why.why`."""
        from specsim.metrics.why import why

        return why(self)

    def causes(self: AnyRun) -> DataFrame:
        """Return the requests that the run counts, and each one's cause: see `specsim.metrics.why.with_causes`."""
        from specsim.metrics.why import with_causes

        return with_causes(self)

    def _repr_html_(self: AnyRun) -> str:
        from specsim.metrics.tables import run_html

        return run_html(self.made_of, self.metrics, self.notes)
