"""Claims of a paper about a figure, in numbers or by an inequality: one dataclass, as an experiment YAML writes it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, cast, get_args

from profiler.typed import typed
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, is_number

Kind = Literal["ratio", "above", "share", "trend", "crossing", "value"]


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
    kind: Kind
    of: str
    over: tuple[str, ...]
    than: float
    at: tuple[str, ...]
    why: str = ""
    pick: Literal["mean", "most", "least"] = "mean"
    better: Literal["more", "less"] = "more"
    shortfall: bool = False
    paper: float | None = None

    def __post_init__(self) -> None:
        if (self.paper is None) != (self.kind in ("above", "trend")):
            raise SpecsimError("paper: expected a number, except of above and trend")


def read_claim(node: CheckedMapping, lines: Sequence[str], points: Sequence[str], *, speedup: bool) -> Claim:
    """Return the claim of a mapping ``{says, why, KIND: {of, over, at, ...}}`` about lines and points of these names.

    Parameters
    ----------
    speedup : whether the figure's lines are speedups, which need nothing to be held over.
    """
    kinds = [name for name in node.values if name in get_args(Kind)]
    if len(kinds) != 1:
        node.refuse("", f"has {len(kinds)} of {', '.join(get_args(Kind))}; expected one of them beside says")
    node.only(("says", kinds[0]), ("why",))
    told = node.child(kinds[0])
    if kinds[0] not in ("value", "trend") and "over" not in told.values and not speedup:
        told.refuse("over", "missing key; expected a line or a number, as only a speedup is held against 1")
    over, at = told.values.get("over", []), [named(each) for each in told.values.get("at", points)]
    number = is_number(over)
    held: dict[str, Any] = {**told.values, "at": at, "than": over if number else 1.0}
    held["over"] = [] if number else over if isinstance(over, list) else [over]
    said = {key: node.text(key) for key in ("says", "why") if key in node.values}
    claim = typed(Claim, CheckedMapping(node.source, told.key, held), kind=cast(Kind, kinds[0]), **said)
    known(told, "of", [claim.of, *claim.over], lines)
    known(told, "at", claim.at, points)
    return claim


def known(node: CheckedMapping, key: str, names: Sequence[str], there: Sequence[str]) -> None:
    """Refuse names of a key that are none of those there, with the nearest."""
    for name in names:
        CheckedMapping(node.source, node.key, {key: name}).choice(key, there)


def named(value: object) -> str:
    """Return the name of a point: a number as it is written shortest, so that 3 and 3.0 are one."""
    return f"{value:g}" if isinstance(value, int | float) and not isinstance(value, bool) else str(value)
