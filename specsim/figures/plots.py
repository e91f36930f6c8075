"""Figures of one run, of several runs and of a sweep, saved as files; import it late, since it loads matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from specsim.errors import SpecsimError, nearest
from specsim.figures.latency import latency_cdf
from specsim.figures.paper import paper_figure
from specsim.figures.passes import has_timeline, timeline
from specsim.figures.slo import slo_by_class
from specsim.figures.style import run_said, style
from specsim.figures.sweep import ATTAINMENT, GOODPUT, curves
from specsim.files.checked_mapping import expanded
from specsim.files.staging import in_one_step, readable_name
from specsim.metrics.sweep_table import (
    ALL,
    CLASS,
    SEED,
    SweepAxes,
    line_named,
    rows_with,
    values_of,
    without_failures,
    word,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.figures.any_run import AnyRun

# Without dates and version strings the same run gives the same bytes.
METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
    "svg": {"Date": None, "Creator": None},
}


def run_figures(run: AnyRun) -> dict[str, Figure]:
    """Return the figures of one run by name; ``timeline`` only if its passes were recorded, and the target had any."""
    figures = {
        "slo_by_class": slo_by_class(run.metrics),
        "latency_cdf": latency_cdf(run.metrics, run.requests),
    }
    passes = run.passes
    if passes is not None and has_timeline(passes):
        figures["timeline"] = timeline(passes, run_said(run.metrics["specsim"]))
    return figures


def plot_paper(table: DataFrame, axes: SweepAxes, folder: str | Path, against: Any = None) -> list[Path]:
    """Save a sweep's figures for print into ``folder``, with ``captions.txt``, and return the files.

    There is one PDF of attainment and goodput, and with several seeds and lines one of the paired differences from
    `against`, by default the line that attains most; a set for each combination of values of `axes.rest`.

    Raises
    ------
    SpecsimError
        As in `specsim.figures.paper.paper_figure`, when `against` is no line, or a file cannot be written.
    """
    measured = without_failures(table)
    base = best_of(measured, axes.line) if against is None else line_named(measured, axes.line, against)
    drawn = {}
    for values, rows in parts(table, axes.rest):
        behind = f",{readable_name(values)}" if values else ""
        drawn[f"attainment{behind}"] = paper_figure(rows, axes)
        lines = values_of(without_failures(rows), axes.line)
        if base in lines and len(lines) > 1 and rows[SEED].nunique() > 1:
            drawn[f"difference{behind}"] = paper_figure(rows, axes, against=base)
    files = save({stem: each.figure for stem, each in drawn.items()}, folder, ["pdf"])
    captions = expanded(str(folder)) / "captions.txt"
    with in_one_step(captions) as partial:
        partial.write_text("".join(f"{stem}: {each.caption}\n" for stem, each in drawn.items()), encoding="utf-8")
    return [*files, captions]


def sweep_figures(table: DataFrame, axes: SweepAxes, against: Any = None) -> dict[str, Figure]:
    """Return the figures of a sweep by name: a set for each combination of values of `axes.rest`.

    A set has attainment and goodput. With several seeds and lines it also has the differences of both, paired by seed.

    Parameters
    ----------
    table : rows of `Sweep.table`; captions count its failed runs. against : the line from which differences are taken;
        by default the one with the highest mean attainment.

    Raises
    ------
    SpecsimError
        When `against` is no line, or the mean would be over more than seeds.
    """
    measured = without_failures(table)
    paired = len(values_of(measured, axes.line)) > 1 and measured[SEED].nunique() > 1
    base = best_of(measured, axes.line) if against is None else line_named(measured, axes.line, against)
    figures = {}
    for values, rows in parts(table, axes.rest):
        title, stem = ", ".join(f"{key} = {value}" for key, value in values.items()), readable_name(values)
        behind = f",{stem}" if values else ""
        for name, measure in (("attainment", ATTAINMENT), ("goodput", GOODPUT)):
            figures[f"{name}{behind}"] = curves(rows, axes, measure, title=title)
            if paired and {base} < set(without_failures(rows)[axes.line]):
                figures[f"{name}_difference{behind}"] = curves(rows, axes, measure, base, title=title)
    return figures


def parts(table: DataFrame, rest: Sequence[str]) -> Iterator[tuple[dict[str, str], DataFrame]]:
    """Yield, for each combination of values of the settings `rest`, these values as words and the rows with them.

    A combination of failed runs alone is left out.
    """
    if not rest:
        yield {}, table
        return
    for values, rows in table.groupby(list(rest), dropna=False):
        if not without_failures(rows).empty:
            yield dict(zip(rest, map(word, values), strict=True)), rows


def best_of(table: DataFrame, line: str) -> Any:
    """Return the value of `line` with the highest mean attainment."""
    whole = table[table[CLASS] == ALL]
    return max(values_of(table, line), key=lambda value: rows_with(whole, line, value)[ATTAINMENT].mean())


def save(figures: Mapping[str, Figure], folder: str | Path, formats: Iterable[str] = ("png", "pdf")) -> list[Path]:
    """Save figures by name into a folder and return the files.

    Raises
    ------
    SpecsimError
        When `folder` is no path, a format is not png, pdf or svg, or a file cannot be written.
    """
    if not isinstance(folder, str | Path):
        raise SpecsimError(f"folder={folder!r:.60}: expected the path of a folder")
    formats, root, saved = list(formats), expanded(str(folder)), []
    for name in formats:
        if name not in METADATA:
            raise SpecsimError(f"figure format {name!r} is not one of those written{nearest(name, METADATA)}")
    for stem, figure in figures.items():
        for name in formats:
            file = root / f"{stem}.{name}"
            with in_one_step(file) as partial, style():
                figure.savefig(partial, format=name, metadata=METADATA[name])
            saved.append(file)
    return saved
