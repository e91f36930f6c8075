"""The requests of a run: each request of a trace gets its class and its objectives."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.replica.request import Floats, Ints, Requests
from specsim.rng import stream_keys, uniforms
from specsim.workload.odd_objectives import odd_objectives
from specsim.workload.slo import Promise, SloMix
from specsim.workload.trace import Trace


class Promised(NamedTuple):
    """What `promise` returns.

    Attributes
    ----------
    requests : what is known at arrival. output_tokens : (N,) true lengths, cut at the class's bound.
    acceptance : category of the acceptance file for each class. notes : lines for the user.
    """

    requests: Requests
    output_tokens: Ints
    acceptance: tuple[str, ...]
    notes: tuple[str, ...]


class Dealt(NamedTuple):
    """Class codes (N,), objectives in seconds before `ttft_scale` (N,), bounds (N,), names and categories by class."""

    codes: Ints
    tpot_s: Floats
    ttft_s: Floats
    max_tokens: Ints
    names: tuple[str, ...]
    acceptance: tuple[str, ...]


def promise(
    mix: SloMix, trace: Trace, *, seed: int, baseline_s: float, slo_scale: float = 1.0, ttft_scale: float = 1.0
) -> Promised:
    """Give each request of `trace` its class and objectives; draws depend only on (seed, row of the trace).

    Requests have the classes that the trace names; otherwise they draw classes by share.

    Raises
    ------
    SpecsimError
        When the mix and the trace do not go together, or a scale scales nothing.
    """
    dealt = (_by_mix if mix.classes else _by_trace)(mix, trace, seed, baseline_s, slo_scale)
    if ttft_scale != 1 and np.isnan(dealt.ttft_s).all():
        raise SpecsimError(f"ttft_scale={ttft_scale:g} changes nothing: no class has a TTFT objective")
    requests = Requests(
        trace.arrival_s,
        trace.prompt_tokens,
        dealt.max_tokens,
        dealt.codes,
        dealt.tpot_s,
        dealt.ttft_s * ttft_scale,
        np.minimum(0 if trace.cached_tokens is None else trace.cached_tokens, trace.prompt_tokens - 1),
        dealt.names,
    )
    output_tokens = np.minimum(trace.output_tokens, dealt.max_tokens)
    return Promised(requests, output_tokens, dealt.acceptance, _notes(mix, trace, requests))


def _by_mix(mix: SloMix, trace: Trace, seed: int, baseline_s: float, slo_scale: float) -> Dealt:
    classes = mix.classes
    if slo_scale != 1 and not any(each.scaled for each in classes):
        raise SpecsimError(f"slo_scale={slo_scale:g} changes nothing: no class of the mix is marked scaled")
    names = tuple(each.name for each in classes)
    if trace.slo_class is not None and not mix.redraw_classes:
        codes = _followed(mix, trace, names)
    else:
        bounds = np.cumsum([each.share for each in classes])[:-1]
        codes = np.searchsorted(bounds, uniforms(stream_keys(seed, "slo_class", trace.row)), side="right")
    scales = [slo_scale if each.scaled else 1.0 for each in classes]
    tpot_s = [_seconds(each.promise, baseline_s) * scale for each, scale in zip(classes, scales, strict=True)]
    return Dealt(
        codes,
        np.array(tpot_s)[codes],
        np.array([_or_nan(each.promise.ttft_s) for each in classes])[codes],
        np.array([each.promise.max_tokens for each in classes])[codes],
        names,
        tuple(each.acceptance for each in classes),
    )


def _followed(mix: SloMix, trace: Trace, names: tuple[str, ...]) -> Ints:
    """Return the classes that the trace names as codes (N,) of the mix."""
    assert trace.slo_class is not None
    used = [trace.slo_names[code] for code in np.unique(trace.slo_class)]
    for name in used:
        if name not in names:
            raise SpecsimError(
                f"{mix.source} has no class {name!r}, which trace {trace.source.name!r} names in its slo_class"
                f"{nearest(name, names)}; slo=trace keeps the trace's classes, slo.redraw_classes=true deals them anew"
            )
    place = np.array([names.index(name) if name in names else -1 for name in trace.slo_names])
    return np.asarray(place[trace.slo_class], dtype=np.int64)


def _by_trace(mix: SloMix, trace: Trace, seed: int, baseline_s: float, slo_scale: float) -> Dealt:
    own = (trace.tpot_slo_s, trace.tpot_slo_ratio, trace.ttft_slo_s) if mix.own_objectives else (None, None, None)
    nothing = all(column is None for column in own) and mix.default.tpot_s is None and not mix.of_trace
    if nothing and mix.own_objectives:
        raise SpecsimError(
            f"slo=trace: trace {trace.source.name!r} carries no objectives; expected a mix: slo=adaserve, or slo.tpot_s"
        )
    names = trace.slo_names if trace.slo_class is not None else ("request",)
    codes = np.zeros(len(trace), dtype=np.int64) if trace.slo_class is None else trace.slo_class
    seconds, ratio, ttft_s = (np.full(len(trace), np.nan) if column is None else column.copy() for column in own)
    most = np.full(len(trace), mix.default.max_tokens)
    seconds[np.isnan(seconds) & np.isnan(ratio)] = _or_nan(mix.default.tpot_s)
    ttft_s[np.isnan(ttft_s)] = _or_nan(mix.default.ttft_s)
    for name, promised in mix.of_trace.items():
        if name not in names:
            known = f"unknown{nearest(name, names)}"
            raise SpecsimError(f"{mix.source}: classes.{name}: {known}: the classes of trace {trace.source.name!r}")
        mine = codes == names.index(name)
        if promised.tpot_s is not None or promised.tpot_ratio is not None:
            seconds[mine], ratio[mine] = _or_nan(promised.tpot_s), _or_nan(promised.tpot_ratio)
        if promised.ttft_s is not None:
            ttft_s[mine] = promised.ttft_s
        if promised.max_tokens is not None:
            most[mine] = promised.max_tokens
    return Dealt(codes, _scaled(seconds, ratio * baseline_s, slo_scale), ttft_s, most, names, names)


def _scaled(seconds: Floats, ratio_s: Floats, slo_scale: float) -> Floats:
    """Return the trace's TPOT objectives (N,) in seconds; the scale applies to ratios, or to all if there are none."""
    if np.isnan(ratio_s).all():
        if slo_scale != 1 and np.isnan(seconds).all():
            raise SpecsimError(f"slo_scale={slo_scale:g} changes nothing: the trace has no TPOT objective")
        return seconds * slo_scale
    return np.where(np.isnan(ratio_s), seconds, ratio_s * slo_scale)


def _seconds(promised: Promise, baseline_s: float) -> float:
    return _or_nan(promised.tpot_s if promised.tpot_ratio is None else promised.tpot_ratio * baseline_s)


def _or_nan(value: float | None) -> float:
    return float("nan") if value is None else value


def _notes(mix: SloMix, trace: Trace, requests: Requests) -> tuple[str, ...]:
    notes: list[Any] = []
    columns = {"tpot_slo": trace.tpot_slo_s, "tpot_slo_ratio": trace.tpot_slo_ratio, "ttft_slo": trace.ttft_slo_s}
    carried = [name for name, column in columns.items() if column is not None]
    if mix.classes and trace.slo_class is not None:
        how = "dealt anew, as redraw_classes asks" if mix.redraw_classes else "the trace's own"
        notes.append(f"classes: {how}")
    if (mix.classes or not mix.own_objectives) and carried:
        notes.append(f"objectives: {mix.source}'s; the trace's own are not used (slo=trace uses them)")
    notes += odd_objectives(mix, trace)
    waiting = {requests.class_names[code] for code in np.unique(requests.slo_class[np.isnan(requests.ttft_slo_s)])}
    if waiting:
        listed = ", ".join(sorted(waiting))
        notes.append(f"no TTFT objective: {listed}: waiting for the first token costs nothing there (slo.ttft_s=2)")
    return tuple(notes)
