"""The page of the study, its figures and the list of their points."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.text import table, write
from studies.report import without_images
from studies.speedups import figures
from studies.speedups.measured import STUDY, THROUGHPUT, TPOT
from studies.speedups.running import FITTED
from studies.speedups.scores import (
    Best,
    Stop,
    best_lengths,
    errors_of,
    open_loops,
    ratios,
    side,
    speedups,
    stops,
    values,
)

if TYPE_CHECKING:
    from pandas import DataFrame

PAGE = Path("docs/speedups.md")
POINTS = Path("results/speedups/points.csv")
BY_BATCH, BREAK_EVEN = Path("docs/figures/speedups.png"), Path("docs/figures/break_even.png")
TEMPLATE = Path(__file__).with_name("page.md")
WORST = 8
P90 = 0.12
"""The 90th percentile that errors are to have."""


def written(rows: DataFrame) -> int:
    """Write the page, its figures and the list of points below the working folder; return 0."""
    figures.by_batch(rows).savefig(BY_BATCH, bbox_inches="tight")
    figures.break_even(rows).savefig(BREAK_EVEN, bbox_inches="tight")
    write(PAGE, without_images(page(rows)))
    write(POINTS, points(rows))
    return 0


def points(rows: DataFrame) -> str:
    """Return every row and point of a line as CSV: the line of measured.csv, what is predicted, the commands."""
    panel = figures.panels(rows)[["command", "panel", "metric"]].drop_duplicates(["command", "metric"])
    joined = rows.merge(panel, on=["command", "metric"], how="left")
    joined["panel"] = joined["panel"].str.replace("\n", ", ")
    return str(joined.to_csv(index=False, float_format="%.5g", lineterminator="\n"))


VALUES_HEAD = (
    "values of closed loops", "with: rows", "median / p90 / bias, %", "without: rows", "median / p90 / bias, %",
)  # fmt: skip


def page(rows: DataFrame) -> str:
    """Return the page: the prose of `TEMPLATE` with its figures filled from the study's rows."""
    scored = speedups(rows)
    copies = scored[(scored["version"] == "vLLM 0.10.1") & (scored["load"] > 1)]
    lookups = copies["drafter"] == "n-gram"
    told, large = scored.apply(lambda row: "told" in _found(row), axis=1), scored["error"].abs() > P90
    near = scored["version"].isin(rows.loc[rows["role"] == FITTED, "version"])
    stopped, best = list(stops(rows)), list(best_lengths(rows))
    above, below = (side(scored, faster=faster) for faster in (True, False))
    open_errors = open_loops(rows)
    return TEMPLATE.read_text(encoding="utf-8").format(
        rows=len(scored),
        **dict(zip(("median", "p90", "bias"), str(errors_of(scored)).split(" / "), strict=True)),
        lookups=errors_of(copies[lookups]),
        copies=errors_of(copies[~lookups]),
        large=f"{(told & large).sum()} of the {large.sum()}",
        told=told.sum(),
        others=errors_of(scored[~told]),
        later=errors_of(scored[scored["version"] == "vLLM >=0.16"]),
        near_rows=near.sum(),
        near=errors_of(scored[near]),
        far=errors_of(scored[~near]),
        plain_tpot=errors_of(values(rows, TPOT, "without")),
        above=above,
        below=below,
        always=f"{above.rows} of {above.rows} and 0 of {below.rows}",
        stop_count=f"{sum(each.within for each in stopped)} of {len(stopped)}",
        stop_never=sum(np.isinf(each.measured) and each.within for each in stopped),
        targets=table(("target", "wanted", "reached", ""), _targets(rows)),
        groups=table(
            ("source, engine", "target", "drafts", "rows", "median / p90 / bias, %", "worst, %"), _groups(scored)
        ),
        batches=table(("batch or clients", "rows", "median / p90 / bias, %"), _batches(scored)),
        worst=table(
            ("line", "target, engine", "drafts", "data", "batch", "measured", "predicted", "%", "reason"),
            _worst(scored),
        ),
        stops=table(("target, engine", "drafts", "data", "measured", "predicted"), _stops(stopped)),
        best=table(("target", "drafter", "data: k measured, predicted"), _best(best)),
        ratios=table(("data", "clients", "measured", "predicted", "error, %"), _ratios(ratios(rows))),
        ratio_errors=errors_of(ratios(rows)),
        values=table(VALUES_HEAD, _values(rows)),
        open=table(
            ("requests/s", "metric", "with: measured", "predicted", "%", "without: measured", "predicted", "%"),
            _open(open_errors),
        ),
        left_out=table(("left out because of", "rows"), _left_out(rows)),
        compared=f"{(rows['line'] > 0).sum()}",
        in_all=f"{(rows['line'] > 0).sum() + len(json.loads(rows.attrs['left_out']))}",
        solved=f"{(rows['role'] == 'solved').sum()}",
        fitted=f"{(rows['role'] == FITTED).sum()}",
    )


def _targets(rows: DataFrame) -> Iterable[Sequence[object]]:
    """Yield a row a target of the study: what was wanted, what is reached, and whether."""
    scored = speedups(rows)
    errors = errors_of(scored)
    small = scored[scored["tree"] & scored["nodes"].isin((6, 21))]
    above, below = (side(scored, faster=faster) for faster in (True, False))
    best, stopped = list(best_lengths(rows)), list(stops(rows))
    near = sum(abs(each.measured - each.predicted) <= 1 for each in best)
    tpot = errors_of(values(rows, TPOT, "with"))
    opened = open_loops(rows)
    served = opened[opened["quantity"] == THROUGHPUT][["error_with", "error_without"]].abs().to_numpy().max()
    within = sum(each.within for each in stopped)
    for name, wanted, reached, met in (
        ("median error of the speed-up", "4%", f"{100 * errors.median:.1f}%", errors.median <= 0.04),
        ("its 90th percentile", "12%", f"{100 * errors.p90:.1f}%", errors.p90 <= P90),
        ("its bias", "2%", f"{100 * errors.mean:+.1f}%", abs(errors.mean) <= 0.02),
        ("side of 1, measured above 1.03", "95%", above, above.right >= 0.95 * above.rows),
        ("side of 1, measured below 0.97", "85%", below, below.right >= 0.85 * below.rows),
        ("best number of draft tokens within one", "90%", f"{near} of {len(best)}", near >= 0.9 * len(best)),
        ("load at which it stops paying, within a factor of 1.5", "", f"{within} of {len(stopped)}", None),
        ("TPOT with speculation, median", "8%", f"{100 * tpot.median:.1f}%", tpot.median <= 0.08),
        (
            "trees of 6 and 21 nodes, median",
            "10%",
            f"{100 * small['error'].abs().median():.1f}%",
            small["error"].abs().median() <= 0.1,
        ),
        ("throughput of the open loop, worst rate", "8%", f"{100 * served:.1f}%", served <= 0.08),
    ):
        yield name, wanted, reached, "" if met is None else "yes" if met else "missed"


def _source(name: str) -> str:
    """Return the shortest name of a source that tells it apart."""
    return str(next((short for start, short in STUDY["short"].items() if name.startswith(start)), name))


def _groups(scored: DataFrame) -> Iterable[Sequence[object]]:
    keys = ["source", "version", "target", "tree"]
    grouped = [(names, errors_of(those), those) for names, those in scored.groupby(keys)]
    for (source, version, target, tree), errors, those in sorted(grouped, key=lambda each: -each[1].median):
        worst = those["error"].iloc[int(those["error"].abs().to_numpy().argmax())]
        drafts = ", ".join(sorted({figures.NAMES.get(name, name.split("/")[-1]) for name in those["drafter"]}))
        kind = "trees" if tree else "chains"
        where = f"{_source(str(source))}, {version}"
        yield where, target, f"{kind}: {drafts}", len(those), errors, f"{100 * worst:+.0f}"


def _batches(scored: DataFrame) -> Iterable[Sequence[object]]:
    bounds = [0, 1, 8, 32, 64, 128, 10**6]
    for low, high in pairwise(bounds):
        those = scored[(scored["load"] > low) & (scored["load"] <= high)]
        if len(those):
            name = f"{low + 1}-{high}" if high < bounds[-1] else f"above {low}"
            yield "1" if high == 1 else name, len(those), errors_of(those)


def _worst(scored: DataFrame) -> Iterable[Sequence[object]]:
    for _, row in scored.loc[scored["error"].abs().sort_values(ascending=False).index[:WORST]].iterrows():
        drafter = figures.NAMES.get(row["drafter"], row["drafter"].split("/")[-1])
        where = f"{row['target'].removesuffix('-Instruct')}, {row['version']}"
        measured = f"{row['measured']:.2f}", f"{row['predicted']:.2f}", f"{100 * row['error']:+.0f}"
        yield (
            int(row["line"]),
            where,
            f"{drafter}, {row['shape']}",
            row["dataset"],
            f"{row['load']:g}",
            *measured,
            _reason(row),
        )


def _reason(row: Any) -> str:
    """Return the reason that study.yaml gives of the first group that a row is in."""
    return str(_found(row).get("reason", "not known"))


def _found(row: Any) -> dict[str, Any]:
    """Return the first group of study.yaml's reasons that a row is in; empty if none."""
    for each in STUDY["reasons"]:
        of = {key: value for key, value in each.items() if key not in ("reason", "told")}
        if all(
            row[key] == value if not isinstance(value, str) else str(row[key]).startswith(value)
            for key, value in of.items()
        ):
            return dict(each)
    return {}


def _stops(stopped: Sequence[Stop]) -> Iterable[Sequence[object]]:
    for each in stopped:
        if not each.within:
            said = (
                f"{load:.0f}" if np.isfinite(load) else f"> {each.most:g}" for load in (each.measured, each.predicted)
            )
            series = each.series
            drafter = figures.NAMES.get(str(series["drafter"]), series["drafter"])
            yield f"{series['target']}, {series['version']}", f"{drafter}, {series['shape']}", series["dataset"], *said


def _best(best: Sequence[Best]) -> Iterable[Sequence[object]]:
    """Yield a row a target and drafter: by data set the best k measured, and predicted."""
    those: dict[tuple[object, object], list[str]] = {}
    for each in best:
        key = each.series["target"], str(each.series["drafter"]).split("/")[-1]
        dataset = str(each.series["dataset"])
        before = those.setdefault(key, [])
        named = dataset if not any(said.startswith(dataset) for said in before) else ""
        before.append(f"{named} {each.measured}, {each.predicted}".strip())
    yield from ((*key, "; ".join(said)) for key, said in those.items())


def _ratios(those: DataFrame) -> Iterable[Sequence[object]]:
    for dataset, here in those.groupby("dataset"):
        here = here.sort_values("load")
        cells = (", ".join(f"{value:.2f}" for value in here[column]) for column in ("measured", "predicted"))
        yield dataset, ", ".join(f"{load:g}" for load in here["load"]), *cells, errors_of(here)


def _values(rows: DataFrame) -> Iterable[Sequence[object]]:
    for quantity in (TPOT, THROUGHPUT):
        both = [values(rows, quantity, which) for which in ("with", "without")]
        sources = sorted({*both[0]["source"], *both[1]["source"]})
        for source in sources:
            cells: list[object] = []
            for those in (each[each["source"] == source] for each in both):
                cells += [len(those), errors_of(those) if len(those) else "-"]
            yield f"{quantity}, {_source(str(source))}", *cells


def _open(those: DataFrame) -> Iterable[Sequence[object]]:
    for _, row in those.sort_values(["load", "line"]).iterrows():
        cells: list[object] = []
        for which in ("with", "without"):
            measured, predicted, error = (row[f"{each}_{which}"] for each in ("measured", "predicted", "error"))
            cells += [f"{measured:g}", f"{predicted:.4g}", f"{100 * error:+.0f}"]
        yield f"{row['load']:g}", row["metric"], *cells


def _left_out(rows: DataFrame) -> Iterable[Sequence[object]]:
    counts = Counter(json.loads(rows.attrs["left_out"]).values())
    kinds: dict[str, list[tuple[str, int]]] = {}
    for said, count in counts.most_common():
        kind, name = said.split(": ", 1)
        kinds.setdefault(kind, []).append((name, count))
    for kind, names in kinds.items():
        yield f"{kind}: " + ", ".join(f"{name} ({count})" for name, count in names), sum(count for _, count in names)
