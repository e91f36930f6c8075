"""Attainment against the rate, up to where each system falls below the target."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import TYPE_CHECKING

import numpy as np

from specsim.errors import SpecsimError
from specsim.figures.line_ends import name_ends
from specsim.figures.style import GREY, MARKERS, PALETTE, WIDE_IN, new_figure, style

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from specsim.results.capacity import Asked, Capacity, Tested

HIGH_IN = 2.4


def attained_up_to(asked: Asked, label: str, lines: Mapping[str, tuple[Tested, Capacity]]) -> Figure:
    """Return attainment in % against the rate in requests/s, a line a system, seeds as bars from the least to the most.

    A dotted line falls where a system's seeds fall below the target in the mean.

    Raises
    ------
    SpecsimError
        When there are more lines than can be told apart.
    """
    if len(lines) > len(PALETTE):
        raise SpecsimError(f"{len(lines)} lines; expected {len(PALETTE)} or fewer in one figure")
    with style():
        figure = new_figure(HIGH_IN, WIDE_IN)
        axes = figure.subplots()
        ends, ink = {}, dict(zip(lines, PALETTE, strict=False))
        for (name, (tested, found)), marker in zip(lines.items(), MARKERS, strict=False):
            rates = sorted(tested)
            seeds = 100 * np.array([tested[rate] for rate in rates])
            middle = seeds.mean(axis=1)
            reach = middle - seeds.min(axis=1), seeds.max(axis=1) - middle
            axes.errorbar(
                rates, middle, reach, color=ink[name], marker=marker, markersize=3.5, elinewidth=0.8, capsize=1.5
            )
            edge = found.mean if isfinite(found.mean) else found.keeps
            if edge is not None:
                axes.plot([edge, edge], [0, 100 * asked.target], color=ink[name], linestyle=":", linewidth=0.9)
            ends[name] = (rates[-1], float(middle[-1]))
        axes.axhline(100 * asked.target, color=GREY, linewidth=0.8, linestyle="--")
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter("{x:g}")
        axes.set_ylim(0, 103)
        axes.set_xlabel("Request rate (requests/s)")
        axes.set_ylabel(label)
        name_ends(axes, ends, ink, HIGH_IN)
        return figure
