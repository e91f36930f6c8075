"""A run of which a sweep keeps the summary alone: its metrics, settings and sources, without its requests."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from pandas import DataFrame

BY_THE_CLOCK = ("started", "loop_wall_s", "iterations_per_wall_s", "host")
"""Keys of a provenance that differ between two runs with the same settings; no summary holds them."""


@dataclass(frozen=True, slots=True)
class Summary:
    """A run without its requests; what is asked for is read from its text at each access.

    Attributes
    ----------
    key : identity of its settings. name : as its folder would be called.
    config_json, metrics_json, provenance_json : the files of a run folder as JSON in one line.
    """

    key: str
    name: str
    config_json: str = field(repr=False)
    metrics_json: str = field(repr=False)
    provenance_json: str = field(repr=False)

    @property
    def metrics(self) -> dict[str, Any]:
        """The content of ``metrics.json``."""
        return dict(json.loads(self.metrics_json))

    @property
    def config(self) -> dict[str, Any]:
        """The resolved configuration."""
        return dict(json.loads(self.config_json))

    @property
    def provenance(self) -> dict[str, Any]:
        """Versions, and what the run was made from; no wall-clock figures."""
        return dict(json.loads(self.provenance_json))

    @property
    def notes(self) -> tuple[str, ...]:
        """The run's notes."""
        return tuple(self.provenance["notes"])

    @property
    def folder(self) -> None:
        """None: the run has no folder of its own."""
        return

    @property
    def slo_attainment(self) -> float:
        """Share of all arrived requests that met their objectives."""
        return float(self.metrics["specsim"]["slo_attainment"])

    @property
    def requests(self) -> DataFrame:
        """Not kept.

        Raises
        ------
        SpecsimError
            Always.
        """
        self._refuse("requests")

    @property
    def passes(self) -> DataFrame | None:
        """Not kept.

        Raises
        ------
        SpecsimError
            Always.
        """
        self._refuse("passes")

    def plot(self, folder: str | Path | None = None) -> list[Path]:
        """Refuse: a run's figures show its requests.

        Raises
        ------
        SpecsimError
            Always.
        """
        self._refuse("requests to draw")

    def _refuse(self, what: str) -> NoReturn:
        raise SpecsimError(f"{self.name}: the sweep kept no {what}; expected a run of these settings, or keep='runs'")

    def _repr_html_(self) -> str:
        from specsim.results.html import run_html

        return run_html(self.config, self.metrics, self.notes)


def compact(content: Any) -> str:
    """Return plain values as JSON in one line; mappings keep their order.

    Raises
    ------
    SpecsimError
        When a number is not finite.
    """
    try:
        return json.dumps(content, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    except ValueError as error:
        raise SpecsimError(f"a summary cannot hold NaN or infinity; expected null: {error}") from error
