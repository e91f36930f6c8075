"""The page of a study, `page.md` filled in from its tables: the worst rows first."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import yaml

from profiler.fidelity.study import MEASURED, REAL, SIMULATED, WALL
from profiler.fidelity.tables import Tables
from profiler.fidelity.verdicts import (
    ATTAINMENT,
    CLEAR,
    KEYS,
    PASS_TARGETS,
    RUN_TARGETS,
    Verdict,
    allowed,
    faults,
    pass_errors,
    run_verdicts,
    shares,
)
from profiler.text import table

if TYPE_CHECKING:
    from pandas import DataFrame

TEMPLATE = Path(__file__).with_name("page.md")
METRICS = {"mean_ttft_ms": "TTFT", "mean_tpot_ms": "TPOT", "mean_e2el_ms": "E2E", ATTAINMENT: "attainment"}
MOST_SIZES, FEWEST_PASSES, WIDTH = 20, 5, 118
SERVED = {
    "mean_tokens_per_verification": "tokens per verification",
    "iterations": "iterations",
    "slo_goodput_tokens_per_s": "goodput, tokens/s",
}
OF_CLASS = "attainment."
"""Beginning of the columns of the classes' attainments."""
ROUNDS = """\
The profile is measured by the path, and by the stopwatch, that serves. Its first round comes before the
  real runs, its others between them. Schedulers decide by the first round, and objectives rest on it, in real runs as
  in simulated ones. The times of simulated passes are of the rounds between the runs, since these see the same machine.
  A profile is fitted to the means of its points, not to their medians: a mean TPOT adds up passes as they
  come, the disturbed ones among them. A lookup's price is measured before the runs. Rounds are kept: runs that are
  added later have none between them."""
GIVEN = "The profile was measured before, elsewhere: it is the one that `profile=` names."
CLOCK = {
    MEASURED: (
        "of a real run moves on by measured seconds; time without work is skipped. With `--clock wall` it\n"
        "  goes with the wall's."
    ),
    WALL: (
        "of a real run goes with the wall's: it waits for arrivals, and the scheduler's and the engine's own time\n"
        "  count. The simulation has of these what its settings say."
    ),
}
YES = ("no", "yes")
Row = Sequence[object]


def page(tables: Tables, *, figures: str, remarks: str = "") -> str:
    """Return the page; `figures` is the folder of its figures, as links have it, and `remarks` what a person adds."""
    about, verdicts = tables.about, run_verdicts(tables.cells)
    return TEMPLATE.read_text(encoding="utf-8").format(
        command=about["command"],
        description=about["description"].rstrip("."),
        machine="Measured on {hardware}, {dtype}, torch {torch}, transformers {transformers}.".format_map(about),
        repeats=about["repeats"],
        pass_target=f"{100 * PASS_TARGETS[about['device']]:g}%",
        summary=_summary(tables, verdicts),
        remarks=f"\n{remarks.strip()}\n" if remarks.strip() else "",
        errors=_table(_errors(verdicts)),
        counts=_table(_counts(verdicts)),
        figures=figures,
        clock=CLOCK[about["study"].get("clock", MEASURED)],
        runs=_table(_runs(verdicts, tables.cells)),
        shares=_table(_shares(tables)),
        rounds=ROUNDS if any(each.get("samples") for each in about["pairs"].values()) else GIVEN,
        latencies=_table(_latencies(tables)),
        service=_table(_service(tables)),
        kinds=_table(_kinds(tables)),
        most=MOST_SIZES,
        least=FEWEST_PASSES,
        sizes=_table(_sizes(tables)),
        clear=f"{CLEAR:g}",
        sitting=_table(_sitting(tables)),
        failed=_failed(tables),
        study=yaml.safe_dump(about["study"], default_flow_style=None, sort_keys=False, width=WIDTH).rstrip(),
    )


def _summary(tables: Tables, verdicts: list[Verdict]) -> str:
    """Return how many verdicts are kept, of runs and of passes, and that runs are not lossless where they are not."""
    target, kinds = PASS_TARGETS[tables.about["device"]], pass_errors(tables.passes, by_size=False)
    kept, bare = sum(each.kept for each in verdicts), sum(each.bare for each in verdicts)
    kinds_kept = sum(each.median <= allowed(target, each.noise) for each in kinds)
    kinds_bare = sum(each.median <= target for each in kinds)
    text = (
        f"**{kept} of {len(verdicts)}** numbers of whole runs are within what is allowed, and **{kinds_kept} of "
        f"{len(kinds)}** kinds of pass.\nWithin the bare targets are {bare} of these numbers, and {kinds_bare} kinds."
    )
    wrong = faults(tables.cells)
    return f"{text}\n\n**A fault:** {wrong} runs clearly differ from what the target says alone." if wrong else text


def _errors(verdicts: list[Verdict]) -> Iterator[Row]:
    yield ("pair", *(f"{name}: median error, within target, within allowed" for name in METRICS.values()))
    for pair in dict.fromkeys(each.pair for each in verdicts):
        cells = []
        for metric in METRICS:
            mine = [each for each in verdicts if (each.pair, each.metric) == (pair, metric)]
            median = f"{100 * np.median([each.error for each in mine]):+.1f}" if mine else "-"
            cells.append(f"{median}, {sum(x.bare for x in mine)} of {len(mine)}, {sum(x.kept for x in mine)}")
        yield (pair, *cells)


def _counts(verdicts: list[Verdict]) -> Iterator[Row]:
    yield ("pair", "load", *(f"{name}: kept, median" for name in METRICS.values()))
    for pair, load in dict.fromkeys((each.pair, each.load) for each in verdicts):
        cells: list[str] = []
        for metric in METRICS:
            those = [each for each in verdicts if (each.pair, each.load, each.metric) == (pair, load, metric)]
            median = float(np.median([abs(each.error) for each in those])) if those else np.nan
            cells.append(f"{sum(each.kept for each in those)} of {len(those)}, {100 * median:.1f}")
        yield (pair, f"{load:g}", *cells)


def _runs(verdicts: list[Verdict], runs: DataFrame) -> Iterator[Row]:
    yield ("pair", "scheduler", "load", *METRICS.values(), "noise", "allowed", "pace", "kept")
    real = runs[runs.side == REAL].dropna(subset="pace")
    pace = {key: f"{some.pace.mean():.2f}" for key, some in real.groupby(KEYS)}
    cells: dict[tuple[str, str, float], list[Verdict]] = {}
    for each in verdicts:
        cells.setdefault(each[:3], []).append(each)
    for (pair, scheduler, load), some in cells.items():
        worst = some[0]
        shown = {each.metric: f"{100 * each.error:+.1f}" for each in some}
        shown[worst.metric] = f"**{shown[worst.metric]}**"
        errors = [shown.get(metric, "-") for metric in METRICS]
        bounds = [_percent(each) for each in (worst.noise, worst.allowed)]
        yield (pair, f"`{scheduler}`", f"{load:g}", *errors, *bounds, pace.get(worst[:3], "-"), YES[worst.kept])


def _percent(share: float, form: str = ".1f") -> str:
    return "-" if np.isnan(share) else f"{100 * share:{form}}"


def _shares(tables: Tables) -> Iterator[Row]:
    yield ("pair", "scheduler", "load", "gap", "seconds", "decisions", "text", "decisions, back")
    for each in shares(tables.cells):
        parts = (each.gap, each.seconds, each.decisions, each.text, each.decisions_back)
        yield (each.pair, f"`{each.scheduler}`", f"{each.load:g}", *(_percent(part, "+.1f") for part in parts))


def _latencies(tables: Tables) -> Iterator[Row]:
    cells = _served_cells(tables)
    schedulers = list(dict.fromkeys(cells.scheduler))
    yield ("pair", "load", *(f"`{each}`" for each in schedulers))
    means = cells.groupby(["pair", "load", "scheduler", "side"]).mean_e2el_ms.mean()
    for pair, load in dict.fromkeys(zip(cells.pair, cells.load, strict=True)):
        sides = [[means.get((pair, load, each, side), np.nan) for side in (REAL, SIMULATED)] for each in schedulers]
        yield (pair, f"{load:g}", *(f"{real:.0f}, {simulated:.0f}" for real, simulated in sides))


def _service(tables: Tables) -> Iterator[Row]:
    cells = _served_cells(tables)
    classes = sorted(name for name in map(str, cells.columns) if name.startswith(OF_CLASS))
    told = SERVED | {name: f"{name.removeprefix(OF_CLASS)}, attainment" for name in classes}
    yield ("pair", "scheduler", "load", *told.values())
    rows = []
    for (pair, scheduler, load), some in cells.groupby(KEYS, sort=False):
        sides = [some[some.side == side] for side in (REAL, SIMULATED)]
        means = {name: [float(each[name].mean()) for each in sides] for name in told}
        apart = max((abs(means[name][0] - means[name][1]) for name in classes), default=0.0)
        shown = (", ".join(f"{mean:.4g}" for mean in each) for each in means.values())
        rows.append((apart, (pair, f"`{scheduler}`", f"{load:g}", *shown)))
    yield from (row for _, row in sorted(rows, key=lambda each: -each[0]))


def _served_cells(tables: Tables) -> DataFrame:
    cells = tables.cells[tables.cells.error.isna()] if "error" in tables.cells else tables.cells
    return cells[cells.side.isin((REAL, SIMULATED))]


def _kinds(tables: Tables) -> Iterator[Row]:
    yield ("pair", "kind", "passes", "median error", "90th percentile", "mean", "noise", "kept")
    target = PASS_TARGETS[tables.about["device"]]
    for each in pass_errors(tables.passes, by_size=False):
        kept = each.median <= allowed(target, each.noise)
        yield (each.pair, each.kind, each.passes, *_percents(each), YES[kept])


def _sizes(tables: Tables) -> Iterator[Row]:
    yield ("pair", "kind", "batched tokens", "passes", "median error", "90th percentile", "mean", "noise")
    enough = [each for each in pass_errors(tables.passes, by_size=True) if each.passes >= FEWEST_PASSES]
    for each in enough[:MOST_SIZES]:
        yield (each.pair, each.kind, each.size, each.passes, *_percents(each))


def _percents(each: Any) -> list[str]:
    return [_percent(each.median), _percent(each.p90), f"{100 * each.mean:+.1f}", _percent(each.noise)]


def _sitting(tables: Tables) -> Iterator[Row]:
    facts_of = ("target", "drafter", "text", "service rate, requests/s", "pace: least, median, most", "held-out, %")
    yield ("pair", *facts_of, "texts that differ", "widest gap")
    for name, facts in tables.about["pairs"].items():
        if "left_out" in facts:
            yield (name, facts["left_out"], *("-",) * 7)
            continue
        mine = tables.cells[tables.cells.pair == name]
        counted = "differing" in mine and mine.differing.notna().any()
        asked = tables.requests[(tables.requests.pair == name) & (tables.requests.side != SIMULATED)]
        differ = f"{mine.differing.sum():.0f} of {len(asked)}" if counted else "-"
        widest = f"{mine.widest_gap.max():.2g}" if counted else "-"
        held_out = _percent(max(facts["held_out"].values(), default=np.nan))
        paces = mine.pace.dropna()
        pace = f"{paces.min():.2f}, {paces.median():.2f}, {paces.max():.2f}" if len(paces) else "-"
        names = facts["target"], facts["drafter"], facts["text"]
        yield (name, *names, f"{facts['rate']:.3g}", pace, held_out, differ, widest)


def _failed(tables: Tables) -> str:
    said = {name: facts["mismatch"] for name, facts in tables.about["pairs"].items() if facts.get("mismatch")}
    text = "".join(f"\n{name}: {line}.\n" for name, line in said.items())
    for heading, column in (("Runs that failed", "error"), ("Runs beyond the profile", "extrapolated")):
        rows = tables.cells.dropna(subset=column) if column in tables.cells else tables.cells[:0]
        names = (f"{row.pair}, {row.scheduler}, load {row.load:g}, {row.side}" for row in rows.itertuples())
        lines = [f"- {name}: {told}" for name, told in zip(names, rows.get(column, ()), strict=True)]
        text += f"\n{heading}:\n\n" + "\n".join(lines) + "\n" if lines else ""
    return text


def _table(rows: Iterable[Row]) -> str:
    head, *body = rows
    return table(head, body)


assert set(RUN_TARGETS) | {ATTAINMENT} == set(METRICS), "each target has a column"
