"""One measure against one setting, a panel a class, a line a scheduler, intervals over seeds."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.metrics.figure_style import PALETTE, legend_above, new_figure, style
from specsim.metrics.sweeps import over_seeds

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

LABELS = {
    "rps": "Request rate (requests/s)",
    "slo_scale": "SLO scale",
    "slo_attainment": "SLO attainment (%)",
    "slo_goodput_tokens_per_s": "SLO goodput (tokens/s)",
}
DASHES = ("-", "--", "-.", ":")
MARKERS = "osD^vPX<>*hdp8"


def curves(table: DataFrame, x: str, measure: str) -> Figure:
    """Return the means of a measure over seeds against setting `x`, with 95% intervals, for every class and scheduler.

    Intervals end at what the measure can be; schedulers stand side by side where they meet.

    Parameters
    ----------
    table : rows of `specsim.metrics.sweeps.read_sweep`.
    x : "rps" or "slo_scale". measure : "slo_attainment" or "slo_goodput_tokens_per_s".
    """
    scale = 100.0 if measure == "slo_attainment" else 1.0
    means = over_seeds(table, measure, ["slo_class", "scheduler", x])
    classes = [*sorted(set(means["slo_class"]) - {"all"}), "all"]
    schedulers = sorted(set(means["scheduler"]))
    with style():
        figure = new_figure(2.5 + 0.22 * -(-len(schedulers) // 4))
        panels = figure.subplots(1, len(classes), sharey=measure == "slo_attainment", squeeze=False)[0]
        at = sorted(set(means[x]))
        nudge = 0.02 * (at[-1] - at[0]) / max(len(schedulers) - 1, 1)
        for axes, name in zip(panels, classes, strict=True):
            for place, scheduler in enumerate(schedulers):
                line = means[(means["slo_class"] == name) & (means["scheduler"] == scheduler)]
                middle, reach = scale * line["mean"], scale * line["half_width"].fillna(0.0)
                above = (scale - middle).clip(upper=reach) if measure == "slo_attainment" else reach
                axes.errorbar(
                    line[x] + nudge * (place - (len(schedulers) - 1) / 2),
                    middle,
                    yerr=[reach.clip(upper=middle), above],
                    color=PALETTE[place % len(PALETTE)],
                    linestyle=DASHES[place // len(PALETTE) % len(DASHES)],
                    marker=MARKERS[place % len(MARKERS)],
                    markersize=3.5,
                    linewidth=1.0,
                    capsize=2,
                    label=scheduler,
                )
            axes.set_xticks(at)
            axes.set_title(name)
            axes.set_xlabel(LABELS[x])
            axes.set_ylim(bottom=0)
        panels[0].set_ylabel(LABELS[measure])
        legend_above(figure, panels[0], columns=4)
        return figure
