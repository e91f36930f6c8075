"""Charts of a report, as Vega-Lite: what one shows, and the filters of the page that it obeys."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import TYPE_CHECKING, Any, NamedTuple

import altair as alt
import numpy as np

from specsim.figures.passes import spans
from specsim.figures.slo import curve
from specsim.figures.style import PALETTE
from specsim.figures.sweep import named
from specsim.metrics.seeds import KEPT_UP
from specsim.metrics.why import CAUSES

if TYPE_CHECKING:
    from pandas import DataFrame


COLOURS = (*PALETTE, "#B8A600", "#888888")
"""Of lines and classes; the last two, beside Okabe and Ito's, stand on white and on black."""
PARTS = ("prefill", "draft", "selection", "verify", "idle")
ROW_PIXELS, PANEL_PIXELS, STRIP_PIXELS = 30, 240, 84
_OF_CAUSES = "#888888 #4D4D4D #8C6D31 #D55E00 #0072B2 #CC79A7 #B8A600 #E69F00 #56B4E9 #CC3355 #9467BD #009E73"
CAUSE_COLOURS = dict(zip(CAUSES, _OF_CAUSES.split(), strict=True))
TIME_COLOURS = dict(zip(PARTS, (PALETTE[5], PALETTE[1], PALETTE[4], PALETTE[0], "#888888"), strict=True))
WHEEL = "wheel![event.altKey]"
Spec = dict[str, Any]


class Chart(NamedTuple):
    """A chart with its title, "" for none, and the colours of its legend; the page's filters are legends, too."""

    title: str
    spec: Spec
    legend: Mapping[str, str] = {}


class Filter(NamedTuple):
    """A row of buttons: each value of a column is shown or hidden, or with `single` one value is shown.

    Attributes
    ----------
    column : of the rows that it filters. name : as the page says it. values : by value its colour, "" for none.
    chosen : the value shown first, of a `single` one.
    """

    column: str
    name: str
    values: Mapping[str, str]
    chosen: str | None = None

    @property
    def parameter(self) -> str:
        """The name of the charts' parameter: the value shown, or the list of hidden ones."""
        plain = "".join(each if each.isalnum() else "_" for each in self.column)
        return f"{'hidden' if self.chosen is None else 'shown'}_{plain}"


def spec_of(chart: Any, rows: Sequence[Mapping[str, Any]], filters: Sequence[Filter]) -> Spec:
    """Return a chart of rows as Vega-Lite, with a parameter for each of the filters whose column the rows have."""
    there = [each for each in filters if rows and each.column in rows[0]]
    for each in there:
        at = f"datum[{each.column!r}]"
        shown = f"indexof({each.parameter}, {at}) < 0" if each.chosen is None else f"{at} == {each.parameter}"
        chart = chart.transform_filter(shown)
    spec: Spec = chart.properties(data=alt.InlineData(values=[_plain(row) for row in rows])).to_dict(validate=True)
    values = [{"name": each.parameter, "value": [] if each.chosen is None else each.chosen} for each in there]
    return {**spec, "params": [*values, *spec.get("params", [])]}


def _plain(row: Mapping[str, Any]) -> dict[str, Any]:
    """Return a row that JSON can hold: NaN is missing."""
    plain = {key: each.item() if isinstance(each, np.generic) else each for key, each in row.items()}
    return {key: None if isinstance(each, float) and not isfinite(each) else each for key, each in plain.items()}


def _zoom(*encodings: str) -> Any:
    """Return what moves and scales an axis: a drag, and the wheel with Alt, so that the page scrolls without it."""
    return alt.selection_interval(bind="scales", encodings=list(encodings), zoom=WHEEL)


def _scale(colours: Mapping[str, str]) -> Any:
    return alt.Scale(domain=list(colours), range=list(colours.values()))


def _colour(column: str, colours: Mapping[str, str]) -> Any:
    return alt.Color(f"{column}:N", scale=_scale(colours), legend=None)


def attainment(classes: Mapping[str, Mapping[str, Any]], colours: Mapping[str, str], filters: Sequence[Filter]) -> Spec:
    """Return a bar a class: the share that met all objectives, with ticks for TTFT alone and TPOT alone."""
    rows = [
        {"slo_class": name} | {each: 100 * (part[f"{each}_attainment"] or 0.0) for each in ("slo", "ttft", "tpot")}
        for name, part in classes.items()
    ]
    tips = [
        alt.Tooltip("slo_class:N", title="class"),
        *(alt.Tooltip(f"{each}:Q", title=f"met {said} (%)", format=".1f") for each, said in MET.items()),
    ]
    y = alt.Y("slo_class:N", sort=list(classes), title=None)
    percent = alt.Scale(domain=[0, 100])
    base = alt.Chart(height=ROW_PIXELS * len(classes), width="container").encode(y=y, tooltip=tips)
    bars = base.mark_bar(height=16).encode(
        x=alt.X("slo:Q", title="Attained (%)", scale=percent),
        color=_colour("slo_class", colours),
    )
    ticks = [
        base.mark_point(shape=shape, size=60, filled=False, color="gray").encode(x=alt.X(f"{each}:Q"))
        for each, shape in (("ttft", "circle"), ("tpot", "diamond"))
    ]
    return spec_of(alt.layer(bars, *ticks), rows, filters)


MET = {"slo": "all", "ttft": "TTFT", "tpot": "TPOT, from the first decoding pass,"}


def distribution(
    requests: DataFrame,
    classes: Mapping[str, Mapping[str, Any]],
    slo: str,
    colours: Mapping[str, str],
    filters: Sequence[Filter],
) -> Spec:
    """Return a cumulative curve a class of the latency that `slo` (``slo_ttft_s``, ``slo_tpot_s``) is for."""
    rows: list[dict[str, Any]] = []
    what, tip = slo.removeprefix("slo_").removesuffix("_s").upper(), alt.Tooltip("slo_class:N", title="class")
    for name, part in classes.items():
        if name not in colours:
            continue
        values_ms, shares = curve(requests[requests["slo_class"] == name], slo, most=200)
        points = [*zip(values_ms, shares[1:], strict=True)]
        if part[slo] is not None:
            rows.append({"slo_class": name, "objective": 1000 * part[slo]})
            points += [(1000 * part[slo], shares[-1])] if 1000 * part[slo] > values_ms.max(initial=0.0) else []
        rows += [{"slo_class": name, "ms": value_ms, "share": share} for value_ms, share in points]
    lines = (
        alt.Chart(height=PANEL_PIXELS, width="container")
        .transform_filter("isValid(datum.ms)")
        .mark_line(interpolate="step-after", point=HOVERED)
        .encode(
            x=alt.X("ms:Q", title=f"{what} (ms)", scale=alt.Scale(type="log", nice=False), axis=SPARSE),
            y=alt.Y("share:Q", title="Arrived requests (%)", scale=alt.Scale(domain=[0, 100])),
            color=_colour("slo_class", colours),
            tooltip=[
                tip,
                alt.Tooltip("share:Q", title="% of requests", format=".1f"),
                alt.Tooltip("ms:Q", title=f"{what} at most (ms)", format=".4~g"),
            ],
        )
    )
    rules = (
        alt.Chart()
        .transform_filter("isValid(datum.objective)")
        .mark_rule(strokeDash=[5, 4], size=1.5)
        .encode(
            x=alt.X("objective:Q"),
            color=_colour("slo_class", colours),
            tooltip=[tip, alt.Tooltip("objective:Q", title=f"{what} objective (ms)", format=".4~g")],
        )
    )
    return spec_of(alt.layer(lines.add_params(_zoom("x")), rules), rows, filters)


HOVERED = alt.OverlayMarkDef(opacity=0, size=60)
"""Points that only the pointer finds."""
SPARSE = alt.Axis(tickCount=5, format="~s", labelOverlap=True)
STRIPS = {
    "requests": "Requests in the pass",
    "queued": "Requests waiting",
    "depth": "Draft depth (tokens)",
    "context_tokens": "Cached tokens that the pass reads",
    "emitted_per_s": "Emitted (tokens/s)",
}
TOKENS = {"decode": PALETTE[0], "draft": PALETTE[1], "prefill": PALETTE[5]}


def timeline(passes: DataFrame) -> Spec:
    """Return strips over time: batch, queue, tokens of a pass by kind, depth, cache, emitted tokens/s.

    Values are means over spans of time, weighted by the seconds of the passes.
    """
    edges, column = spans(passes)
    decode = column["batched_tokens"] - column["prefill_tokens"] - column["draft_tokens"]
    columns = {**column, "decode": decode, "draft": column["draft_tokens"], "prefill": column["prefill_tokens"]}
    kept = {name: columns[name] for name in (*STRIPS, *TOKENS)}
    most = len(edges) - 2  # The last span reaches to the last edge.
    rows = [
        {"s": edge, **{name: of[min(place, most)] for name, of in kept.items()}} for place, edge in enumerate(edges)
    ]
    scale = alt.Scale(nice=False)
    below = alt.X("s:Q", title="Simulated time (s)", scale=scale, axis=alt.Axis(labelOverlap=True, tickCount=10))
    bare = alt.X("s:Q", title=None, scale=scale, axis=alt.Axis(labels=False, ticks=False, tickCount=10))
    *above, last = STRIPS.items()
    strips = [*(_strip(name, said, bare) for name, said in above), _strip(*last, below)]
    strips.insert(2, _tokens(bare))
    spec = spec_of(alt.vconcat(*strips, spacing=14).resolve_scale(x="shared", color="independent"), rows, ())
    views = [strip.setdefault("name", f"strip_{place}") for place, strip in enumerate(spec["vconcat"])]
    # One selection in all strips: a drag in one moves them together.
    zoom = {"type": "interval", "encodings": ["x"], "zoom": WHEEL}
    spec["params"].append({"name": "zoom", "select": zoom, "bind": "scales", "views": views})
    return spec


def _strip(name: str, said: str, x: Any) -> Any:
    shown = [alt.Tooltip("s:Q", title="time (s)", format=".4~g"), alt.Tooltip(f"{name}:Q", title=said, format=",.4~g")]
    return (
        alt.Chart(height=STRIP_PIXELS, title=said)
        .mark_line(interpolate="step-after", point=HOVERED, clip=True)
        .encode(x=x, y=alt.Y(f"{name}:Q", title=None, axis=alt.Axis(tickCount=4, format="~s")), tooltip=shown)
    )


def _tokens(x: Any) -> Any:
    return (
        alt.Chart(height=STRIP_PIXELS, title="Tokens of a target pass")
        .transform_fold(list(TOKENS), as_=["kind", "tokens"])
        .mark_area(interpolate="step-after", clip=True)
        .encode(
            x=x,
            y=alt.Y("tokens:Q", title=None, axis=alt.Axis(tickCount=4, format="~s")),
            color=_colour("kind", TOKENS),
            tooltip=["kind:N", alt.Tooltip("tokens:Q", format=",.4~g")],
        )
    )


def stacked(
    rows: Sequence[Mapping[str, Any]],
    parts: Mapping[str, str],
    bars: Sequence[str],
    title: str,
    filters: Sequence[Filter] = (),
) -> Spec:
    """Return a bar for each of `bars`, stacked of `parts` in their colours: misses by cause, or seconds by use.

    `rows` have ``bar``, ``part``, ``share`` in %, ``said`` and the columns of the filters.
    """
    order = {name: place for place, name in enumerate(parts)}
    tips = [alt.Tooltip("bar:N", title=" "), alt.Tooltip("part:N", title=" "), alt.Tooltip("said:N", title=" ")]
    chart = (
        alt.Chart(height=ROW_PIXELS * len(bars), width="container")
        .mark_bar(height=16)
        .encode(
            y=alt.Y("bar:N", sort=list(bars), title=None),
            x=alt.X("share:Q", title=title, stack="zero", axis=alt.Axis(tickCount=10)),
            color=_colour("part", parts),
            order="place:Q",
            tooltip=[*tips, alt.Tooltip("share:Q", title="%", format=".1f")],
        )
    )
    return spec_of(chart, [{**row, "place": order[row["part"]]} for row in rows], filters)


def curves(
    rows: Sequence[Mapping[str, Any]], x: str | None, title: str, lines: Mapping[str, str], filters: Sequence[Filter]
) -> Spec:
    """Return means with their intervals: lines and bands against `x`, or a bar a line without one.

    `rows` have ``line``, ``x``, ``mean``, ``low``, ``high``, ``load`` and the columns of the filters. Hollow
    points are of a load that is not kept up with, or not known.
    """
    tips = ["line:N", *([alt.Tooltip("x:Q", title=x)] if x else []), alt.Tooltip("mean:Q", title=title, format=",.4~g")]
    tips += [alt.Tooltip(f"{each}:Q", title=f"95% interval, {each}", format=",.4~g") for each in ("low", "high")]
    base = alt.Chart(width="container", height=PANEL_PIXELS if x else ROW_PIXELS * len(lines))
    base = base.encode(color=_colour("line", lines), tooltip=[*tips, alt.Tooltip("load:N")])
    if x is None:
        down = base.encode(y=alt.Y("line:N", sort=list(lines), title=None))
        reach = down.mark_rule(size=2, color="gray").encode(x="low:Q", x2="high:Q", color=alt.value("gray"))
        return spec_of(alt.layer(down.mark_bar(height=16).encode(x=alt.X("mean:Q", title=title)), reach), rows, filters)
    along = base.encode(
        x=alt.X("x:Q", title=named(x), scale=alt.Scale(zero=False, padding=12), axis=alt.Axis(tickCount=6))
    )
    band = along.mark_area(opacity=0.18).encode(y=alt.Y("low:Q", title=title), y2="high:Q")
    middle = along.encode(y=alt.Y("mean:Q", title=title))
    filled = alt.condition(f"datum.load == '{KEPT_UP}'", alt.value(1), alt.value(0))
    points = middle.mark_point(size=50, filled=True, strokeWidth=1.5).encode(
        fillOpacity=filled, stroke=alt.Stroke("line:N", scale=_scale(lines), legend=None)
    )
    return spec_of(alt.layer(band, middle.mark_line().add_params(_zoom("x", "y")), points), rows, filters)


def winner_map(
    cells: Sequence[Mapping[str, Any]], x: str, y: str, lines: Mapping[str, str], filters: Sequence[Filter]
) -> Spec:
    """Return a cell a pair of values: the best line's colour, pale where the seeds do not decide, grey at a tie.

    `cells` have ``x``, ``y``, ``winner``, ``second``, ``mean``, ``said``, ``lead``, ``half_width``, ``sure``.
    """
    base = alt.Chart(width="container", height=2 * ROW_PIXELS * len({cell["y"] for cell in cells})).encode(
        x=alt.X("x:O", title=named(x), axis=alt.Axis(labelAngle=0, labelOverlap=True)),
        y=alt.Y("y:N", title=named(y) if y else None, sort=None),
        tooltip=[
            "winner:N",
            alt.Tooltip("mean:Q", title="attains (%)", format=".1f"),
            "second:N",
            alt.Tooltip("lead:Q", title="points ahead of the second", format=".2f"),
            alt.Tooltip("half_width:Q", title="half of the 95% interval", format=".2f"),
            alt.Tooltip("sure:N", title=" "),
        ],
    )
    tie = {**lines, TIE: TIE_COLOUR}
    squares = base.mark_rect(stroke="gray", strokeWidth=0.5).encode(
        color=_colour("winner", tie), opacity=alt.condition(f"datum.sure == '{DECIDED}'", alt.value(1), alt.value(0.4))
    )
    words = base.mark_text(fontWeight="bold").encode(text="said:N")
    return spec_of(alt.layer(squares, words), cells, filters)


TIE_COLOUR = "#999999"
TIE, DECIDED, UNDECIDED = "several are best", "decided by the seeds", "not decided by the seeds"
