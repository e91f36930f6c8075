"""The figures of docs/speedups.md: speed-up by batch, and the length at which speculation breaks even."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specsim.figures.style import colours, new_figure, style
from studies.speedups.measured import CLOSED
from studies.speedups.running import LINE
from studies.speedups.scores import costs

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

PANEL = ["experts", "hardware", "version", "target", "dataset", "source"]
NAMES = {"draft model (pairing in the paper, table 5)": "draft model", "EAGLE-3 (zhuyksir DenseHead)": "EAGLE-3"}
ACROSS = 3


def panels(rows: DataFrame) -> DataFrame:
    """Return the points of figure 1 with the `panel` and the `name` of their line: series at two loads or more."""
    closed = rows[(rows["kind"] == CLOSED) & ~rows["ratio"]]
    keys = [*PANEL, "drafter", "shape"]
    loads = closed[closed["role"] != LINE].groupby(keys)["load"].nunique()
    several = loads[loads > 1].reset_index()[keys]
    points = closed.merge(several, on=keys)
    drafters = points["drafter"].map(lambda name: NAMES.get(name, name))
    target = points["target"].str.removesuffix("-Instruct") + points["experts"].map({True: " (experts)", False: ""})
    title = target + ", " + points["hardware"] + "\n" + points["version"] + ", " + points["dataset"]
    title = title.str.replace(r" \((FP8 KV|880 prompts, T=1)\)", "", regex=True)
    return points.assign(name=drafters + ", " + points["shape"], panel=title)


def by_batch(rows: DataFrame) -> Figure:
    """Return the speed-up by batch: predicted lines over measured points, a panel a target, engine and data set."""
    points = panels(rows)
    titles = list(points.sort_values(PANEL)["panel"].drop_duplicates())
    with style():
        down = -(-len(titles) // ACROSS)
        drawn = new_figure(2.3 * down)
        every = drawn.subplots(down, ACROSS, squeeze=False).flat
        for title, axes in zip(titles, every, strict=False):
            _panel(axes, points[points["panel"] == title])
            axes.set_title(title, fontsize=7)
        for axes in list(every):
            axes.set_axis_off()
        drawn.supxlabel("requests in the batch, or clients", fontsize=8)
        drawn.supylabel("speed-up over no speculation: predicted (lines), measured (points)", fontsize=8)
    return drawn


def _panel(axes: Axes, points: DataFrame) -> None:
    """Draw a line a drafter and shape, dashed for trees, and its measured points, hollow where they gave a rate."""
    colour = colours(sorted(points["name"].unique()))
    for name, those in points.sort_values("load").groupby("name"):
        look: dict[str, Any] = {"color": colour[str(name)], "linestyle": "--" if those["tree"].any() else "-"}
        line = those.groupby("load")["predicted"].mean()
        axes.plot(line.index, line, label=name, linewidth=1.2, **look)
        for solved, fill in ((False, colour[str(name)]), (True, "white")):
            known = those[those["measured"].notna() & ((those["role"] == "solved") == solved)]
            axes.plot(
                known["load"], known["measured"], "o", markersize=3.5, color=colour[str(name)], markerfacecolor=fill
            )
    _batches(axes)
    _legend(axes, 5.5)


def _batches(axes: Axes) -> None:
    axes.axhline(1, color="0.5", linewidth=0.7)
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:g}")
    axes.tick_params(labelsize=6.5)


def _legend(axes: Axes, size: float) -> None:
    low, high = axes.get_ylim()
    axes.set_ylim(low, high + 0.09 * len(axes.get_legend_handles_labels()[0]) * (high - low))
    axes.legend(fontsize=size, handlelength=1.6, labelspacing=0.2, borderpad=0.2, loc="upper right", edgecolor="none")


BREAK_EVEN = (
    ("Llama-3.1-8B-Instruct", "EAGLE-3", "vLLM 0.10.1", "GSM8K"),
    ("Llama-3-70B-Instruct", "EAGLE", "vLLM 0.10.1", "GSM8K"),
    ("Qwen3-30B-A3B", "EAGLE-3 (zhuyksir DenseHead)", "SGLang", "MT-Bench"),
    ("gpt-oss-20b", "EAGLE-3", "vLLM >=0.16", "MT-Bench"),
)


def break_even(rows: DataFrame) -> Figure:
    """Return the tokens a verification of a chain of three needs to pay, by batch, of dense targets and of experts."""
    points = costs(rows)
    points = points[points["shape"] == "chain 3"]
    with style():
        drawn = new_figure(2.8, 4.6)
        axes = drawn.subplots()
        colour = colours([target for target, *_ in BREAK_EVEN])
        for target, drafter, version, dataset in BREAK_EVEN:
            here = points[
                (points["target"] == target) & (points["drafter"] == drafter) & (points["version"] == version)
            ]
            here = here[here["dataset"] == dataset].sort_values("load")
            kind = "experts" if here["experts"].any() else "dense"
            look: dict[str, Any] = {"color": colour[target], "linestyle": "--" if kind == "experts" else "-"}
            axes.plot(
                here["load"],
                here["needed"],
                label=f"{target.removesuffix('-Instruct')} ({kind}), {drafter[:7].rstrip()}",
                **look,
            )
            known = here[here["measured"].notna()]
            axes.plot(known["load"], known["needed_measured"], "o", markersize=3.5, color=colour[target])
        _batches(axes)
        axes.set(xlabel="requests in the batch, or clients", ylabel="tokens a verification to break even")
        _legend(axes, 6.5)
    return drawn
