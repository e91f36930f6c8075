"""Figures of the passes of one run: its timeline, and the draft trees of one iteration."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isnan
from typing import TYPE_CHECKING, Any

import numpy as np
from matplotlib.lines import Line2D
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator

from specsim.errors import SpecsimError
from specsim.figures.style import (
    GREY,
    PALETTE,
    caption_below,
    new_figure,
    style,
)
from specsim.metrics.requests import VERIFY_PASS
from specsim.metrics.tables import sentences

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from pandas import DataFrame, Series

    from specsim.core.request import Floats
    from specsim.figures.shown import Iteration

MOST_SPANS = 240
LINES = {
    "requests": ("Requests\nin the pass", PALETTE[0]),
    "queued": ("Waiting at\nits end", PALETTE[4]),
    "depth": ("Depth of trees\n(tokens)", PALETTE[2]),
    "emitted_per_s": ("Emitted\n(tokens/s)", GREY),
}
"""By column of `spans` the label and the colour of its panel."""


def timeline(passes: DataFrame, said: Sequence[str] = ()) -> Figure:
    """Return five panels over time: requests in a pass, waiting requests, tokens per pass, depth, emitted tokens/s.

    Time is divided into at most `MOST_SPANS` equal spans. Each value is the mean of the target passes that start in a
    span, weighted by their seconds. `said` are sentences of the caption.
    """
    edges, column = spans(passes)
    with style():
        figure = new_figure(6.4)
        panels = figure.subplots(len(LINES) + 1, 1, sharex=True).tolist()
        tokens = panels.pop(2)
        _stack(tokens, edges, column)
        tokens.set_ylabel("Tokens per\ntarget pass")
        tokens.legend(loc="lower left", bbox_to_anchor=(0.0, 0.97), ncols=3, borderaxespad=0.2)
        for axes, (name, (label, colour)) in zip(panels, LINES.items(), strict=True):
            # Unclipped, so that a line at zero, on the frame, is visible: the depth without speculation.
            look: dict[str, Any] = {"color": colour, "linewidth": 1.0, "clip_on": False, "zorder": 3}
            axes.stairs(column[name], edges, baseline=None, **look)
            axes.set_ylabel(label)
            if name == "depth":
                axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
        panels[-1].set_xlabel("Simulated time (s)")
        for axes in (*panels, tokens):
            axes.set_ylim(0, 1.08 * axes.dataLim.y1 or 1)
            axes.set_xlim(edges[0], edges[-1])
        figure.align_ylabels()
        if said:
            caption_below(figure, said)
        return figure


def has_timeline(passes: DataFrame) -> bool:
    """Return whether any pass of the target ran."""
    return bool((passes["kind"] == VERIFY_PASS).any())


AVERAGED = ("requests", "queued", "batched_tokens", "prefill_tokens", "draft_tokens", "depth", "context_tokens")


def spans(passes: DataFrame) -> tuple[Floats, dict[str, Floats]]:
    """Return the edges of a timeline's spans, (S + 1,) seconds, and by column the mean of each, NaN without a pass.

    A span in which no pass starts, while one runs, has the value of the last that started.

    ``emitted_per_s`` is a rate in tokens/s.
    """
    verify = passes[passes["kind"] == VERIFY_PASS]
    start_s = verify["start_s"].to_numpy(dtype=np.float64)
    end_s = float((start_s + verify["seconds"].to_numpy()).max())
    # At least four passes per span on average; with fewer, some spans would have none.
    edges = np.linspace(start_s.min(), end_s, int(np.clip(len(verify) // 4, 1, MOST_SPANS)) + 1)
    emitted = np.histogram(start_s, edges, weights=verify["emitted_tokens"])[0]
    column = {name: _mean_per_span(verify, name, edges) for name in AVERAGED}
    return edges, {**column, "emitted_per_s": emitted / np.diff(edges)}


def _mean_per_span(verify: DataFrame, name: str, edges: Floats) -> Floats:
    """Return the mean of a column per span, NaN for spans in which no pass starts or runs."""
    verify = verify.sort_values("start_s", kind="stable")
    start_s = verify["start_s"].to_numpy(dtype=np.float64)
    seconds = verify["seconds"].to_numpy(dtype=np.float64)
    values = verify[name].to_numpy(dtype=np.float64)
    weight = np.histogram(start_s, edges, weights=seconds)[0]
    total = np.histogram(start_s, edges, weights=seconds * values)[0]
    mean = np.full(len(weight), np.nan)
    np.divide(total, weight, out=mean, where=weight > 0)
    started = np.searchsorted(start_s, edges[:-1], side="right") - 1
    runs_on = np.maximum.accumulate(start_s + seconds)[np.maximum(started, 0)] > edges[:-1]
    return np.where(np.isnan(mean) & runs_on & (started >= 0), values[started], mean)


def _stack(axes: Axes, edges: Floats, column: dict[str, Floats]) -> None:
    prefill, draft = column["prefill_tokens"], column["draft_tokens"]
    # Tokens of neither prompts nor trees are the pending tokens of decoding requests, one each.
    roots = column["batched_tokens"] - prefill - draft
    floor = np.zeros(len(prefill))
    for values, label, colour in (
        (roots, "decode", PALETTE[0]),
        (draft, "draft tokens verified", PALETTE[1]),
        (prefill, "prefill", PALETTE[5]),
    ):
        if not np.nansum(values):
            continue
        top = floor + np.nan_to_num(values)
        axes.stairs(top, edges, baseline=floor, fill=True, color=colour, label=label, linewidth=0)
        floor = top


LANE_IN, HEAD_IN, AROUND_IN = 0.27, 0.3, 0.75
DRAFTED: Any = {"marker": "o", "markersize": 4.5, "markerfacecolor": "white", "markeredgecolor": GREY}
FILLED: Any = {"marker": "o", "markersize": 5.5, "markerfacecolor": PALETTE[1], "markeredgecolor": "black"}
FOR_SLO: Any = {"marker": "s", "markersize": 5.5, "markerfacecolor": PALETTE[0], "markeredgecolor": "black"}
THIN: Any = {"color": GREY, "linewidth": 0.6, "zorder": 1}
ACCEPTED: Any = {"color": "black", "linewidth": 2.0, "zorder": 2}
LABEL: Any = {"textcoords": "offset points", "ha": "left", "fontsize": 6.5, "zorder": 4}
LABEL["path_effects"] = [withStroke(linewidth=1.5, foreground="white")]
LOST: Any = {"color": "black", "linewidth": 1.0, "linestyle": ":", "zorder": 2}


def token_trees(iteration: Iteration, requests: Iterable[int] | None = None) -> Figure:
    """Return a panel for each request: its tree by depth, each token with its path probability.

    Parameters
    ----------
    requests : in the order of the panels; None: all that decode.

    Raises
    ------
    SpecsimError
        When one of them does not decode in this iteration, or none does.
    """
    rows = iteration.requests.set_index("request")
    there = rows.index[rows["decoding"]].tolist()
    shown = there if requests is None else list(requests)
    for each in shown:
        if each not in there:
            raise SpecsimError(f"request {each}: does not decode in iteration {iteration.number}: {there}")
    if not shown:
        raise SpecsimError(f"iteration {iteration.number} has no request that decodes; expected another one")
    nodes = iteration.nodes.assign(for_slo=iteration.nodes["for_slo"].fillna(value=False).astype(bool))
    trees = [_lanes(nodes[nodes["request"] == each]) for each in shown]
    heights = [HEAD_IN + LANE_IN * (1 + tree["lane"].max()) for tree in trees]
    deepest = max(int(tree["depth"].max()) for tree in trees)
    with style():
        figure = new_figure(AROUND_IN + sum(heights))
        panels = figure.subplots(len(shown), 1, sharex=True, squeeze=False, height_ratios=heights).ravel()
        for axes, request, tree in zip(panels, shown, trees, strict=True):
            _draw(axes, tree)
            axes.set_title(_said(request, rows.loc[request], tree), loc="left")
            axes.set_xlim(-0.2, max(deepest, 1) + 0.6)
        panels[-1].set_xticks(range(deepest + 1), ["root", *map(str, range(1, deepest + 1))])
        panels[-1].set_xlabel("Depth in the tree (tokens behind the last one emitted)")
        _key(figure, iteration.nodes)
        if iteration.stand_in is not None:
            caption_below(figure, sentences([iteration.stand_in]))
        return figure


def _lanes(tree: DataFrame) -> DataFrame:
    """Return a tree with the lane of each node: nodes of a depth stand in the order of their parents."""
    lane: dict[int, int] = {}
    for _, layer in tree.groupby("depth"):
        ordered = layer.assign(above=layer["parent"].map(lane).fillna(0)).sort_values(["above", "rank"])
        lane |= {node: place for place, node in enumerate(ordered.index)}
    return tree.assign(lane=tree.index.map(lane))


def _draw(axes: Axes, tree: DataFrame) -> None:
    nodes: list[Any] = list(tree.itertuples())
    for node in (each for each in nodes if each.depth):
        above = tree.loc[node.parent]
        look = ACCEPTED if node.accepted else LOST if node.right and not node.verified else THIN
        axes.plot((above["depth"], node.depth), (above["lane"], node.lane), **look)
    for node in nodes:
        axes.plot(node.depth, node.lane, linestyle="none", markeredgewidth=0.8, zorder=3, **_mark(node))
        if node.depth:
            told = f"{node.path_probability:.2f}" if node.path_probability >= 0.005 else "<0.01"
            axes.annotate(told, (node.depth, node.lane), (-3, 4.5), **LABEL)
    axes.set_ylim(tree["lane"].max() + 0.4, -0.7)
    axes.set_yticks([])
    axes.grid(visible=False)
    axes.tick_params(axis="x", length=0)
    for side in ("left", "bottom"):
        axes.spines[side].set_visible(False)


def _mark(node: Any) -> Any:
    if not node.depth:
        return {"marker": "D", "markersize": 5, "markerfacecolor": "black", "markeredgecolor": "black"}
    if not node.verified:
        return DRAFTED
    return FOR_SLO if node.for_slo else FILLED


def _said(request: int, row: Series[Any], tree: DataFrame) -> str:
    """Return a line about a request: its class, its time per token so far and its objective, and what came out."""
    new, decoded = tree["depth"] > 0, row["decoded_tokens"]
    pace = f"{1000 * row['decoding_s'] / decoded:.1f} ms a token so far" if decoded else "no token so far"
    objective = "no objective" if isnan(row["tpot_slo_s"]) else f"objective {1000 * row['tpot_slo_s']:.1f} ms"
    nodes = f"{new.sum()} drafted, {(new & tree['verified']).sum()} verified"
    counts = f"{nodes}, {row['accepted_tokens']} accepted, {row['emitted_tokens']} emitted"
    return f"Request {request}, {row['slo_class']}; {pace}, {objective}; {counts}"


def _key(figure: Figure, nodes: DataFrame) -> None:
    drafted = nodes["depth"] > 0
    line: Any = {"linestyle": "none", "markeredgewidth": 0.8}
    entries = {"drafted only": (Line2D([], [], **line, **DRAFTED), drafted & ~nodes["verified"])}
    if nodes["for_slo"].notna().any():
        entries["selected for the SLO"] = (Line2D([], [], **line, **FOR_SLO), nodes["for_slo"].fillna(value=False))
        entries["selected for throughput"] = (Line2D([], [], **line, **FILLED), nodes["verified"])
    else:
        entries["verified"] = (Line2D([], [], **line, **FILLED), nodes["verified"])
    entries["accepted"] = (Line2D([], [], **ACCEPTED), nodes["accepted"])
    entries["right, not verified"] = (Line2D([], [], **LOST), nodes["right"] & ~nodes["verified"])
    there = {label: handle for label, (handle, some) in entries.items() if some.any()}
    figure.legend(list(there.values()), list(there), loc="outside upper center", ncols=len(there), handlelength=1.6)
