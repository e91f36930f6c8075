"""Scores of the study's rows: errors of speed-ups and of values, the side of 1, where it stops paying, the best k."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specsim.calibration.fit import Errors
from studies.speedups.measured import CLOSED, THROUGHPUT, TPOT
from studies.speedups.running import FITTED, LINE, SCORED, SOLVED

if TYPE_CHECKING:
    from pandas import DataFrame, Series

SERIES = ["source", "version", "target", "drafter", "shape", "dataset", "kind", "quantity"]
FASTER, SLOWER = 1.03, 0.97
"""Speed-ups between them have no side: runs of one server differ by as much."""


class SideCount(NamedTuple):
    """Of rows whose measured speed-up is on one side of 1: how many, and of how many the predicted one is, too."""

    rows: int
    right: int

    def __str__(self) -> str:
        return f"{self.right} of {self.rows}"


class Stop(NamedTuple):
    """The loads at which speculation stops paying in a series; infinite where it pays up to `most`, its largest."""

    series: dict[str, object]
    most: float
    measured: float
    predicted: float

    @property
    def within(self) -> bool:
        """Whether the two differ by a factor of 1.5 at most, or neither is reached."""
        if np.isinf(self.measured) or np.isinf(self.predicted):
            return self.measured == self.predicted
        return bool(1 / 1.5 <= self.predicted / self.measured <= 1.5)


class Best(NamedTuple):
    """The number of draft tokens with the highest speed-up, measured and predicted."""

    series: dict[str, object]
    measured: int
    predicted: int


def errors_of(rows: DataFrame) -> Errors:
    """Return the summary of the errors of rows."""
    return Errors.of(rows["error"].tolist())


def speedups(rows: DataFrame) -> DataFrame:
    """Return the predicted rows of closed loops, of speculation against none, with the `error` of the speed-up."""
    chosen = rows[(rows["role"] == SCORED) & (rows["kind"] == CLOSED) & ~rows["ratio"] & rows["measured"].notna()]
    return chosen.assign(error=chosen["predicted"] / chosen["measured"] - 1)


def ratios(rows: DataFrame) -> DataFrame:
    """Return the rows of two drafters, with the `error` of their ratio."""
    chosen = rows[(rows["role"] == SCORED) & rows["ratio"]]
    return chosen.assign(error=chosen["predicted"] / chosen["measured"] - 1)


def side(scored: DataFrame, *, faster: bool) -> SideCount:
    """Return on how many rows the predicted side of 1 is right, of those that are measured to be on one."""
    measured = scored["measured"]
    chosen = scored[measured > FASTER] if faster else scored[measured < SLOWER]
    return SideCount(len(chosen), int(((chosen["predicted"] > 1) == faster).sum()))


def values(rows: DataFrame, quantity: str, which: str) -> DataFrame:
    """Return the closed loops whose throughput or TPOT is stated, `which` "with" or "without", with the `error`.

    A baseline that several rows state counts once. A row that gave the acceptance has its baseline alone.
    """
    left_out = (LINE, FITTED, *((SOLVED,) if which == "with" else ()))
    chosen = rows[~rows["role"].isin(left_out) & (rows["kind"] == CLOSED) & (rows["quantity"] == quantity)]
    chosen = chosen[chosen[f"measured_{which}"].notna()]
    if which == "without":
        chosen = chosen.drop_duplicates(["source", "target", "dataset", "load", "metric", "measured_without"])
    error = chosen[f"predicted_{which}"] / chosen[f"measured_{which}"] - 1
    inverted = (chosen["metric"] == "tok/s/user") & (quantity == TPOT)
    return chosen.assign(error=error.where(~inverted, 1 / (1 + error) - 1))


def open_loops(rows: DataFrame) -> DataFrame:
    """Return the rows of open loops with the errors of both values."""
    chosen = rows[~rows["role"].isin((LINE, FITTED)) & (rows["kind"] != CLOSED)]
    errors = {
        f"error_{each}": chosen[f"predicted_{each}"] / chosen[f"measured_{each}"] - 1 for each in ("with", "without")
    }
    return chosen.assign(**errors)


def stops(rows: DataFrame) -> Iterator[Stop]:
    """Yield where speculation stops paying, of series at three loads or more."""
    closed = rows[(rows["kind"] == CLOSED) & ~rows["ratio"]]
    for keys, those in closed.groupby(SERIES):
        known = those[those["measured"].notna()].sort_values("load")
        if known["load"].nunique() < 3:
            continue
        line = those[those["load"].between(known["load"].min(), known["load"].max())].sort_values("load")
        series = dict(zip(SERIES, keys, strict=True))
        yield Stop(
            series,
            float(known["load"].max()),
            _stop(known["load"], known["measured"]),
            _stop(line["load"], line["predicted"]),
        )


def _stop(loads: Series[float], speedup: Series[float]) -> float:
    """Return the first load at which a speed-up falls to 1, between loads by their logarithm."""
    x, y = np.log(loads.to_numpy()), speedup.to_numpy()
    if y[0] < 1:
        return float(np.exp(x[0]))
    below = np.flatnonzero(y < 1)
    if not len(below):
        return float("inf")
    after = below[0]
    return float(np.exp(np.interp(1.0, [y[after], y[after - 1]], [x[after], x[after - 1]])))


def best_lengths(rows: DataFrame) -> Iterator[Best]:
    """Yield the best number of draft tokens, of chains measured at three numbers or more."""
    chains = rows[(rows["role"] == SCORED) & ~rows["tree"] & ~rows["ratio"] & rows["measured"].notna()]
    where = [key for key in SERIES if key != "shape"] + ["load"]
    for keys, those in chains.groupby(where):
        if those["steps"].nunique() > 2:
            best = (int(those.sort_values(column)["steps"].iloc[-1]) for column in ("measured", "predicted"))
            yield Best(dict(zip(where, keys, strict=True)), *best)


def costs(rows: DataFrame) -> DataFrame:
    """Return closed loops with the length at which speculation breaks even: `needed` predicted, `needed_measured`.

    A step takes so many steps without speculation: the length over the speed-up.
    """
    chosen = rows[(rows["kind"] == CLOSED) & ~rows["ratio"] & (rows["quantity"] == THROUGHPUT)]
    needed = {
        f"needed{suffix}": chosen["length"] / chosen[of]
        for suffix, of in (("", "predicted"), ("_measured", "measured"))
    }
    return chosen.assign(**needed)
