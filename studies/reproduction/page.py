"""The page of all comparisons, `page.md` filled in: figures, claims and lines with the largest gaps first."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from math import isnan
from pathlib import Path

from pandas import DataFrame, concat

from profiler.text import table
from specsim.metrics.sweep_table import SEED
from studies.reproduction.comparison import ComparedFigure, file_of, means
from studies.reproduction.figure import GAPS
from studies.reproduction.findings import CLOSE, DIRECTION, NOT, REPRODUCED, UNDECIDED, Finding, findings
from studies.reproduction.running import PLACE
from studies.reproduction.verdict import APART, NEAR, LineGap, figure_gap, line_gaps

FIGURES = "figures"
"""The folder beside the page that holds the PNG of each figure."""
NO_VERDICT = "none (quick)"
WORST_FIRST = (NOT, UNDECIDED, DIRECTION, REPRODUCED)
TEMPLATE = Path(__file__).with_suffix(".md")
QUICK = "\nThis is the quick form: few points, one seed, short runs, perhaps on toy traces. It supports no verdict.\n"
NOTHING = "None."


def page(found: Sequence[ComparedFigure], folder: Path, rows: Path) -> str:
    """Return the page of these figures, whose files lie in `rows`, as it stands in `folder`: links are relative."""
    told = [(each, one) for each in found for one in findings(each, each.chosen)]
    return TEMPLATE.read_text(encoding="utf-8").format(
        near=NEAR,
        apart=APART,
        close=CLOSE,
        quick=QUICK if any(each.quick for each in found) else "",
        counts=_table(_count_rows(told)),
        figures=_table(_figure_rows(found)),
        claims=_table(_claim_rows(told)),
        lines=_table(_line_rows(found)),
        ranges=_table(_range_rows(found)),
        points="".join(_sections(found, folder, rows)),
    )


def _count_rows(found: Sequence[tuple[ComparedFigure, Finding]]) -> Iterator[Sequence[str]]:
    """Yield for each paper how many of its claims have each verdict."""
    verdicts = tuple(reversed(WORST_FIRST))
    yield ("paper", "claims", *verdicts)
    told = [(each.experiment.paper, one.verdict) for each, one in found if not each.quick]
    for paper in dict.fromkeys(paper for paper, _ in told):
        counts = [told.count((paper, verdict)) for verdict in verdicts]
        yield (paper, str(sum(counts)), *map(str, counts))


def _figure_rows(found: Sequence[ComparedFigure]) -> Iterator[Sequence[str]]:
    yield ("figure", "claim", "points", "mean absolute gap", "order kept", "verdict")
    told = [(each, figure_gap(each, each.chosen)) for each in found if each.figure.values]
    for each, gap in sorted(told, key=lambda pair: -pair[1].mean_gap):
        turned = f", {gap.turned} turned" if gap.turned else ""
        yield (
            _link(each),
            each.figure.claim,
            str(means(each.figure, each.chosen)["theirs"].count()),
            f"{gap.mean_gap:.1f} {GAPS[each.figure.gap]}",
            f"{gap.kept} of {gap.pairs} pairs{turned}",
            NO_VERDICT if each.quick else gap.verdict,
        )


def _claim_rows(found: Sequence[tuple[ComparedFigure, Finding]]) -> Iterator[Sequence[str]]:
    yield ("figure", "the paper says", "paper", "ours", "gap", "verdict", "why")
    for each, one in sorted(found, key=lambda pair: _rank(pair[1])):
        paper = "-" if one.claim.paper is None else f"{one.claim.paper:g}"
        gap = "-" if isnan(one.gap) else f"{one.gap:+.1f} %"
        verdict = NO_VERDICT if each.quick else one.verdict
        yield (_link(each), one.claim.says, paper, one.said, gap, verdict, one.claim.why)


def _rank(one: Finding) -> tuple[int, float]:
    return WORST_FIRST.index(one.verdict), 0.0 if isnan(one.gap) else -abs(one.gap)


def _link(each: ComparedFigure) -> str:
    title = each.figure.title.rpartition(":")[0] or each.figure.title
    return f"[{title}](#{each.figure.name})"


def _line_rows(found: Sequence[ComparedFigure]) -> Iterator[Sequence[str]]:
    yield ("figure", "line", "paper", "ours", "gap", "mean absolute gap", "largest gap", "verdict", "why")
    told = [(each, line) for each in found for line in line_gaps(each)]
    for each, gap in sorted(told, key=lambda pair: -pair[1].mean_gap):
        unit = GAPS[each.figure.gap]
        yield (
            _link(each),
            gap.line,
            f"{_value(gap.theirs)} {each.figure.unit}",
            f"{_ours(gap)} {each.figure.unit}",
            f"{gap.gap:+.1f} {unit}",
            f"{gap.mean_gap:.1f} {unit}",
            f"{gap.worst_gap:+.1f} at {gap.worst_point}",
            NO_VERDICT if each.quick else gap.verdict,
            each.figure.why.get(gap.line, ""),
        )


def _ours(gap: LineGap) -> str:
    return _value(gap.ours) if isnan(gap.half_width) else f"{_value(gap.ours)} ± {_value(gap.half_width)}"


def _range_rows(found: Sequence[ComparedFigure]) -> Iterator[Sequence[str]]:
    """Yield what each variant of a range comes to, after what was chosen at the same points and of the same seed."""
    yield ("figure", "choice", "variant", "lines", "mean absolute gap", "claims")
    for each in found:
        for one in each.experiment.ranges:
            lines = [name for name, line in each.figure.lines.items() if line.system in one.systems]
            if not lines or each.quick:
                continue
            base = each.chosen[each.chosen[PLACE].isin(one.points) & (each.chosen[SEED] == each.experiment.seeds[0])]
            for variant in ("", *one.variants):
                varied = each.rows[(each.rows["variant"] == variant) & each.rows["line"].isin(lines)]
                rows = concat([base[~base["line"].isin(lines)], varied]) if variant else base
                told = variant or "as chosen"
                yield (_link(each), one.choice, told, ", ".join(lines), _gap(each, rows, lines), _claims(each, rows))


def _gap(each: ComparedFigure, rows: DataFrame, lines: Sequence[str]) -> str:
    """Return the mean absolute gap of some lines, a dash where nothing was published of them."""
    if not each.figure.values:
        return "-"
    gap = means(each.figure, rows[rows["line"].isin(lines)])["gap"].abs().mean()
    return "-" if isnan(gap) else f"{gap:.1f} {GAPS[each.figure.gap]}"


def _claims(each: ComparedFigure, rows: DataFrame) -> str:
    return "; ".join(one.said for one in findings(each, rows)) or "-"


def _sections(found: Sequence[ComparedFigure], folder: Path, rows: Path) -> Iterator[str]:
    """Yield a section for each experiment, and below it one for each of its figures."""
    for file in dict.fromkeys(each.experiment.file for each in found):
        those = [each for each in found if each.experiment.file == file]
        yield _head(those[0], folder)
        yield from (_section(each, folder, rows) for each in those)


def _head(one: ComparedFigure, folder: Path) -> str:
    """Return what an experiment's figures have in common."""
    experiment = one.experiment
    seeds = "1 seed" if one.quick else f"{len(experiment.seeds)} seeds"
    link = _to(experiment.file, folder)
    lines = [
        f"\n### Experiment {experiment.name}\n",
        f"[{experiment.file.name}]({link}), {seeds}; `python -m studies.reproduction {experiment.name}` runs it. "
        f"Source of the published values: {experiment.source}.\n",
        *(f"- {choice}" for choice in experiment.choices),
    ]
    return "\n".join(lines) + "\n"


def _section(each: ComparedFigure, folder: Path, rows: Path) -> str:
    figure, experiment = each.figure, each.experiment
    files = (
        f"[{experiment.file.name}]({_to(experiment.file, folder)}), "
        f"[{figure.name}.parquet]({_to(file_of(rows, figure), folder)})"
    )
    lines = [
        f"\n#### {figure.name}\n",
        f"{figure.title}. Claim: {figure.claim}. Behind it: {files}.\n",
        *(f"- {note}" for note in figure.notes),
        *([""] if figure.notes else []),
        f"Each cell holds {'theirs / ours' if figure.values else 'ours'} in {figure.unit}, "
        f"by {experiment.axis.label[:1].lower()}{experiment.axis.label[1:]}.\n",
    ]
    return "\n".join([*lines, _table(_point_rows(each))]) + "\n"


def _to(file: Path, folder: Path) -> str:
    """Return the link to a file from a page in `folder`."""
    return Path(os.path.relpath(file, folder)).as_posix()


def _point_rows(each: ComparedFigure) -> Iterator[Sequence[str]]:
    told = means(each.figure, each.chosen)
    yield ("line", *told.sort_values("x")["point"].drop_duplicates())
    for line, rows in told.groupby("line", sort=False):
        both = rows.sort_values("x")[["theirs", "ours"]].itertuples(index=False)
        cells = (f"{_value(theirs)} / {_value(ours)}" if each.figure.values else _value(ours) for theirs, ours in both)
        yield (str(line), *cells)


def _table(rows: Iterable[Sequence[str]]) -> str:
    head, *rest = rows
    return table(head, rest) if rest else NOTHING


def _value(value: float) -> str:
    """Return three or four digits, as the papers' figures can be read; a dash where nothing was published."""
    if isnan(value):
        return "-"
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.1f}" if abs(value) >= 10 else f"{value:.2f}"
