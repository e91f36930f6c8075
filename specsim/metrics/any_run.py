"""A run and a sweep as tables, figures and pages read them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

if TYPE_CHECKING:
    from pandas import DataFrame

    from specsim.config.configured import Configured


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


@runtime_checkable
class AnySweep(Protocol):
    """Runs in a row (`Sweep`)."""

    def __iter__(self) -> Iterator[AnyRun]: ...

    @property
    def table(self) -> DataFrame:
        """One row per run and class."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Lines that a reader of the results should know."""

    def why(self) -> DataFrame:
        """Return what limited each run, a row a run and class."""

    def over_seeds(self, *, against: Any = None, of: str = "scheduler") -> DataFrame:
        """Return the means over seeds, a row a point and class."""
