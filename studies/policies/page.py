"""The tables and the figure of docs/policies.md."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.text import table
from specsim.figures.style import colours, legend_above, new_figure, style
from specsim.metrics.load import TARGET_HALF_WIDTH
from specsim.metrics.seeds import ATTAINED
from studies.policies.running import AS_TUNED, CHANGED_AT, SEEDS, STUDY
from studies.report import half_width

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

PAGE, FIGURE = Path("docs/policies.md"), Path("docs/figures/policies.png")
TEMPLATE = Path(__file__).with_name("page.md")
NONE, AGAINST = "vllm", str(STUDY["against"])
"""The policies without drafts and with a fixed number of them."""
LEVEL_POINTS = 1.0
"""Policies that the best is ahead of by no more, or by no more than half the interval, are level with it."""
TRACES = {name: about for name, about in STUDY["places"].items() if "tuned" in about}
TUNED = [load for about in TRACES.values() for load in about["loads"] if load not in about["tuned"]]
"""Loads that are tuned for themselves."""
CLOSED = next(name for name in STUDY["places"] if name not in TRACES)
POLICIES, MIXES = STUDY["policies"], list(STUDY["mixes"])


def page(rows: DataFrame) -> str:
    """Return the page: the prose of `TEMPLATE` with its tables filled from rows of the study."""
    tuned = rows[rows["change"] == AS_TUNED]
    open_loop, closed = tuned[tuned["place"] != CLOSED], tuned[tuned["place"] == CLOSED]
    clients = [str(load) for load in STUDY["places"][CLOSED]["loads"]]
    points = [f"{place} {load}" for place, about in TRACES.items() for load in about["loads"]]
    winners = "trace", "objectives", "load", "none", "fixed", "best", "gain over fixed", "level with it"
    return TEMPLATE.read_text(encoding="utf-8").format(
        gains=table(("policy", "drafts", *points), _gains(open_loop)),
        mixes=table(("policy", *(f"{place}, {mix}" for place in TRACES for mix in MIXES)), _by_mix(open_loop)),
        winners=table(winners, _winners(open_loop, list(POLICIES))),
        changes=table(("policy", "trace", *STUDY["changes"]), _changes(rows)),
        batches=table(("policy", *clients), _speed_ups(closed, clients)),
        tuned=table(("policy", "load", *(f"{trace}, {mix}" for trace in TRACES for mix in MIXES)), _chosen(open_loop)),
        level=f"{LEVEL_POINTS:g}",
        known=_known(open_loop),
        seeds=SEEDS,
    )


def _known(rows: DataFrame) -> str:
    """Return how well the points' own attainments are known, from half the 95% intervals over their seeds."""
    half = 100 * rows.groupby(["place", "mix", "load", "policy"])[ATTAINED].agg(half_width)
    wide = half[half > 100 * TARGET_HALF_WIDTH]
    if wide.empty:
        return f"The widest is ± {half.max():.1f}."
    return (
        f"**Too short**: of {len(half)} points {len(wide)} are known to less than ± 5, the worst to ± {wide.max():.1f}."
    )


def _gains(rows: DataFrame) -> Iterable[Sequence[object]]:
    """Yield a row a policy: what it attains beyond the fixed number, the mean of all mixes, at each trace and load."""
    for policy, about in POLICIES.items():
        cells = []
        for place, load in ((place, load) for place, where in TRACES.items() for load in where["loads"]):
            here = rows[(rows["place"] == place) & (rows["load"] == load)]
            if policy == AGAINST:
                mine = here[here["policy"] == policy]
                cells.append(f"{100 * mine.groupby('mix')[ATTAINED].mean().mean():.0f}%")
            else:
                ahead = [_ahead(each, policy, AGAINST) for _, each in here.groupby("mix")]
                cells.append(_gain(*np.mean(ahead, axis=0)))
        yield f"`{policy}`", about["says"], *cells


def _by_mix(rows: DataFrame) -> Iterable[Sequence[object]]:
    """Yield a row a policy: what it attains above saturation beyond the fixed number, by trace and mix."""
    for policy in (each for each in POLICIES if each != AGAINST):
        points = ((place, mix, list(about["loads"])[-1]) for place, about in TRACES.items() for mix in MIXES)
        by_point = rows.groupby(["place", "mix", "load"])
        yield f"`{policy}`", *(_gain(*_ahead(by_point.get_group(each), policy, AGAINST)) for each in points)


def _winners(rows: DataFrame, policies: Sequence[str]) -> Iterable[Sequence[object]]:
    """Yield a row a point: what none and the fixed number attain, and the best policy with those level with it."""
    for (place, mix, load), here in rows.groupby(["place", "mix", "load"], sort=False):
        means = 100 * here.groupby("policy")[ATTAINED].mean()
        best = str(means.idxmax())
        level = [each for each in policies if each not in (best, NONE) and _is_level(*_ahead(here, best, each))]
        gain = _gain(*_ahead(here, best, AGAINST)) if best != AGAINST else "-"
        named = ", ".join(f"`{each}`" for each in level) or "-"
        yield place, mix, load, f"{means[NONE]:.1f}", f"{means[AGAINST]:.1f}", f"`{best}`", gain, named


def _changes(rows: DataFrame) -> Iterable[Sequence[object]]:
    """Yield a row a policy and trace: what each change of its knowledge brings, in points."""
    for policy, place in ((policy, place) for policy in STUDY["changed"] for place in TRACES):
        here = rows[(rows["place"] == place) & (rows["mix"] == MIXES[0]) & (rows["load"] == CHANGED_AT)]
        mine = here[here["policy"] == policy].assign(policy=lambda each: each["change"])
        has = STUDY["changed"][policy]
        cells = (_gain(*_ahead(mine, change, AS_TUNED)) if change in has else "" for change in STUDY["changes"])
        yield f"`{policy}`", place, *cells


def _speed_ups(rows: DataFrame, clients: Sequence[str]) -> Iterable[Sequence[object]]:
    """Yield a row a policy: output tokens a second over those without drafts, by clients."""
    measure = STUDY["places"][CLOSED]["measure"]
    for policy in (each for each in STUDY["places"][CLOSED]["policies"] if each != NONE):
        cells = []
        for load in clients:
            by_seed = rows[rows["load"] == load].set_index(["policy", "seed"])[measure]
            ratio = (by_seed[policy] / by_seed[NONE]).dropna()
            cells.append(f"{ratio.mean():.2f} ± {half_width(ratio):.2f}")
        yield f"`{policy}`", *cells


def _chosen(rows: DataFrame) -> Iterable[Sequence[object]]:
    """Yield a row a policy and load that is tuned: the settings that its trials chose, by trace and mix."""
    first = rows.groupby(["policy", "load", "place", "mix"])["tuned"].first()
    for policy, load in product(POLICIES, dict.fromkeys(TUNED)):
        chosen = [first[policy, load, place, mix].strip("{}").replace('"', "") for place in TRACES for mix in MIXES]
        yield f"`{policy}`", load, *chosen


def _ahead(rows: DataFrame, policy: Any, against: Any) -> tuple[float, float]:
    """Return how many points a policy attains beyond another, and half of the 95% interval, paired by common seeds."""
    one, other = (100 * rows[rows["policy"] == each].set_index("seed")[ATTAINED] for each in (policy, against))
    by_seed = (one - other).dropna()
    return by_seed.mean(), half_width(by_seed)


def _is_level(ahead: float, half: float) -> bool:
    return ahead <= max(half, LEVEL_POINTS)


def _gain(ahead: float, half: float) -> str:
    return f"{ahead:+.1f} ± {half:.1f}"


def figure(rows: DataFrame) -> Figure:
    """Return attainment over load, a panel a trace and mix, a line a policy."""
    tuned = rows[rows["change"] == AS_TUNED]
    with style():
        drawn = new_figure(4.6)
        panels = drawn.subplots(len(TRACES), len(MIXES), sharey=True, squeeze=False)
        colour = colours(POLICIES)
        for across, (place, about) in zip(panels, TRACES.items(), strict=True):
            for axes, mix in zip(across, MIXES, strict=True):
                here = tuned[(tuned["place"] == place) & (tuned["mix"] == mix)]
                for number, policy in enumerate(POLICIES):
                    mine = 100 * here[here["policy"] == policy].groupby("rps")[ATTAINED].mean()
                    look = {"color": colour[policy], "linestyle": "--" if number >= len(set(colour.values())) else "-"}
                    axes.plot(mine.index, mine, label=policy, marker="o", markersize=2.5, **look)
                axes.set(xticks=[each["rps"] for each in about["loads"].values()], ylim=(0, 100))
            across[0].set_ylabel(f"{place}\nSLO attainment, %")
        for axes, mix in zip(panels[0], MIXES, strict=True):
            axes.set_title(mix)
        for axes in panels[-1]:
            axes.set_xlabel("requests/s")
        legend_above(drawn, panels[0][0])
    return drawn
