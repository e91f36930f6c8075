"""The page of all comparisons, `page.md` filled in: figures and systems with the largest gaps first, then each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from math import isnan
from pathlib import Path

from specsim.errors import SpecsimError
from specsim.published.comparison import Compared
from specsim.published.experiment import GAPS
from specsim.published.verdict import APART, NEAR, SystemGap, figure_gap, system_gaps
from specsim.results.staging import remove, staging_path

FIGURES = "figures"
"""The folder beside the page that holds the PNG of each figure."""
NO_VERDICT = "none (quick)"
TEMPLATE = Path(__file__).with_suffix(".md")
QUICK = "\nThis is the quick form: few points, one seed, short runs, perhaps on toy traces. It supports no verdict.\n"


def page(found: Sequence[Compared], folder: Path) -> str:
    """Return the page of these figures, as it stands in `folder`: links are relative to it."""
    return TEMPLATE.read_text(encoding="utf-8").format(
        near=NEAR,
        apart=APART,
        quick=QUICK if any(each.quick for each in found) else "",
        figures=_table(_figure_rows(found)),
        systems=_table(_system_rows(found)),
        points="".join(_section(each, folder) for each in found),
    )


def write_page(text: str, file: Path) -> None:
    """Replace the page in one step.

    Raises
    ------
    SpecsimError
        When the file cannot be written.
    """
    partial = staging_path(file.parent)
    try:
        partial.write_text(text, encoding="utf-8")
        partial.replace(file)
    except OSError as error:
        raise SpecsimError(f"{file}: cannot be written: {error.strerror or error}") from None
    finally:
        remove(partial)


def _figure_rows(found: Sequence[Compared]) -> Iterator[Sequence[str]]:
    yield ("figure", "claim", "points", "mean absolute gap", "order kept", "verdict")
    told = [(each, figure_gap(each)) for each in found]
    for each, gap in sorted(told, key=lambda pair: -pair[1].mean_gap):
        yield (
            f"[{each.figure.title}](#{each.figure.name})",
            each.figure.claim,
            str(each.rows["theirs"].count()),
            f"{gap.mean_gap:.1f} {GAPS[each.figure.gap]}",
            f"{gap.kept} of {gap.pairs} pairs",
            NO_VERDICT if each.quick else gap.verdict,
        )


def _system_rows(found: Sequence[Compared]) -> Iterator[Sequence[str]]:
    yield ("figure", "system", "paper", "ours", "gap", "mean absolute gap", "largest gap", "verdict")
    told = [(each, system) for each in found for system in system_gaps(each)]
    for each, gap in sorted(told, key=lambda pair: -pair[1].mean_gap):
        unit = GAPS[each.figure.gap]
        yield (
            f"[{each.figure.title.rpartition(':')[0] or each.figure.title}](#{each.figure.name})",
            gap.system,
            f"{_value(gap.theirs)} {each.figure.unit}",
            f"{_ours(gap)} {each.figure.unit}",
            f"{gap.gap:+.1f} {unit}",
            f"{gap.mean_gap:.1f} {unit}",
            f"{gap.worst_gap:+.1f} at {gap.worst_x:g}",
            NO_VERDICT if each.quick else gap.verdict,
        )


def _ours(gap: SystemGap) -> str:
    return _value(gap.ours) if isnan(gap.half_width) else f"{_value(gap.ours)} ± {_value(gap.half_width)}"


def _section(each: Compared, folder: Path) -> str:
    figure, experiment = each.figure, each.experiment
    seeds = "1 seed" if each.quick else f"{len(experiment.seeds)} seeds"
    link = Path(os.path.relpath(experiment.file, folder)).as_posix()
    lines = [
        f"\n### {figure.name}\n",
        f"{figure.title}. Claim: {figure.claim}.\n",
        f"![Published points and our lines: {figure.label}]({FIGURES}/{figure.name}.png)\n",
        *(f"- {note}" for note in (*experiment.choices, *figure.notes)),
        f"- Experiment: [{experiment.file.name}]({link}), {seeds}; rows: `{figure.name}.parquet`.",
        f"- Source of the published values: {experiment.source}.\n",
        f"Each cell holds theirs / ours in {figure.unit}, by {experiment.axis.label[:1].lower()}"
        f"{experiment.axis.label[1:]}.\n",
    ]
    return "\n".join(lines) + "\n" + _table(_point_rows(each))


def _point_rows(each: Compared) -> Iterator[Sequence[str]]:
    yield ("system", *(f"{x:g}" for x in sorted(each.rows["x"].unique())))
    for system, rows in each.rows.groupby("system", sort=False):
        both = rows.sort_values("x")[["theirs", "ours"]].itertuples(index=False)
        yield (str(system), *(f"{_value(theirs)} / {_value(ours)}" for theirs, ours in both))


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = ("| " + " | ".join(each) + " |" for each in rows)
    return "\n".join([head, "|" + "---|" * (head.count("|") - 1), *rest]) + "\n"


def _value(value: float) -> str:
    """Return three or four digits, as the papers' figures can be read; a dash where nothing was published."""
    if isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
