"""SLO mixes: the classes of a workload, their shares and their objectives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.workload.class_name import MOST_CLASSES, problem_of

MIX_KEYS = (
    *("description", "source", "assumed", "classes_from", "objectives_from", "redraw_classes"),
    *("max_tokens", "tpot_s", "ttft_s"),
)
PROMISES = ("tpot_s", "tpot_ratio", "ttft_s", "max_tokens")


@dataclass(frozen=True, slots=True)
class Promise:
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
    promise: Promise
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
    """

    source: str
    classes: tuple[SloClass, ...]
    default: Promise
    of_trace: Mapping[str, Promise]
    redraw_classes: bool
    own_objectives: bool = True


def mix_from_mapping(mapping: Mapping[str, Any], source: str) -> SloMix:
    """Return the mix that the keys of a YAML describe.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    node = CheckedMapping(source, "", mapping)
    from_trace = "classes_from" in mapping and node.choice("classes_from", ("trace", "mix")) == "trace"
    node.only(("max_tokens",) if from_trace else ("classes",), (*MIX_KEYS, "classes"))
    default = _promise(node)
    redraw = "redraw_classes" in mapping and node.flag("redraw_classes")
    if from_trace:
        if redraw:
            node.refuse("redraw_classes", "true, but the classes of this mix are the trace's own")
        return SloMix(source, (), default, _of_trace(node), False, own_objectives=_objectives_from(node) == "trace")
    if _objectives_from(node) == "trace" and "objectives_from" in mapping:
        node.refuse(
            "objectives_from", "'trace', but the classes of this mix are its own; expected classes_from: trace too"
        )
    bodies = node.children("classes", "at least one class by name", "share, max_tokens and promises such as tpot_s")
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


def _objectives_from(node: CheckedMapping) -> str:
    return node.choice("objectives_from", ("trace", "mix")) if "objectives_from" in node.values else "trace"


def check_mix(mix: SloMix) -> None:
    """Refuse shares that do not add up to 1, and a class without `max_tokens`.

    Raises
    ------
    SpecsimError
        One line naming the mix.
    """
    total = sum(each.share for each in mix.classes)
    if mix.classes and abs(total - 1.0) > 1e-9:
        raise SpecsimError(f"{mix.source}: classes: shares add up to {total:g}, expected 1")
    bounds = {each.name: each.promise.max_tokens for each in mix.classes} or {"default": mix.default.max_tokens}
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


def _promise(node: CheckedMapping) -> Promise:
    if node.given("tpot_s") and node.given("tpot_ratio"):
        node.refuse("", "tpot_s and tpot_ratio are both given; expected one of them and null for the other")
    tpot_s, ratio, ttft_s = (node.number(key, above=0) if node.given(key) else None for key in PROMISES[:3])
    return Promise(tpot_s, ratio, ttft_s, node.whole("max_tokens") if "max_tokens" in node.values else None)


def _of_trace(node: CheckedMapping) -> dict[str, Promise]:
    if not node.values.get("classes"):
        return {}
    bodies = node.children("classes", "promises by class of the trace", "promises such as tpot_s")
    for body in bodies.values():
        body.only((), PROMISES)
    return {name: _promise(body) for name, body in bodies.items()}


def _class(name: str, node: CheckedMapping, default: Promise) -> SloClass:
    node.only(("share",), (*PROMISES, "acceptance", "scaled"))
    promise = _filled(_promise(node), default)
    if promise.max_tokens is None:
        node.refuse("max_tokens", "missing key, here and in the whole mix")
    scaled = "scaled" in node.values and node.flag("scaled")
    if scaled and promise.tpot_s is None and promise.tpot_ratio is None:
        node.refuse("scaled", "true, but the class has no TPOT objective to scale")
    acceptance = node.text("acceptance", "the name of a category") if "acceptance" in node.values else name
    return SloClass(name, node.number("share", above=0, most=1), promise, acceptance, scaled)


def _filled(promise: Promise, default: Promise) -> Promise:
    """Return a promise, completed by the default's values."""
    has_tpot = promise.tpot_s is not None or promise.tpot_ratio is not None
    return Promise(
        promise.tpot_s if has_tpot else default.tpot_s,
        promise.tpot_ratio,
        default.ttft_s if promise.ttft_s is None else promise.ttft_s,
        default.max_tokens if promise.max_tokens is None else promise.max_tokens,
    )
