"""Arrivals: numbers in some unit, or timestamps, converted to seconds since the earliest."""

from __future__ import annotations

import re
from collections.abc import Sequence
from datetime import datetime
from math import ceil
from typing import Literal, NamedTuple, get_args

import numpy as np

from specsim.replica.request import LONGEST_S
from specsim.workload.columns import not_a_number, number
from specsim.workload.damage import shown
from specsim.workload.table import Cells, Rows
from specsim.workload.trace import Floats

Unit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[Unit, ...] = get_args(Unit)
PER_S: dict[Unit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
STAMP = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))? ?(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII
)
SINCE_1970_S = 1e9
"""Seconds since 1970, in September 2001."""
CHAT = "chat_id"
"""A column of Bailian's traces."""
HEAD = 100
"""Rows whose hashes tell the unit."""
SPARSE_S, FAST_PER_S = 3600, 1000
"""The mean gap and the mean rate beyond which a unit is not believed."""
EXAMPLE = "2024-05-10 00:00:00.009930+00:00"


class Clock(NamedTuple):
    """Arrivals of rows (N,), in their order.

    Attributes
    ----------
    since_s : (N,) seconds since the earliest. latest_s : the latest number of the file in seconds; None: timestamps.
    step_s : distance of neighbouring float64 just before the latest; 0 if no number was rounded.
    """

    since_s: Floats
    latest_s: float | None
    step_s: float = 0.0


def read_clock(cells: Sequence[object], column: str, rows: Rows, unit: Unit) -> Clock:
    """Return the arrival of each row; damaged cells are noted and read as 0.

    Numbers are finite, not negative and in `unit`. Timestamps are in ISO 8601 to the nanosecond, all with a zone or all
    without, or numpy's.
    """
    first = next((cell for cell in cells if number(cell) is not None or is_stamp(cell)), None)
    if not is_stamp(first):
        return _from_numbers(cells, column, rows, unit)
    stamps = [_nanoseconds(cell) for cell in cells]
    zoned = next(stamp[1] for stamp in stamps if stamp is not None)
    for i, stamp in enumerate(stamps):
        if stamp is None:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cells[i])} is no time like {EXAMPLE}")
        elif stamp[1] != zoned:
            has = "no time zone" if zoned else "a time zone"
            rows.damage.add(rows.numbers[i], f"{column} {shown(cells[i])} has {has}, unlike rows before it")
    earliest = min(stamp[0] for stamp in stamps if stamp is not None)
    since = np.array([0 if stamp is None else stamp[0] - earliest for stamp in stamps], np.float64)
    return Clock(since / PER_S["ns"], None)


def is_stamp(cell: object) -> bool:
    """Return whether a cell is a timestamp."""
    return _nanoseconds(cell) is not None


def told_unit(cells: Cells, column: str) -> tuple[Unit, str] | None:
    """Return the unit of arrivals that are numbers in a column of no unit of its own, and what tells it; None: nothing.

    ``chat_id`` is Bailian's, in seconds. Blocks of ``hash_ids`` tell Mooncake (512 tokens, milliseconds) from Bailian
    (16 tokens). Without them the size of stamps since 1970 tells it, or a single unit in which the mean rate is
    plausible.
    """
    if CHAT in cells:
        return "s", f"{CHAT} is Bailian's"
    hashed = list(zip(cells.get("hash_ids", [])[:HEAD], cells.get("input_length", []), strict=False))
    blocks = [block for block in (16, 512) if hashed and all(_fills(*each, block) for each in hashed)]
    if len(blocks) == 1:
        return ("ms" if blocks == [512] else "s"), f"hash_ids stand for {blocks[0]} tokens"
    values = [value for value in map(number, cells[column]) if value is not None]
    least, most = min(values, default=0.0), max(values, default=0.0)
    if least > SINCE_1970_S:
        return ("s" if least < 100 * SINCE_1970_S else "ms"), "since 1970"
    if least == most:
        return "s", "all are alike"
    gap = (most - least) / (len(values) - 1)
    units = plausible(gap)
    return ("s", f"as milliseconds {PER_S['ms'] / gap:,.0f} requests/s") if units in ([], ["s"]) else None


def plausible(gap: float) -> list[Unit]:
    """Return the units in which arrivals at this mean distance come neither too fast nor too seldom to be believed."""
    return [unit for unit in UNITS if 1 / FAST_PER_S <= gap / PER_S[unit] <= SPARSE_S]


def spread(stamp_s: Floats, tick_s: float) -> Floats:
    """Return arrivals (N,): the k-th of m requests with one stamp moves by k/m of the tick, or of a shorter gap."""
    first = np.flatnonzero(np.diff(stamp_s, prepend=-1.0) > 0)
    size = np.diff(first, append=len(stamp_s))
    width_s = np.minimum(tick_s, np.diff(stamp_s[first], append=np.inf))
    place = np.arange(len(stamp_s)) - np.repeat(first, size)
    return np.asarray(stamp_s + np.repeat(width_s / size, size) * place, np.float64)


def _from_numbers(cells: Sequence[object], column: str, rows: Rows, unit: Unit) -> Clock:
    values = np.zeros(len(cells))
    for i, cell in enumerate(cells):
        value = number(cell)
        if value is None:
            rows.damage.add(rows.numbers[i], f"{column} {not_a_number(cell)}")
        elif value < 0:
            rows.damage.add(rows.numbers[i], f"{column} {value:g} is negative")
        else:
            values[i] = value
    latest_s = float(values.max()) / PER_S[unit]
    far = latest_s > LONGEST_S or values.max() > 2**53
    exact = [_whole(cell) for cell in cells] if far else []
    if exact and None not in exact:
        # Nanoseconds since 1970 are whole numbers that do not fit a float.
        values = np.array([value - exact[0] for value in exact], np.float64)  # type: ignore[operator]
        return Clock((values - values.min()) / PER_S[unit], latest_s)
    step_s = float(np.spacing(np.nextafter(values.max(), 0.0))) / PER_S[unit]
    if np.array_equal(values, np.floor(values)):
        return Clock((values - values.min()) / PER_S[unit], latest_s, step_s)
    seconds = values / PER_S[unit]
    return Clock(seconds - seconds.min(), latest_s, step_s)


def _whole(cell: object) -> int | None:
    if number(cell) is None:
        return None
    if isinstance(cell, str):
        return int(cell) if cell.strip().isdecimal() else None
    return cell if isinstance(cell, int) else None


def _fills(ids: object, length: object, block: int) -> bool:
    tokens = number(length)
    return isinstance(ids, list | np.ndarray) and tokens is not None and len(ids) == ceil(tokens / block)


def _nanoseconds(cell: object) -> tuple[int, bool] | None:
    """Return nanoseconds since 1970 and whether the zone is known; None if the cell is no timestamp."""
    if isinstance(cell, np.datetime64):
        return None if np.isnat(cell) else (int(cell.astype("datetime64[ns]").astype(np.int64)), False)
    match = STAMP.fullmatch(cell) if isinstance(cell, str) else None
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    try:
        second = int(datetime.fromisoformat(f"{date}T{clock}{zone or '+00:00'}").timestamp())
    except ValueError:
        return None
    return second * 10**9 + int((fraction or "").ljust(9, "0")), zone is not None
