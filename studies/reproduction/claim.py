"""What a paper says of a figure in numbers or by an inequality: one dataclass, as an experiment YAML writes it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, cast

from specsim.errors import nearest
from specsim.files.checked_mapping import CheckedMapping, is_number

Kind = Literal["ratio", "above", "share", "trend", "crossing", "value"]
KEYS: Mapping[str, tuple[str, ...]] = {
    "ratio": ("of", "over", "at", "pick", "better", "shortfall", "paper"),
    "above": ("of", "over", "at", "better"),
    "share": ("of", "over", "at", "better", "paper"),
    "trend": ("of", "over", "at", "better"),
    "crossing": ("of", "over", "better", "paper"),
    "value": ("of", "at", "pick", "paper"),
}
"""The kinds of claims and the keys that each may have."""
PICKS = ("mean", "most", "least")


@dataclass(frozen=True, slots=True)
class Claim:
    """One claim about a figure's lines.

    Attributes
    ----------
    says : the paper's statement, in one line. why : what explains our gap, in one line; empty: nothing is said.
    kind : ``ratio``: `of` over the best of `over`. ``above``: `of` is better than the best of `over` at each point.
        ``share``: at how many % of the points it is. ``trend``: `of`, or its lead over the best of `over`, is better at
        the last point than at the first. ``crossing``: the x from which `of` is not better any more. ``value``: `of`.
    over : lines; none: `than`, a number in the figure's unit, 1 unless it is given: what a speedup is held against.
    at : names of points of the axis. pick : what is taken of the points. better : ``more`` or ``less``.
    shortfall : whether a ratio is that of what is missing to the whole: fewer violations. paper : the published number.
    """

    says: str
    why: str
    kind: Kind
    of: str
    over: tuple[str, ...]
    than: float
    at: tuple[str, ...]
    pick: str
    better: str
    shortfall: bool
    paper: float | None


def read_claims(
    node: CheckedMapping, lines: Sequence[str], points: Sequence[str], *, numeric: bool, speedup: bool
) -> tuple[Claim, ...]:
    """Return the claims below a figure's key ``claims``, none if there is none.

    Parameters
    ----------
    numeric : whether the axis has numbers. speedup : whether the figure's lines are speedups.
    """
    if not node.given("claims"):
        return ()
    found = node.items("claims", "claims")
    return tuple(_claim(each, lines, points, numeric=numeric, speedup=speedup) for each in found)


def _claim(node: CheckedMapping, lines: Sequence[str], points: Sequence[str], *, numeric: bool, speedup: bool) -> Claim:
    kinds = [name for name in node.values if name in KEYS]
    if len(kinds) != 1:
        node.refuse("", f"has {len(kinds)} of {', '.join(KEYS)}; expected one of them beside says")
    node.only(("says", kinds[0]), ("why",))
    kind = cast(Kind, kinds[0])
    told = node.child(kind)
    told.only([key for key in ("of", "paper") if key in KEYS[kind]], KEYS[kind])
    if kind == "crossing" and not numeric:
        node.refuse(kind, "the axis has names; expected numbers, along which lines can cross")
    at = _names(told, "at", points, "point of the axis") if told.given("at") else tuple(points)
    over, than = _over(told, lines)
    if kind == "trend" and len(set(at)) < 2:
        told.refuse("at", "is one point; expected two or more, the first and last of which are compared")
    if kind not in ("value", "trend") and not speedup and not told.given("over"):
        told.refuse("over", "missing key; expected a line or a number, as only a speedup is held against 1")
    if told.given("better") and told.given("shortfall"):
        told.refuse("better", "stands beside shortfall, of which less is better; expected one of them")
    return Claim(
        says=node.text("says"),
        why=node.text("why") if node.given("why") else "",
        kind=kind,
        of=told.choice("of", lines),
        over=over,
        than=than,
        at=at,
        pick=told.choice("pick", PICKS) if told.given("pick") else PICKS[0],
        better=told.choice("better", ("more", "less")) if told.given("better") else "more",
        shortfall=told.flag("shortfall") if told.given("shortfall") else False,
        paper=told.number("paper", above=0) if "paper" in KEYS[kind] else None,
    )


def _over(node: CheckedMapping, lines: Sequence[str]) -> tuple[tuple[str, ...], float]:
    """Return the lines that a claim compares with, or none and a number."""
    value = node.values.get("over")
    if value is None or is_number(value):
        return (), 1.0 if value is None else node.number("over", above=0)
    return _names(node, "over", lines, "line"), 1.0


def _names(node: CheckedMapping, key: str, known: Sequence[str], noun: str) -> tuple[str, ...]:
    """Return a name, or a list of names, that are all known."""
    value = node.values[key]
    found = tuple(named(each) for each in (value if isinstance(value, list) else [value]))
    if not found:
        node.fail(key, f"a {noun} or a list of them")
    for each in found:
        if each not in known:
            node.refuse(key, f"{each}: no such {noun}{nearest(each, known)}")
    return found


def named(value: object) -> str:
    """Return the name of a point: a number as it is written shortest, so that 3 and 3.0 are one."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
