"""The figure of docs/anomalies.md: how mean E2E latency changes with each resource."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from specsim.figures.style import GREY, MARKERS, colours, legend_above, new_figure, style
from tools.anomalies.study import KNOBS, Knob

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame

MEASURE = "mean_e2el_s"
FAINT = "#cccccc"
HEIGHT_IN = 3.2
WIDTHS = (6, 4, 4, 3)
STYLES = ("-", "--")


def drawn(found: DataFrame) -> Figure:
    """Return a panel per resource and a line per scheduler and rate: change from the weakest level, in %.

    Lines that rise surely have their colour and interval, the others are grey.
    """
    here = found[found["measure"] == MEASURE]
    rising = sorted({f"{one['scheduler']}, {one['rps']:g}/s" for one in here[here["worse"]].to_dict("records")})
    colour = colours(rising)
    with style():
        figure = new_figure(HEIGHT_IN)
        panels = figure.subplots(1, len(KNOBS), sharey=True, width_ratios=WIDTHS)
        for axes, knob in zip(panels, KNOBS, strict=True):
            _panel(axes, knob, here[here["knob"] == knob.name], colour)
        panels[0].set_ylabel("Change of mean E2E latency (%)")
        if rising:
            legend_above(figure, panels[0], 4)
        return figure


def _panel(axes: Axes, knob: Knob, here: DataFrame, colour: dict[str, str]) -> None:
    from_weakest = here[here["weak"] == knob.levels[0]]
    for (scheduler, rps), line in from_weakest.groupby(["scheduler", "rps"], sort=False):
        name = f"{scheduler}, {rps:g}/s"
        change = [0.0, *(100 * line["harm"])]
        if not here[(here["scheduler"] == scheduler) & (here["rps"] == rps)]["worse"].any():
            axes.plot(change, color=FAINT, linewidth=0.8, zorder=1)
            continue
        place, reach = list(colour).index(name), [0.0, *(100 * line["half_width"])]
        look: Any = {"color": colour[name], "marker": MARKERS[place % len(MARKERS)], "markersize": 3.5, "capsize": 2}
        axes.errorbar(range(len(change)), change, reach, linestyle=STYLES[place // len(MARKERS)], label=name, **look)
    axes.axhline(0.0, color=GREY, linewidth=0.8, zorder=1)
    axes.set_xticks(range(len(knob.levels)), [level.partition(" ")[0] for level in knob.levels])
    unit = "tokens of cache" if knob.name == "memory" else "agreement" if knob.name == "acceptance" else "speed"
    axes.set(title=knob.says, xlabel=unit)
