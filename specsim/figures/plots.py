"""Figures of runs and sweeps, saved as files, and for print. Import it late, since it loads matplotlib."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from io import BytesIO
from math import isnan
from pathlib import Path
from textwrap import wrap
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.errors import SpecsimError, nearest
from specsim.figures.passes import has_timeline, timeline
from specsim.figures.slo import latency_cdf, slo_by_class
from specsim.figures.style import (
    CHARACTER_IN,
    GREY,
    PALETTE,
    WIDE_IN,
    Marks,
    mark,
    marks_of,
    name_ends,
    new_figure,
    run_said,
    style,
    table_said,
)
from specsim.figures.sweep import (
    ATTAINMENT,
    GOODPUT,
    Panel,
    aside,
    caption_of,
    curves,
    has_pairs,
    is_share,
    look_of,
    named,
    panels_of,
    shift_said,
    shifts_of,
    told,
)
from specsim.files.checked_mapping import expanded
from specsim.files.staging import in_one_step, readable_name
from specsim.metrics.requests import counted
from specsim.metrics.sweep_table import (
    ALL,
    CLASS,
    SEED,
    SweepAxes,
    base_named,
    rows_with,
    values_of,
    without_failures,
    word,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from specsim.metrics.any_run import AnyRun


COLUMN_IN, PANEL_IN, AROUND_IN = 3.35, 1.9, 0.75
"""Width of a column of a paper; height of a panel; width of what stands left of its axes, with the labels' offset."""
MOST_NAMED, LEAST_CHARACTERS, BEFORE_NAME_IN, UPRIGHT = 0.45, 10, 0.12, 0.75
"""The largest share of a panel that names of lines take, the least of a name in a line, the room before it, and the
share of a panel's height that a line of its y axis' label takes."""
WHOLE = {"all classes": "all", "worst class": "worst"}


class PaperFigure(NamedTuple):
    """A figure, and its caption: what its means are over, what its intervals cover, what its marks mean."""

    figure: Figure
    caption: str

    def save(self, file: str | Path) -> Path:
        """Write the figure, as PNG, PDF or SVG by the suffix, and return the file.

        Raises
        ------
        SpecsimError
            When the suffix is another, or the file cannot be written.
        """
        from specsim.figures.plots import save

        file = Path(file)
        (saved,) = save({file.stem: self.figure}, file.parent, [file.suffix.removeprefix(".")])
        return saved

    def savefig(self, *to: Any, **options: Any) -> None:
        """Write the figure as matplotlib's `Figure.savefig` does."""
        with style():
            self.figure.savefig(*to, **options)

    def _repr_png_(self) -> bytes:
        written = BytesIO()
        self.savefig(written, format="png")
        return written.getvalue()


def paper_figure(
    table: DataFrame,
    axes: SweepAxes,
    measures: Sequence[str] = (),
    *,
    against: Any = None,
    of: str = "all",
    names: Mapping[Any, str] | None = None,
    columns: int = 2,
) -> PaperFigure:
    """Return a panel a measure against `axes.x`: means over seeds with 95% intervals, up to six lines with their names.

    With `against` the lines are the differences of the others from it, paired by seed, with their intervals as bands.

    Parameters
    ----------
    table : rows of `Sweep.table` that differ in nothing but the class, the seed, `axes.x` and `axes.line`.
    measures : by default attainment and goodput; with `against` or of the worst class attainment.
    of : a class, ``"all"`` or ``"worst"``.
    names : labels of lines by their value, in the order of colours and markers; where it names all lines, it may name
        those of other figures, too, which then look alike in all.
    columns : 2: 7 inches, panels side by side; 1: 3.35 inches, panels stacked.

    Raises
    ------
    SpecsimError
        When no number differs, there are more lines than can be named, or an argument names nothing that is there.
    """
    measured = without_failures(table)
    lines = values_of(measured, axes.line)
    if axes.x is None:
        raise SpecsimError("figure: the runs differ in no number; expected several rates or scales")
    if len(lines) > len(PALETTE):
        raise SpecsimError(f"figure: {len(lines)} lines of {axes.line}; expected {len(PALETTE)} or fewer: select some")
    if columns not in (1, 2):
        raise SpecsimError(f"figure: columns={columns}: expected 1 or 2")
    measures = measures or ((ATTAINMENT,) if against is not None or of == "worst" else (ATTAINMENT, GOODPUT))
    marks, chosen = marks_of(measured, axes, against), []
    for measure in measures:
        panels = {WHOLE.get(each.title, each.title): each for each in panels_of(measured, axes, measure, against)}
        if of not in panels:
            raise SpecsimError(f"figure: of={of}: {measure} is of no such class{nearest(of, panels)}")
        chosen.append(panels[of])
    down = len(measures) if columns == 1 else 1
    with style():
        figure = new_figure(0.25 + PANEL_IN * down, WIDE_IN if columns == 2 else COLUMN_IN)
        grid = figure.subplots(down, len(measures) // down, squeeze=False, sharex=columns == 1).ravel()
        around_in = AROUND_IN if against is None else AROUND_IN + 0.2
        width_in = figure.get_figwidth() * down / len(measures) - around_in
        labels = _labelled(lines, names or {}, MOST_NAMED * width_in - 2 * BEFORE_NAME_IN)
        for panel_axes, measure, panel in zip(grid, measures, chosen, strict=True):
            beside_in = _draw(panel_axes, panel, axes, (labels, marks, against), measure) / 72
            there = [labels[line] for line in lines if against is None or line != against]
            _make_room(panel_axes, there, width_in, beside_in)
            panel_axes.set_xlabel(named(axes.x) if panel_axes.get_subplotspec().is_last_row() else "")
        of_lines = _name_numbers(figure, axes.line, lines)
    shifted = shift_said(axes, lines if against is None else ())
    means, of_class = [panel.means for panel in chosen], [] if of == "all" else [f"Requests of {of}."]
    said = [*of_class, *of_lines, *caption_of(means, axes, against), *shifted, *table_said(table, axes.line, axes.x)]
    return PaperFigure(figure, " ".join(said))


def _labelled(lines: Sequence[Any], names: Mapping[Any, str], width_in: float) -> dict[Any, str]:
    """Return the label of each line, those with names of one's own first; where all have one, others may stand.

    It is wrapped behind spaces and underscores, to about this width.
    """
    unnamed = {line: word(line) for line in lines if line not in names}
    for line in names if unnamed else ():
        if line not in lines:
            raise SpecsimError(f"figure: names={line}: no such line{nearest(str(line), map(word, lines))}")
    return {line: _wrapped(name, width_in) for line, name in {**names, **unnamed}.items()}


def _wrapped(name: str, width_in: float) -> str:
    pieces = wrap(name.replace("_", "_ "), max(int(width_in / CHARACTER_IN), LEAST_CHARACTERS))
    return "\n".join(pieces).replace("_ ", "_")


def _name_numbers(figure: Figure, key: str, lines: Sequence[Any]) -> list[str]:
    """Write above the figure, and return for its caption, which setting lines are numbers of; nothing of names."""
    if all(isinstance(line, str) for line in lines):
        return []
    figure.suptitle(f"Lines by {named(key)}", fontsize=7.5)
    return [f"Lines differ in {key}."]


def _draw(
    axes: Axes, panel: Panel, sweep: SweepAxes, shown: tuple[Mapping[Any, str], Marks, Any], measure: str
) -> float:
    """Draw the lines of a panel, its limits and names at their ends; return how far beside they stand, in points."""
    assert sweep.x is not None
    (labels, marks, against), means = shown, panel.means
    ends, ink = {}, {}
    looks = {line: look_of(place) for place, line in enumerate(labels)}
    drawn = {
        line: rows for line in labels if not (rows := rows_with(means, sweep.line, line).sort_values(sweep.x)).empty
    }
    shifts = shifts_of([*drawn] if against is None else [])
    for line, rows in drawn.items():
        look = looks[line]
        at, middle, low, high = rows[sweep.x], rows["mean"], rows["mean"] - rows["below"], rows["mean"] + rows["above"]
        if against is None:
            look = {**look, "transform": aside(axes, shifts[line])}
            bars: dict[str, Any] = {"elinewidth": 0.8, "capsize": 1.5, **look, "marker": ""}
            axes.errorbar(at, middle, [rows["below"], rows["above"]], **bars)
        else:
            axes.fill_between(at, low, high, color=look["color"], alpha=0.18, linewidth=0)
            axes.plot(at, middle, **{**look, "marker": ""})
        mark(axes, zip(at, middle, strict=True), [marks[line, x] for x in at], **look)
        ends[labels[line]], ink[labels[line]] = (float(at.iloc[-1]), float(middle.iloc[-1])), look["color"]
    if against is None:
        top = float((means["mean"] + means["above"]).max())
        axes.set_ylim(0, 104 if is_share(measure) else 1.05 * (top if top > 0 and not isnan(top) else 1.0))
        axes.set_ylabel(named(measure))
    else:
        # Beyond the last point stand the names.
        axes.hlines(0, means[sweep.x].min(), means[sweep.x].max(), color=GREY, linewidth=0.8, zorder=1)
        minus = f"minus {labels.get(against, told(sweep.line, against))}".replace("_\n", "_").replace("\n", " ")
        axes.set_ylabel(f"{named(measure, difference=True)}\n{_wrapped(minus, UPRIGHT * PANEL_IN)}")
        axes.set_ylim(axes.get_ylim())
    ticks = values_of(means, sweep.x)
    axes.set_xticks(ticks, [f"{each:g}" for each in ticks])
    beyond = max(shifts.values(), default=0.0)
    name_ends(axes, ends, ink, PANEL_IN, beyond)
    return beyond


def _make_room(axes: Axes, labels: Sequence[str], width_in: float, beside_in: float) -> None:
    """Widen the x axis so that first points and names behind the last stand inside; `width_in` is that of the axes."""
    longest = max(len(each) for label in labels for each in label.split("\n"))
    share = min((longest * CHARACTER_IN + BEFORE_NAME_IN + beside_in) / width_in, MOST_NAMED)
    first, last = axes.get_xticks()[[0, -1]]
    span = (last - first) or 1.0
    axes.set_xlim(first - (0.04 + beside_in / width_in) * span, last + span * share / (1 - share))


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
        "latency_cdf": latency_cdf(run.metrics, counted(run.requests, run.metrics)),
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
        As in `specsim.figures.plots.paper_figure`, when `against` is no line, or a file cannot be written.
    """
    measured = without_failures(table)
    base = best_of(measured, axes.line) if against is None else base_named(measured, axes.line, against)
    drawn = {}
    for values, rows in parts(table, axes.rest):
        behind = f",{readable_name(values)}" if values else ""
        drawn[f"attainment{behind}"] = paper_figure(rows, axes)
        if rows[SEED].nunique() > 1 and has_pairs(rows, axes, base):
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
    base = best_of(measured, axes.line) if against is None else base_named(measured, axes.line, against)
    figures = {}
    for values, rows in parts(table, axes.rest):
        title, stem = ", ".join(f"{key} = {value}" for key, value in values.items()), readable_name(values)
        behind = f",{stem}" if values else ""
        for name, measure in (("attainment", ATTAINMENT), ("goodput", GOODPUT)):
            figures[f"{name}{behind}"] = curves(rows, axes, measure, title=title)
            if paired and has_pairs(rows, axes, base):
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
    """Return the value of `line` with the highest mean attainment; None, for runs without one, only where it is all."""
    whole = table[table[CLASS] == ALL]
    lines = [each for each in values_of(table, line) if each is not None] or [None]
    return max(lines, key=lambda value: rows_with(whole, line, value)[ATTAINMENT].mean())


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
