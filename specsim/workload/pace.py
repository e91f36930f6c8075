"""Checks whether arrivals make sense in their unit, and their pace in words for the user."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from specsim.errors import SpecsimError
from specsim.replica.request import LONGEST_S
from specsim.workload.arrivals import FAST_PER_S, PER_S, SINCE_1970_S, SPARSE_S, UNITS, Clock, Unit, plausible
from specsim.workload.columns import number
from specsim.workload.table import COLUMNS, Table
from specsim.workload.trace import Floats

YEAR_S = 365.25 * 86400
MICROSECOND_S = 1e-6
MOST_YEARS = 10
LATEST_S = 1e11
"""Seconds since 1970, in the year 5138."""
SLOW_S = 100
"""The mean gap beyond which the unit may be wrong. Up to `SPARSE_S` milliseconds are named beside a finer unit."""
UNEVEN = 0.02
"""The distance in ticks by which a gap may miss a multiple of the tick, and the share of gaps that may miss by more."""


def check_pace(clock: Clock, column: str, table: Table, unit: Unit, chosen: bool) -> list[str]:
    """Return notes about an odd pace of arrivals; a unit that the user did not choose must make sense.

    Raises
    ------
    SpecsimError
        One line with the unit to set, when arrivals span many years or are in the far future.
    """
    file, span_s, gaps = table.file, float(clock.since_s.max()), max(1, len(clock.since_s) - 1)
    latest_s = 0.0 if chosen or clock.latest_s is None else clock.latest_s
    likely = _likely(unit, span_s, span_s / gaps, latest_s)
    spans = ", ".join(f"in {each} {said_s(span_s * PER_S[unit] / PER_S[each])}" for each in likely)
    cure = f"; {spans}: {_set_to(likely, table)}" if likely else ""
    if latest_s > LATEST_S:
        raise SpecsimError(f"{file}: {column} reaches {latest_s:.6g} s, the year {1970 + latest_s / YEAR_S:,.0f}{cure}")
    if span_s > (LONGEST_S if chosen or clock.latest_s is None else MOST_YEARS * YEAR_S):
        raise SpecsimError(f"{file}: {column} spans {said_s(span_s)} in {unit}{cure or '; expected less'}")
    if clock.step_s > MICROSECOND_S:
        raise SpecsimError(
            f"{file}: {column} reaches {clock.latest_s:.6g} s, where a float64 is {clock.step_s:.2g} s from the next: "
            f"expected whole numbers, or times since the first{cure}"
        )
    if chosen or clock.latest_s is None:
        return []
    if span_s / gaps > SLOW_S and likely:
        return [f"one request in {said_s(span_s / gaps)}: {_if_in(likely, unit, span_s / gaps, column, table)}"]
    if span_s and gaps / span_s > FAST_PER_S and unit != "s":
        return [f"{gaps / span_s:,.0f} requests/s: if {column} is in s, {_set_to(['s'], table)}"]
    return []


def unit_asked(cells: Sequence[object], column: str, table: Table) -> SpecsimError:
    """Return the line that asks for the unit of arrivals that make sense in several, with what each would mean."""
    values = [value for value in map(number, cells) if value is not None]
    span, gaps = max(values) - min(values), len(values) - 1
    units = plausible(span / gaps)
    each = [f"{unit} ({_paced(span / PER_S[unit], gaps)})" for unit in units]
    return SpecsimError(f"{table.file}: {column} may be in {' or '.join(each)}: {_set_to(units, table)}")


def _paced(span_s: float, gaps: int) -> str:
    per_s = float(f"{gaps / span_s:.3g}")
    return f"{said_s(span_s)}, " + (
        f"{per_s:,g} requests/s" if per_s > 1 else f"one request in {said_s(span_s / gaps)}"
    )


def ticks(since_s: Floats) -> list[str]:
    """Return a line if stamps have even ticks of at least a second, and at least two requests share one on average."""
    stamps_s = np.unique(since_s)
    if 2 * len(stamps_s) > len(since_s) or len(stamps_s) < 2:
        return []
    gaps_s = np.diff(stamps_s)
    tick_s = float(np.median(gaps_s))
    even = np.abs(gaps_s / tick_s - np.rint(gaps_s / tick_s)) < UNEVEN
    if tick_s < 1 or even.mean() < 1 - UNEVEN:
        return []
    return [f"stamped every {tick_s:g} s: trace.tick_s={tick_s:g} spreads requests stamped alike"]


def pace(since_s: Floats) -> str:
    """Return the number of requests, their span and mean rate."""
    count, span_s = len(since_s), float(since_s.max())
    if count == 1:
        return "1 request"
    rate = f" in {said_s(span_s)}, {(count - 1) / span_s:.3g}/s" if span_s > 0 else " at once"
    return f"{count:,} requests{rate}"


def said_s(seconds: float) -> str:
    """Return a time in words, in a suitable unit."""
    for name, size_s in (("years", YEAR_S), ("days", 86400.0), ("h", 3600.0), ("min", 60.0)):
        if seconds >= 3 * size_s:
            return f"{seconds / size_s:,.0f} {name}"
    return f"{seconds:.3g} s"


def _set_to(units: Sequence[Unit], table: Table) -> str:
    """Return how the user of a file, or of columns in memory, sets the unit."""
    if table.kind != COLUMNS:
        return f"set trace.time_unit={' or '.join(units)}"
    words = " or ".join(f'"{each}"' for each in units)
    return f"give simulate trace__time_unit={words}, or trace_of time_unit={words}"


def _if_in(likely: Sequence[Unit], unit: Unit, gap_s: float, column: str, table: Table) -> str:
    gaps = [f"{each} (one in {said_s(gap_s * PER_S[unit] / PER_S[each])})" for each in likely]
    return f"if {column} is in {' or '.join(gaps if len(gaps) > 1 else likely)}, {_set_to(likely, table)}"


def _likely(unit: Unit, span_s: float, gap_s: float, latest_s: float) -> list[Unit]:
    """Return the finer units in which arrivals would make sense, else the finest; none where there is none."""
    finer = UNITS[UNITS.index(unit) + 1 :]
    since_1970 = [each for each in finer if SINCE_1970_S <= latest_s * PER_S[unit] / PER_S[each] <= LATEST_S]
    if since_1970 and latest_s > max(LATEST_S, 10 * span_s):
        return since_1970
    sensible = [each for each in finer if latest_s * PER_S[unit] / PER_S[each] <= LATEST_S]
    gaps_s = {each: gap_s * PER_S[unit] / PER_S[each] for each in sensible}
    first = next((each for each in sensible if gaps_s[each] <= SLOW_S), None)
    if first is None:
        return list(finer[-1:])
    return ["ms", first] if first != "ms" and SLOW_S < gaps_s.get("ms", 0) <= SPARSE_S else [first]
