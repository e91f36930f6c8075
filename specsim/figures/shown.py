"""Figures, causes of misses and the page of a run or a sweep; the token trees of an iteration."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.config.configured import Configured
from specsim.errors import SpecsimError
from specsim.metrics.any_run import AnyRun

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame


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


@dataclass(frozen=True, slots=True)
class Iteration:
    """One verification: which tokens were drafted, which of them the target read, and which it accepted.

    Attributes
    ----------
    number : of the verification in its run, from 0: its place among the rows of ``kind`` 1 in `passes`.
    start_s : simulated seconds at which the scheduler asked for it, its drafting behind it.
    requests : a row per request of the pass: ``request``, ``slo_class``, ``tpot_slo_s``; ``decoding``, False where a
        prompt is read; ``decoded_tokens`` before this verification, and the seconds spent on them and on this step's
        drafting, ``decoding_s``; ``accepted_tokens`` and ``emitted_tokens`` of this verification.
    nodes : a row per node, roots first: its ``request``, ``parent`` (a row of this table, -1 at roots), ``depth``;
        ``rank`` among the drafter's proposals, from 0, -1 at roots; ``probability`` and ``path_probability`` by the
        drafter; ``verified``; ``for_slo``, whether AdaServe's first selection took it, missing where the scheduler
        has no such selection; ``right``, whether the target chooses this path; ``accepted``.
    stand_in : what is said of a trace that ships in another's place; None: the run's is what it says.
    """

    number: int
    start_s: float
    requests: DataFrame
    nodes: DataFrame
    stand_in: str | None = None

    def draw(self, requests: Iterable[int] | None = None) -> Figure:
        """Return a figure of the token trees of these requests, by default of all that decode.

        Raises
        ------
        SpecsimError
            When a request does not decode in this iteration, or there is none to draw.
        """
        from specsim.figures.passes import token_trees

        return token_trees(self, requests)
