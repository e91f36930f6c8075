"""Names at the ends of lines, in place of a legend."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.axes import Axes

LABEL_POINTS = 8.5
"""The least distance between two labels, in points."""


def name_ends(
    axes: Axes, ends: Mapping[str, tuple[float, float]], colours: Mapping[str, str], height_in: float
) -> None:
    """Write each name right of its line's last point (x, y), moved apart where they would touch.

    The limits of the y axis must be final. `height_in` is about the height of the panel in inches.
    """
    low, high = axes.get_ylim()
    points = 72 * height_in / (high - low)
    names = sorted(ends, key=lambda name: ends[name][1])
    wanted = [points * ends[name][1] for name in names]
    for name, at, moved in zip(names, wanted, apart(wanted, LABEL_POINTS), strict=True):
        axes.annotate(
            name,
            ends[name],
            (5, moved - at),
            textcoords="offset points",
            color=colours[name],
            va="center",
            fontsize=7.5,
            annotation_clip=False,
        )


def apart(values: Sequence[float], least: float) -> list[float]:
    """Return ascending values moved as little as groups allow, so that neighbours are at least `least` apart.

    Values that would touch are spread evenly around their common mean.
    """
    groups: list[list[float]] = []
    for value in values:
        groups.append([value])
        while len(groups) > 1 and _low(groups[-1], least) - _high(groups[-2], least) < least:
            last = groups.pop()
            groups[-1] += last
    return [_low(group, least) + place * least for group in groups for place in range(len(group))]


def _low(group: Sequence[float], least: float) -> float:
    return sum(group) / len(group) - least * (len(group) - 1) / 2


def _high(group: Sequence[float], least: float) -> float:
    return _low(group, least) + least * (len(group) - 1)
