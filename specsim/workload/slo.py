"""SLO mixes: the classes of a workload, their shares and objectives, and the requests that get them.

A mistake in a mix is a SpecsimError of one line that names the mix and the key.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.core.request import Floats, Ints, Requests
from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.rng import stream_keys, uniforms
from specsim.workload.trace import Trace

TOTAL = "all"
"""The name of all classes together in tables and figures."""
MOST_CHARACTERS = 100
MOST_CLASSES = 1000
"""More than these are mostly the names of users; tables and figures have a row for each class."""
LONG_S = {"TPOT": 1.0, "TTFT": 100.0}
"""Objectives from which on milliseconds may be meant: few wait a second for each token, or minutes for the first."""

MIX_KEYS = ("classes_from", "objectives_from", "redraw_classes", "max_tokens", "tpot_s", "ttft_s")
MIX_LABELS = ("description", "source", "assumed")
OBJECTIVES = ("tpot_s", "tpot_ratio", "ttft_s", "max_tokens")


@dataclass(frozen=True, slots=True)
class Objectives:
    """The objectives of one class; None: no objective.

    `tpot_s` and `ttft_s` are seconds, `tpot_ratio` is a multiple of the baseline latency. At most one of `tpot_s` and
    `tpot_ratio` is given. `max_tokens` bounds the output.
    """

    tpot_s: float | None
    tpot_ratio: float | None
    ttft_s: float | None
    max_tokens: int | None


@dataclass(frozen=True, slots=True)
class SloClass:
    """One class of a mix: its share of the requests and its objectives.

    `acceptance` names the category of the acceptance file, by default the class's name. `scaled` says whether
    `slo_scale` multiplies the TPOT objective.
    """

    name: str
    share: float
    objectives: Objectives
    acceptance: str
    scaled: bool


@dataclass(frozen=True, slots=True)
class SloMix:
    """A mix; empty `classes` mean those of the trace.

    Attributes
    ----------
    source : the setting that chose the mix, such as ``slo=NAME``.
    classes : their shares add up to 1.
    default : objectives of requests for which neither class nor trace states one.
    of_trace : for classes of the trace, by name, the objectives that replace the trace's.
    redraw_classes : draw classes by share even if the trace names them.
    own_objectives : for classes of the trace, whether its own objectives count before the default.
    acceptance : for classes of the trace, by name, the category of the acceptance file where it is not the name.
    """

    source: str
    classes: tuple[SloClass, ...]
    default: Objectives
    of_trace: Mapping[str, Objectives]
    redraw_classes: bool
    own_objectives: bool = True
    acceptance: Mapping[str, str] = field(default_factory=dict)


BOUND = "; expected the most tokens of an output, such as max_tokens: 4096: longer ones of the trace are cut"


def mix_from_mapping(mapping: Mapping[str, Any], source: str) -> SloMix:
    """Return the mix that the keys of a YAML describe."""
    node = CheckedMapping(source, "", mapping)
    from_trace = "classes_from" in mapping and node.choice("classes_from", ("trace", "mix")) == "trace"
    node.only(() if from_trace else ("classes",), (*MIX_KEYS, "classes"), MIX_LABELS)
    default = _objectives(node)
    if from_trace and default.max_tokens is None:
        node.refuse("max_tokens", f"missing key{BOUND}")
    redraw = "redraw_classes" in mapping and node.flag("redraw_classes")
    whose = node.choice("objectives_from", ("trace", "mix")) if "objectives_from" in mapping else None
    if from_trace:
        if redraw:
            node.refuse("redraw_classes", "true, but the classes of this mix are the trace's own")
        bodies = _of_trace(node)
        of_trace = {name: _objectives(body) for name, body in bodies.items()}
        categories = {name: _category(body, name) for name, body in bodies.items()}
        return SloMix(source, (), default, of_trace, False, whose != "mix", categories)
    if whose == "trace":
        node.refuse(
            "objectives_from", "'trace', but the classes of this mix are its own; expected classes_from: trace too"
        )
    bodies = node.children("classes", "at least one class by name", "share, max_tokens and objectives such as tpot_s")
    if len(bodies) > MOST_CLASSES:
        node.refuse("classes", f"{len(bodies):,} classes; expected at most {MOST_CLASSES:,}")
    for name in bodies:
        problem = problem_of(name)
        if problem:
            node.refuse("classes", f"{shown(name)} {problem}")
    classes = tuple(_class(name, body, default) for name, body in bodies.items())
    mix = SloMix(source, classes, default, {}, redraw)
    check_mix(mix)
    _check_used(node, bodies)
    return mix


def check_mix(mix: SloMix) -> None:
    """Refuse shares that do not add up to 1, and a class without `max_tokens`."""
    total = sum(each.share for each in mix.classes)
    if mix.classes and abs(total - 1.0) > 1e-9:
        raise SpecsimError(f"{mix.source}: classes: shares add up to {total:g}, expected 1")
    bounds = {each.name: each.objectives.max_tokens for each in mix.classes} or {"default": mix.default.max_tokens}
    for name, bound in bounds.items():
        if bound is None or bound < 1:
            raise SpecsimError(f"{mix.source}: {name}: max_tokens: {bound} is not a whole number of at least 1")


def _check_used(node: CheckedMapping, bodies: Mapping[str, CheckedMapping]) -> None:
    """Refuse a value of the whole mix that every class overrides."""
    for name in ("tpot_s", "ttft_s", "max_tokens"):
        rivals = ("tpot_s", "tpot_ratio") if name == "tpot_s" else (name,)
        if node.given(name) and all(any(body.given(rival) for rival in rivals) for body in bodies.values()):
            first = next(iter(bodies))
            node.refuse(
                name, f"changes nothing: every class states its own; expected slo.classes.{first}.{name} and the like"
            )


def _objectives(node: CheckedMapping) -> Objectives:
    if node.given("tpot_s") and node.given("tpot_ratio"):
        node.refuse("", "tpot_s and tpot_ratio are both given; expected one of them and null for the other")
    tpot_s, ratio, ttft_s = (node.number(key, above=0) if node.given(key) else None for key in OBJECTIVES[:3])
    return Objectives(tpot_s, ratio, ttft_s, node.whole("max_tokens") if "max_tokens" in node.values else None)


def _of_trace(node: CheckedMapping) -> dict[str, CheckedMapping]:
    if not node.values.get("classes"):
        return {}
    bodies = node.children("classes", "objectives by class of the trace", "objectives such as tpot_s")
    for body in bodies.values():
        body.only((), (*OBJECTIVES, "acceptance"))
    return bodies


def _category(node: CheckedMapping, name: str) -> str:
    return node.text("acceptance", "the name of a category") if "acceptance" in node.values else name


def _class(name: str, node: CheckedMapping, default: Objectives) -> SloClass:
    node.only(("share",), (*OBJECTIVES, "acceptance", "scaled"))
    objectives = _filled(_objectives(node), default)
    if objectives.max_tokens is None:
        node.refuse("max_tokens", f"missing key, here and in the whole mix{BOUND}")
    scaled = "scaled" in node.values and node.flag("scaled")
    if scaled and objectives.tpot_s is None and objectives.tpot_ratio is None:
        node.refuse("scaled", "true, but the class has no TPOT objective to scale")
    return SloClass(name, node.number("share", above=0, most=1), objectives, _category(node, name), scaled)


def _filled(objectives: Objectives, default: Objectives) -> Objectives:
    """Return objectives, completed by the default's values."""
    has_tpot = objectives.tpot_s is not None or objectives.tpot_ratio is not None
    return Objectives(
        objectives.tpot_s if has_tpot else default.tpot_s,
        objectives.tpot_ratio,
        default.ttft_s if objectives.ttft_s is None else objectives.ttft_s,
        default.max_tokens if objectives.max_tokens is None else objectives.max_tokens,
    )


def problem_of(name: str) -> str | None:
    """Return why a text cannot be the name of a class; None if it can."""
    if len(name) > MOST_CHARACTERS:
        return f"is a name of {len(name):,} characters; expected at most {MOST_CHARACTERS}"
    if not name.strip():
        return "is not a name"
    if not name.isprintable() or "\ufffd" in name:
        return "is not a name of printable characters"
    if name == TOTAL:
        return "is what tables call all classes together; expected another name"
    return None


class Assigned(NamedTuple):
    """The answer of `assign_slos`.

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


def assign_slos(
    mix: SloMix, trace: Trace, *, seed: int, baseline_s: float, slo_scale: float = 1.0, ttft_scale: float = 1.0
) -> Assigned:
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
    return Assigned(requests, output_tokens, dealt.acceptance, _notes(mix, trace, requests))


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
    tpot_s = [_seconds(each.objectives, baseline_s) * scale for each, scale in zip(classes, scales, strict=True)]
    return Dealt(
        codes,
        np.array(tpot_s)[codes],
        np.array([_or_nan(each.objectives.ttft_s) for each in classes])[codes],
        np.array([each.objectives.max_tokens for each in classes])[codes],
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
    for name, objectives in mix.of_trace.items():
        if name not in names:
            known = f"unknown{nearest(name, names)}"
            raise SpecsimError(f"{mix.source}: classes.{name}: {known}: the classes of trace {trace.source.name!r}")
        mine = codes == names.index(name)
        if objectives.tpot_s is not None or objectives.tpot_ratio is not None:
            seconds[mine], ratio[mine] = _or_nan(objectives.tpot_s), _or_nan(objectives.tpot_ratio)
        if objectives.ttft_s is not None:
            ttft_s[mine] = objectives.ttft_s
        if objectives.max_tokens is not None:
            most[mine] = objectives.max_tokens
    categories = tuple(mix.acceptance.get(name, name) for name in names)
    return Dealt(codes, _scaled(seconds, ratio * baseline_s, slo_scale), ttft_s, most, names, categories)


def _scaled(seconds: Floats, ratio_s: Floats, slo_scale: float) -> Floats:
    """Return the trace's TPOT objectives (N,) in seconds; the scale applies to ratios, or to all if there are none."""
    if np.isnan(ratio_s).all():
        if slo_scale != 1 and np.isnan(seconds).all():
            raise SpecsimError(f"slo_scale={slo_scale:g} changes nothing: the trace has no TPOT objective")
        return seconds * slo_scale
    return np.where(np.isnan(ratio_s), seconds, ratio_s * slo_scale)


def _seconds(objectives: Objectives, baseline_s: float) -> float:
    return _or_nan(objectives.tpot_s if objectives.tpot_ratio is None else objectives.tpot_ratio * baseline_s)


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


def odd_objectives(mix: SloMix, trace: Trace) -> list[str]:
    """Return a line for each objective that may be in milliseconds: of the mix, and of the trace where it is used."""
    whose: dict[tuple[str, float], list[str]] = {}
    for name, kind, seconds in [*_objectives_of_mix(mix), *([] if mix.classes else _objectives_of_trace(trace))]:
        if seconds is not None and seconds >= LONG_S[kind]:
            whose.setdefault((kind, seconds), []).append(name)
    return [
        f"{kind} objective of {', '.join(names)}: {seconds:,.4g} s; objectives are in s: if ms are meant, expected "
        f"{seconds / 1000:g}"
        for (kind, seconds), names in whose.items()
    ]


def _objectives_of_mix(mix: SloMix) -> Iterator[tuple[str, str, float | None]]:
    of_classes: dict[str, Objectives] = {each.name: each.objectives for each in mix.classes}
    for name, objectives in (of_classes or {"requests without their own": mix.default, **mix.of_trace}).items():
        yield name, "TPOT", objectives.tpot_s
        yield name, "TTFT", objectives.ttft_s


def _objectives_of_trace(trace: Trace) -> Iterator[tuple[str, str, float | None]]:
    """Yield the median objective of each column of the trace."""
    for name, kind, column in (("tpot_slo_s", "TPOT", trace.tpot_slo_s), ("ttft_slo_s", "TTFT", trace.ttft_slo_s)):
        if column is not None and not np.isnan(column).all():
            yield f"the trace ({name}, median)", kind, float(np.nanmedian(column))
