"""Acceptance by draft position: rates and lengths as engines report them, or pinned as their benchmarks do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from itertools import accumulate, pairwise
from operator import mul

from specsim.acceptance.curves import MOST_POSITIONS, Acceptance, Curve, pooled
from specsim.files.checked_mapping import CheckedMapping
from specsim.kernels.growth import MOST_PROPOSALS

WIDTH, LEVELS = 4, 16
CONCENTRATION, SPREAD, TAIL = 1.0, 0.5, 0.5
"""Assumed where a file does not say: of the confidences, between requests, of the ranks behind the first."""
LEAST_RATE, MOST_RATE = 1e-3, 0.999
"""Bounds of a rate."""
POSITIONS = ("conditional", "cumulative")
"""Ways to state rates by draft position: given that the drafts before are right, or of all verifications."""
LENGTHS = ("length", "lengths", "rate")
"""Ways to state how many tokens a verification emits: at k; at k = 1, 2, ...; drafts accepted of those drafted."""
USUAL_K = 3
"""Draft tokens over which a single rate is pooled."""
DEEP = 8
"""Draft positions at which a single rate holds when pooled over requests, at least."""


def positions(node: CheckedMapping) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: positions``: rates by draft position (docs/acceptance.md)."""
    return _acceptance(node, POSITIONS, _of_positions)


def length(node: CheckedMapping) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: length``: acceptance lengths (docs/acceptance.md)."""
    return _acceptance(node, LENGTHS, _of_lengths)


def _acceptance(
    node: CheckedMapping, ways: tuple[str, ...], read: Callable[[CheckedMapping, str], tuple[float, ...]]
) -> Acceptance:
    node.only(("kind", "categories"), ("description", "pair", "width", "levels"))
    width, levels = shape_of(node)
    bodies = node.children("categories", "at least one category by name", " or ".join(ways))
    curves, said, known = {}, {}, []
    for name, body in bodies.items():
        way = _way(body, ways)
        rates, single = read(body, way), not isinstance(body.values[way], list | tuple | Mapping)
        curves[name] = curve_of(body, rates, body.values.get("k", USUAL_K if single else len(rates)), SPREAD)
        said[name] = f"{name}: {_said(body, way, curves[name])}"
        known += [curves[name].chain] if not single or "k" in body.values else []
    return Acceptance(curves, width, levels, notes=said, known=min(known, default=None))


def _way(node: CheckedMapping, ways: tuple[str, ...]) -> str:
    """Return which of the ways a category states, and refuse other keys."""
    given = [way for way in ways if node.given(way)]
    if len(given) != 1:
        node.fail(ways[0], f"one of {', '.join(ways)}")
    needed = (given[0], "k") if given[0] in ("length", "rate") else (given[0],)
    node.only(needed, ("concentration", "spread", "tail", "match"))
    return given[0]


def shape_of(node: CheckedMapping) -> tuple[int, int]:
    """Return proposals of a position and levels of a category, as a file's `width` and `levels` say, or as assumed."""
    width = node.whole("width", 1, MOST_PROPOSALS) if node.given("width") else WIDTH
    return width, node.whole("levels", 1, 256) if node.given("levels") else LEVELS


def curve_of(node: CheckedMapping, rates: tuple[float, ...], chain: int, spread: float) -> Curve:
    """Return the curve of conditional rates pooled over chains; `spread` holds where the node states none."""
    return Curve(
        rates if len(rates) >= DEEP else rates + rates[-1:] * (DEEP - len(rates)),
        node.number("concentration", most=1e6) if node.given("concentration") else CONCENTRATION,
        node.number("spread", most=20) if node.given("spread") else spread,
        node.number("tail", above=0, below=1) if node.given("tail") else TAIL,
        chain=chain,
        match=node.number("match", above=0, most=1) if node.given("match") else 1.0,
    )


def _of_positions(node: CheckedMapping, way: str) -> tuple[float, ...]:
    """Return conditional rates by draft position."""
    value = node.values[way]
    rates = node.numbers(way, 1) if isinstance(value, list | tuple) else (node.number(way),)
    return _checked(node, way, rates if way == "conditional" else conditional(rates))


def _of_lengths(node: CheckedMapping, way: str) -> tuple[float, ...]:
    """Return conditional rates by draft position; of one length all are equal."""
    if way == "lengths":
        return _checked(node, way, tuple(min(each, MOST_RATE) for each in conditional(_steps(node))))
    k = node.whole("k", 1, MOST_POSITIONS)
    if way == "rate":
        wanted = 1 + k * node.number("rate", above=0, below=1)
    else:
        wanted = node.number("length", above=1, below=k + 1)
    from scipy.optimize import brentq

    rate = float(brentq(lambda rate: sum(rate**place for place in range(k + 1)) - wanted, 0.0, 1.0, xtol=1e-12))
    return _checked(node, way, (rate,))


def _steps(node: CheckedMapping) -> list[float]:
    """Return cumulative rates by draft position from lengths, a list at k = 1, 2, ... or a mapping from k.

    Between two stated k all conditional rates are equal. Lengths of several runs scatter: cumulative rates that would
    rise are evened out (isotonic regression).
    """
    from scipy.optimize import isotonic_regression

    value = node.values["lengths"]
    if isinstance(value, Mapping):
        stated = CheckedMapping(node.source, node.path("lengths"), {str(each): value[each] for each in value})
        if not value or not all(each.isdigit() and 0 < int(each) <= MOST_POSITIONS for each in stated.values):
            node.fail("lengths", f"lengths by k, 1 to {MOST_POSITIONS}")
        lengths = {int(each): stated.number(each) for each in stated.values}
    else:
        lengths = dict(enumerate(node.numbers("lengths", 1), 1))
    if not all(1 < mean < k + 1 for k, mean in lengths.items()):
        node.fail("lengths", "lengths at k = 1, 2, ..., each above 1 and below k + 1")
    found: list[float] = []
    last, before = 1.0, 1.0
    for k, mean in sorted(lengths.items()):
        found += _shared(last, mean - before, k - len(found))
        last, before = max(found[-1], LEAST_RATE**2), mean
    return [float(each) for each in isotonic_regression(found, increasing=False).x]


def _shared(last: float, added: float, positions: int) -> list[float]:
    """Return cumulative rates of so many positions behind a rate, with equal conditional ones, that add up."""
    from scipy.optimize import brentq

    if positions == 1 or not 0 < added < positions * last:
        return [added / positions] * positions
    rate = brentq(lambda rate: last * sum(rate**place for place in range(1, positions + 1)) - added, 0.0, 1.0)
    return [last * rate**place for place in range(1, positions + 1)]


def conditional(cumulative: tuple[float, ...] | list[float]) -> tuple[float, ...]:
    """Return each rate over the one before it; NaN behind a rate of 0."""
    return tuple(each / before if before else float("nan") for before, each in pairwise((1.0, *cumulative)))


def _checked(node: CheckedMapping, way: str, rates: tuple[float, ...]) -> tuple[float, ...]:
    expected = {
        "conditional": "rates",
        "cumulative": "rates that fall from each draft position to the next",
        "lengths": "lengths at k = 1, 2, ... that rise by less each time, from 1",
    }.get(way, "a length")
    if len(rates) > MOST_POSITIONS or not all(LEAST_RATE <= each <= MOST_RATE for each in rates):
        node.fail(
            way,
            f"{expected}, each draft right with probability {LEAST_RATE:g} to {MOST_RATE:g}; {MOST_POSITIONS} at most",
        )
    return rates


def _said(node: CheckedMapping, way: str, curve: Curve) -> str:
    """Return what was stated and what follows: the length, rates by position, and the share of drafts accepted."""
    assumed = "" if node.given("spread") else f"; spread between requests assumed: {curve.spread:g}"
    stated = f"{way} {node.values[way]}".replace("'", "")
    return f"{stated} means {worth(curve)}; deeper drafts have the last conditional rate{assumed}"


def worth(curve: Curve, k: int = 0, levels: int = 1) -> str:
    """Return the length, share of drafts accepted and rates by position of chains of k, the curve's own where it is 0.

    At another k than its own the `levels` of requests count otherwise (`specsim.acceptance.curves.pooled`).
    """
    k, levels = k or curve.chain, levels if k not in (0, curve.chain) else 1
    right = pooled(curve, k, levels)
    mean, listed = 1 + curve.match * sum(right), ", ".join(f"{each:.3g}" for each in right[:8])
    matched = f"drafts in {100 * curve.match:.3g}% of steps, " if curve.match < 1 else ""
    return matched + (
        f"{mean:.3g} tokens a verification at k = {k}, {100 * sum(right) / k:.3g}% of drafted tokens accepted, "
        f"by position (cumulative) {listed}"
    )


RATES, LENGTH = "synthetic_acceptance_rates", "synthetic_acceptance_length"
SGLANG, METHOD = "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"
TRTLLM = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"
KNOBS = (LENGTH, RATES, SGLANG, TRTLLM)
METHODS = ("multinomial", "match-expected")
"""SGLang's, its default first."""
RAREST = 1e-9
"""The least cumulative rate that is told from 0."""


def pinned(node: CheckedMapping) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: pinned``: one knob of an engine (docs/acceptance.md)."""
    node.only(("kind",), ("description", "pair", METHOD, *KNOBS))
    given = [knob for knob in KNOBS if node.given(knob)]
    if len(given) != 1:
        node.fail(given[1] if given else LENGTH, f"one of {', '.join(KNOBS)}")
    (knob,) = given
    if node.given(METHOD) and knob != SGLANG:
        node.fail(METHOD, f"a key beside {SGLANG}")
    cumulative = _cumulative(node, knob)
    rates = tuple(0.0 if rate != rate else rate for rate in conditional(cumulative))
    told = list(accumulate(rates, mul))
    note = f"{knob} {node.values[knob]} accepts by position (cumulative) {', '.join(f'{each:.3g}' for each in told)}"
    curve = Curve((*rates, 0.0)[:MOST_POSITIONS], concentration=0.0, spread=0.0, tail=0.0)
    mean = f"{note}: {1 + sum(told):.4g} tokens a verification of {len(told)} drafts, the others wrong"
    return Acceptance({"default": curve}, WIDTH, 1, evidence="assumed", notes={"default": mean})


def _cumulative(node: CheckedMapping, knob: str) -> list[float]:
    """Return the share of verifications that accept each draft position, up to the last that any accepts."""
    if knob == RATES:
        rates = list(node.numbers(RATES, 1))
        if max(rates) > 1 or rates != sorted(rates, reverse=True) or len(rates) > MOST_POSITIONS:
            node.fail(RATES, f"rates from 0 to 1, none above the one before, {MOST_POSITIONS} at most")
        return rates
    if knob == SGLANG:
        length = node.number(SGLANG, above=0, most=MOST_POSITIONS)
        if not node.given(METHOD) or node.choice(METHOD, METHODS) == METHODS[0]:
            from scipy.special import ndtr

            shares = [float(ndtr(length - place - 0.5)) for place in range(1, MOST_POSITIONS)]
            return [each for each in shares if each > RAREST] or [0.0]
        accepted = max(length - 1, 0.0)
    elif knob == LENGTH:
        accepted = node.number(LENGTH, least=1, most=MOST_POSITIONS) - 1
    else:
        accepted = node.number(TRTLLM, above=0, most=MOST_POSITIONS - 1)
    return [1.0] * int(accepted) + [accepted % 1] * (accepted % 1 > 0) or [0.0]
