"""The tables of docs/anomalies.md, the worst first."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from profiler.text import table
from studies.monotonicity.compared import GROUP, LEAST
from studies.monotonicity.study import BETTER, KNOBS, Knob

if TYPE_CHECKING:
    from pandas import DataFrame

TEMPLATE = Path(__file__).with_name("page.md")
SHORT = {
    "slo_attainment": "attainment, %",
    "slo_goodput_tokens_per_s": "SLO goodput, tokens/s",
    "mean_e2el_s": "mean E2E, s",
    "p99_ttft_s": "p99 TTFT, s",
}
SAYS = {knob.name: knob.says for knob in KNOBS}
WORST_HEAD = (
    "scheduler",
    "what gets better",
    "requests/s",
    "what gets worse",
    "from",
    "to",
    "change, %",
    "seeds",
    "sure",
)
SCHEDULER_HEAD = ("scheduler", *SAYS.values())
WHY_HEAD = ("level", "E2E, s", "TTFT, s", "TPOT, ms", "drafted", "emitted", "output tokens/s", "preemptions")
WHY = {
    "specinfer": ("memory", "specinfer", 8),
    "vllm_spec": ("memory", "vllm_spec", 8),
    "continuous": ("memory", "continuous", 8),
    "fastserve": ("memory", "fastserve", 6),
}
"""The tables of causes: resource, scheduler and rate."""
MAX_NUM_SEQS = {"limited": "7.9", "unlimited": "9.2", "short": "7.9"}
"""Mean E2E seconds of `vllm_spec` at 8 requests/s, which a test runs again."""
COUNT_HEAD = ("what gets better", "comparisons", "worse", "sure", "worse in single runs, %")
NEVER, NOT_RUN = "-", "no drafts"


def page(rows: DataFrame, found: DataFrame) -> str:
    """Return the page: the prose of `TEMPLATE`, its places filled from the rows of the study and what they compare."""
    worse = found[found["worse"]]
    timed = found[found["knob"] != KNOBS[0].name]
    schedulers = list(dict.fromkeys(rows["scheduler"]))
    return TEMPLATE.read_text(encoding="utf-8").format(
        comparisons=f"{len(found):,}",
        chance=f"{len(found) * 0.025:.0f}",
        schedulers=len(schedulers),
        **MAX_NUM_SEQS,
        worse=len(worse),
        timed=f"{len(timed):,}",
        timed_chance=f"{len(timed) * 0.025:.0f}",
        unsure=int((timed["harm"] >= LEAST).sum()),
        told=int(timed["worse"].sum()),
        timed_sure=int(timed["sure"].sum()) or "none",
        sure=int(found["sure"].sum()),
        seeds=rows["seed"].nunique(),
        runs=f"{len(rows) - sum(_shared(rows, knob) for knob in KNOBS[1:]):,}",
        counts=table(COUNT_HEAD, list(_counts(found))),
        worst=table(WORST_HEAD, list(_worst(worse, rows["seed"].nunique()))),
        by_scheduler=table(SCHEDULER_HEAD, [_row(rows, worse, each) for each in schedulers]),
        **{f"why_{name}": _why(rows, *those) for name, those in WHY.items()},
    )


def _shared(rows: DataFrame, knob: Knob) -> int:
    """Return how many rows of a sweep are runs of the first one."""
    return int(((rows["knob"] == knob.name) & (rows["level"] == knob.levels[knob.base])).sum())


def _counts(found: DataFrame) -> Iterator[list[str]]:
    for name, of in found.groupby("knob", sort=False):
        single = 100 * of["single"].mean()
        yield [SAYS[str(name)], f"{len(of)}", f"{of['worse'].sum()}", f"{of['sure'].sum()}", f"{single:.1f}"]


def _worst(worse: DataFrame, seeds: int) -> Iterator[list[str]]:
    """Yield a row for each scheduler, knob, rate and measure: the step that hurts most, the worst rows first."""
    by_harm = worse.sort_values("harm", ascending=False, kind="stable").drop_duplicates([*GROUP, "measure"])
    for one in by_harm.to_dict("records"):
        scale = 100 if one["measure"] == "slo_attainment" else 1
        sign = 1 if BETTER[one["measure"]] < 0 else -1
        yield [
            f"`{one['scheduler']}`",
            f"{SAYS[one['knob']]}, {one['weak']} to {one['strong']}",
            f"{one['rps']:g}",
            SHORT[one["measure"]],
            _figure(scale * one["before"]),
            _figure(scale * one["after"]),
            f"{100 * sign * one['harm']:+.1f} ± {100 * one['half_width']:.1f}",
            f"{seeds * one['single']:.0f} of {seeds}",
            "yes" if one["sure"] else "",
        ]


def _row(rows: DataFrame, worse: DataFrame, scheduler: str) -> list[str]:
    cells = []
    for knob in KNOBS:
        here = worse[(worse["knob"] == knob.name) & (worse["scheduler"] == scheduler)]
        ran = ((rows["knob"] == knob.name) & (rows["scheduler"] == scheduler)).any()
        names = [name.partition(",")[0] for measure, name in SHORT.items() if measure in set(here["measure"])]
        cells.append(", ".join(names) or (NEVER if ran else NOT_RUN))
    return [f"`{scheduler}`", *cells]


def _why(rows: DataFrame, knob: str, scheduler: str, rps: float) -> str:
    """Return what happens at each level, in the mean over seeds."""
    here = rows[(rows["knob"] == knob) & (rows["scheduler"] == scheduler) & (rows["rps"] == rps)]
    means = here.groupby("level", sort=False).mean(numeric_only=True).to_dict("index")
    cells = [
        [
            f"`{scheduler}`, {rps}/s, {level}",
            f"{one['mean_e2el_s']:.2f}",
            f"{one['mean_ttft_s']:.2f}",
            f"{1e3 * one['mean_tpot_s']:.0f}",
            f"{one['mean_draft_tokens_per_verification']:.1f}",
            f"{one['mean_tokens_per_verification']:.2f}",
            f"{one['output_throughput']:.0f}",
            f"{one['preemptions']:.0f}",
        ]
        for level, one in means.items()
    ]
    return table(WHY_HEAD, cells)


def _figure(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 else f"{value:.3g}"
