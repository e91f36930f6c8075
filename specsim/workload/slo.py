"""SLO mixes: which class each request belongs to, what it was promised, and how its text is accepted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, cast

import numpy as np

from specsim.errors import SpecsimError
from specsim.reading import Node
from specsim.request import Ints, Requests
from specsim.rng import stream_keys, uniforms
from specsim.workload.trace import Trace

TpotMeasure = Literal["tpot_s", "decode_tpot_s"]
MEASURES = ("tpot_s", "decode_tpot_s")


@dataclass(frozen=True, slots=True)
class SloClass:
    """One class: its share of the requests and what they were promised.

    `tpot_s` is absolute, `tpot_ratio` a multiple of the baseline latency; at most one is given. `acceptance` names
    the category of the acceptance file, by default the class itself. `scaled`: `slo_scale` multiplies its TPOT.
    """

    name: str
    share: float
    tpot_s: float | None
    tpot_ratio: float | None
    ttft_s: float | None
    max_tokens: int
    acceptance: str
    scaled: bool


@dataclass(frozen=True, slots=True)
class SloMix:
    """Classes whose shares add up to one; empty `classes` means those of the trace, bounded by `max_tokens`."""

    classes: tuple[SloClass, ...]
    tpot_measure: TpotMeasure
    max_tokens: int | None = None


class Promised(NamedTuple):
    """Requests as told at arrival, their true output lengths (N,), and the acceptance category of each class."""

    requests: Requests
    output_tokens: Ints
    acceptance: tuple[str, ...]


def mix_from_mapping(mapping: Mapping[str, Any], source: str) -> SloMix:
    """Return the mix that a YAML describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    node, wanted = Node(source, "", mapping), "classes" if "classes" in mapping else "max_tokens"
    node.only((wanted,), ("description", "source", "tpot_measure"))
    named = node.choice("tpot_measure", MEASURES) if "tpot_measure" in mapping else "tpot_s"
    measure = cast(TpotMeasure, named)
    if wanted == "max_tokens":
        return SloMix((), measure, node.whole("max_tokens"))
    bodies = node.children("classes", "at least one class by name", "share, max_tokens and promises such as tpot_s")
    classes = tuple(_class(name, body) for name, body in bodies.items())
    total = sum(each.share for each in classes)
    if abs(total - 1.0) > 1e-9:
        node.refuse("classes", f"shares add up to {total:g}, expected 1")
    return SloMix(classes, measure)


def promise(mix: SloMix, trace: Trace, *, seed: int, baseline_s: float, slo_scale: float) -> Promised:
    """Give each request of `trace` its class and objectives; luck belongs to (seed, row of the trace).

    Raises
    ------
    SpecsimError
        When the mix takes its classes from a trace that has none.
    """
    classes = mix.classes or _classes_of(trace, mix.max_tokens or 1)
    if slo_scale != 1 and mix.classes and not any(each.scaled for each in classes):
        raise SpecsimError(f"slo_scale={slo_scale:g} changes nothing: no class of the mix is marked scaled")
    if mix.classes:
        bounds = np.cumsum([each.share for each in classes])[:-1]
        luck = uniforms(stream_keys(seed, "slo_class", trace.row))
        codes = np.searchsorted(bounds, luck, side="right")
        tpot_s = np.array([_tpot_s(each, baseline_s, slo_scale) for each in classes])[codes]
        ttft_s = np.array([np.nan if each.ttft_s is None else each.ttft_s for each in classes])[codes]
    else:
        codes = np.zeros(len(trace), dtype=np.int64) if trace.slo_class is None else trace.slo_class
        tpot_s = _own_tpot_s(trace, baseline_s, slo_scale)
        ttft_s = np.full(len(trace), np.nan) if trace.ttft_slo_s is None else trace.ttft_slo_s
    most = np.array([each.max_tokens for each in classes])[codes]
    requests = Requests(
        trace.arrival_s,
        trace.prompt_tokens,
        most,
        codes,
        tpot_s,
        ttft_s,
        tuple(each.name for each in classes),
    )
    return Promised(requests, np.minimum(trace.output_tokens, most), tuple(each.acceptance for each in classes))


def _tpot_s(each: SloClass, baseline_s: float, slo_scale: float) -> float:
    tpot_s = each.tpot_s if each.tpot_ratio is None else each.tpot_ratio * baseline_s
    if tpot_s is None:
        return float("nan")
    return tpot_s * slo_scale if each.scaled else tpot_s


def _classes_of(trace: Trace, max_tokens: int) -> tuple[SloClass, ...]:
    if trace.tpot_slo_s is None and trace.tpot_slo_ratio is None and trace.ttft_slo_s is None:
        raise SpecsimError(
            f"slo=trace: trace {trace.source.name!r} carries no objectives; expected a mix: slo=adaserve"
        )
    names = trace.slo_names or ("request",)
    return tuple(SloClass(name, 0.0, None, None, None, max_tokens, name, False) for name in names)


def _own_tpot_s(trace: Trace, baseline_s: float, slo_scale: float) -> Any:
    """Resolve the trace's objectives; the scale falls on ratios where there are any, else on all."""
    nothing = np.full(len(trace), np.nan)
    ratio_s = nothing if trace.tpot_slo_ratio is None else trace.tpot_slo_ratio * baseline_s
    absolute_s = nothing if trace.tpot_slo_s is None else trace.tpot_slo_s
    if np.isnan(ratio_s).all():
        return absolute_s * slo_scale
    return np.where(np.isnan(ratio_s), absolute_s, ratio_s * slo_scale)


def _class(name: str, node: Node) -> SloClass:
    promises = ("tpot_s", "tpot_ratio", "ttft_s")
    node.only(("share", "max_tokens"), (*promises, "acceptance", "scaled"))
    tpot_s, ratio, ttft_s = (node.number(key, above=0) if node.given(key) else None for key in promises)
    if tpot_s is not None and ratio is not None:
        node.refuse("", "tpot_s and tpot_ratio are both given; expected one of them")
    scaled = "scaled" in node.values and node.flag("scaled")
    if scaled and tpot_s is None and ratio is None:
        node.refuse("scaled", "true, but the class has no TPOT objective to scale")
    acceptance = node.text("acceptance", "the name of a category") if "acceptance" in node.values else name
    share = node.number("share", above=0, most=1)
    return SloClass(name, share, tpot_s, ratio, ttft_s, node.whole("max_tokens"), acceptance, scaled)
