"""Checked columns from the cells of a file: arrivals and their unit, tokens, objectives, classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from math import isfinite, nan
from typing import Any, Literal, NamedTuple, get_args

import numpy as np

from specsim.core.request import LONGEST_S
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import shown
from specsim.workload.readers import Cells, FileTable, TableRows
from specsim.workload.slo import MOST_CLASSES, problem_of
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

ADASERVE_CLASSES = ("coding", "chat", "summarization")
COLLECTED = UNIT, TOKENS = "input_length_unit", "input_tokens"
"""Columns of AdaServe's workloads collected in one table, beside those of the artifact."""
CODE_OF_MS = {-50.0: 1, -150.0: 2}
# Measured by the collectors of the data on prompts with both lengths; used for prompts with characters alone.
CHARACTERS_PER_TOKEN = (3.4, 4.6, 4.6)
MAX_TOKENS = 10_000_000
WHOLE = re.compile(r"\s*[+-]?[0-9]{1,18}\s*", re.ASCII)
NUMBER = re.compile(r"\s*[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?\s*", re.ASCII)
COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9,.]+\s*", re.ASCII)


def number(cell: object) -> float | None:
    """Return a finite number, or None for ``nan``, ``1_000``, a boolean or any text that is no number."""
    if isinstance(cell, str):
        value = float(cell) if NUMBER.fullmatch(cell) else nan
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell) if abs(cell) < 1e300 else nan
    else:
        return None
    return value if isfinite(value) else None


def is_zero(cell: object) -> bool:
    """Return whether a cell holds the number 0."""
    return (not isinstance(cell, str) or cell[:1] in " +-0.") and number(cell) == 0


def is_missing(cell: Any) -> bool:
    """Return whether a cell is None, NaN or pandas' NA, which equals nothing and differs from nothing."""
    return cell is None or type(cell).__name__ == "NAType" or bool(cell != cell)


def is_empty(cell: Any) -> bool:
    """Return whether a cell is missing or an empty text."""
    return is_missing(cell) or cell == ""


def not_a_number(cell: object, wanted: str = "a number") -> str:
    """Return what is wrong with a cell that is no number."""
    comma = isinstance(cell, str) and COMMA.fullmatch(cell)
    return f"{shown(cell)} holds a comma; expected a decimal point" if comma else f"{shown(cell)} is not {wanted}"


def tokens(cells: Sequence[object], column: str, rows: TableRows, least: int = 1) -> Ints:
    """Return token counts (N,), each `least` to ``MAX_TOKENS``; damaged cells are noted and read as 1."""
    values = np.ones(len(cells), np.int64)
    odd: object = None
    for i, cell in enumerate(cells):
        if isinstance(cell, str) and WHOLE.fullmatch(cell):
            count = int(cell)
        elif isinstance(cell, int) and not isinstance(cell, bool):
            count = cell
        else:
            value = number(cell)
            if value is None or not value.is_integer():
                rows.damage.add(rows.numbers[i], f"{column} {not_a_number(cell, 'a whole number')}")
                continue
            count, odd = int(value), cell if odd is None else odd
        if least <= count <= MAX_TOKENS:
            values[i] = count
        else:
            rows.damage.add(rows.numbers[i], f"{column} {shown(count)} is not in {least}..{MAX_TOKENS}")
    if odd is not None:
        rows.note(f"{column} are whole numbers written like {shown(odd)}")
    return values


def slos(cells: Sequence[object], column: str, rows: TableRows) -> Floats:
    """Return SLOs (N,), each above 0, NaN for an empty cell; damaged cells are noted."""
    values = np.full(len(cells), nan)
    for i, cell in enumerate(cells):
        if cell is None or cell == "":
            continue
        value = number(cell)
        if value is None or value <= 0:
            rows.damage.add(rows.numbers[i], f"{column} {not_a_number(cell, 'a number above 0')}")
        else:
            values[i] = value
    return values


def classes(cells: Sequence[object], column: str, rows: TableRows) -> tuple[Ints, tuple[str, ...]]:
    """Return class codes (N,) and names in alphabetical order; a cell that is no name is noted."""
    names: list[str] = []
    for i, cell in enumerate(cells):
        name = cell.strip() if isinstance(cell, str) else ""
        problem = problem_of(name)
        if problem:
            rows.damage.add(rows.numbers[i], f"{column} {shown(cell)} {problem}")
        names.append("" if problem else name)
    order = tuple(sorted(set(names)))
    if len(order) > MOST_CLASSES:
        raise SpecsimError(
            f"{rows.damage.file}: {column} names {len(order):,} classes; expected at most {MOST_CLASSES:,}"
        )
    code = {name: i for i, name in enumerate(order)}
    return np.array([code[name] for name in names], np.int64), order


def trace(
    since_s: Floats,
    prompt_tokens: Ints,
    output_tokens: Ints,
    row: Ints,
    source: TraceSource,
    optional: Mapping[str, Any],
) -> Trace:
    """Return the trace of checked columns in order of arrival, the first arrival at 0, ties in order of rows.

    `optional` holds the optional fields of a `Trace`.
    """
    order = np.argsort(since_s, kind="stable")
    arrival_s = since_s[order]
    rest: dict[str, Any] = {
        name: each[order] if isinstance(each, np.ndarray) else each for name, each in optional.items()
    }
    return Trace(arrival_s - arrival_s[0], prompt_tokens[order], output_tokens[order], row[order], source, **rest)


def adaserve_objectives(cells: Cells, rows: TableRows) -> dict[str, Any]:
    """Return the classes and TPOT SLOs of AdaServe's artifact as fields of a `Trace`.

    The authors give three classes by ``slo_ratio``: above 0 a multiple of the baseline latency, below 0 milliseconds
    per token.
    """
    ratios = cells["slo_ratio"]
    code = np.zeros(len(ratios), np.int64)
    ratio = np.full(len(ratios), np.nan)
    seconds = np.full(len(ratios), np.nan)
    for i, cell in enumerate(ratios):
        value = number(cell)
        if value is not None and value > 0:
            ratio[i] = value
        elif value in CODE_OF_MS:
            code[i], seconds[i] = CODE_OF_MS[value], -value / 1000
        else:
            rows.damage.add(rows.numbers[i], f"slo_ratio {shown(cell)} is not above 0, -50 or -150")
    return {"slo_class": code, "slo_names": ADASERVE_CLASSES, "tpot_slo_s": seconds, "tpot_slo_ratio": ratio}


def adaserve_prompts(cells: Cells, length: Ints, code: Ints) -> tuple[Ints, str | None]:
    """Return prompt lengths (N,) in tokens of the artifact, estimated where only characters are known; and a note.

    Rows collected in one table say what their ``input_length`` counts. A file whose ``input_length`` is the length of
    the ``prompt`` text in every row (figure 14) counts characters.
    """
    counts, texts = length.tolist(), cells.get("prompt")
    known: list[object] = counts
    if UNIT in cells:
        rows = zip(counts, cells[UNIT], cells[TOKENS], strict=True)
        known = [tokens if unit == "chars" else count for count, unit, tokens in rows]
    elif texts is not None and all(count == len(str(text)) for count, text in zip(counts, texts, strict=True)):
        known = [None] * len(counts)
    unknown = np.array([count is None for count in known])
    if not unknown.any():
        return length, None
    estimate = np.maximum(1, np.rint(length / np.array(CHARACTERS_PER_TOKEN)[code])).astype(np.int64)
    given = np.array([count if isinstance(count, int) else 0 for count in known], np.int64)
    note = (
        f"{int(unknown.sum())} of {len(known)} prompt lengths are estimated from characters"
        f" ({CHARACTERS_PER_TOKEN[0]:g} per token for code, {CHARACTERS_PER_TOKEN[1]:g} for text)"
    )
    return np.where(unknown, estimate, given), note


Unit = Literal["s", "ms", "us", "ns"]
UNITS: tuple[Unit, ...] = get_args(Unit)
PER_S: dict[Unit, int] = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
STAMP = re.compile(
    r"\s*(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(?::\d\d)?)(?:[.,](\d{1,9}))? ?(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII
)
SINCE_1970_S = 1e9
"""Seconds since 1970, in September 2001."""
CHAT, PARENT = "chat_id", "parent_chat_id"
"""Columns of Bailian's traces: a request, and the one whose answer it replies to."""
BAILIAN = {CHAT, PARENT}
AIPERF = {"delay", "delay_ms"}
"""Columns of sessions in milliseconds, as aiperf and Dynamo write them."""
SPARSE_S, FAST_PER_S = 3600, 1000
"""The mean gap and the mean rate beyond which a unit is not believed."""
YEAR_S = 365.25 * 86400
MICROSECOND_S = 1e-6
MOST_YEARS = 10
LATEST_S = 1e11
"""Seconds since 1970, in the year 5138."""
SLOW_S = 100
"""The mean gap beyond which the unit may be wrong."""
UNEVEN = 0.02
"""The distance in ticks by which a gap may miss a multiple of the tick, and the share of gaps that may miss by more."""
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


def read_clock(cells: Sequence[object], column: str, rows: TableRows, unit: Unit) -> Clock:
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

    ``chat_id`` beside ``parent_chat_id`` is Bailian's, in seconds; delays are aiperf's, in milliseconds. Otherwise the
    size of stamps since 1970 tells it, or a single unit in which the mean rate is plausible.
    """
    if cells.keys() >= BAILIAN:
        return "s", f"{CHAT} and {PARENT} are Bailian's"
    if AIPERF & cells.keys():
        return "ms", "delays are aiperf's"
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


def _from_numbers(cells: Sequence[object], column: str, rows: TableRows, unit: Unit) -> Clock:
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


def _nanoseconds(cell: object) -> tuple[int, bool] | None:
    """Return nanoseconds since 1970 and whether the zone is known; None if the cell is no timestamp."""
    if isinstance(cell, np.datetime64):
        return None if np.isnat(cell) else (int(cell.astype("datetime64[ns]").astype(np.int64)), False)
    match = STAMP.fullmatch(cell) if isinstance(cell, str) else None
    if match is None:
        return None
    date, clock, fraction, zone = match.groups()
    second = _second(date, clock, zone or "+00:00")
    if second is None:
        return None
    return second * 10**9 + int((fraction or "").ljust(9, "0")), zone is not None


@lru_cache(maxsize=64)
def _second(date: str, clock: str, zone: str) -> int | None:
    """Return a second since 1970, None where no calendar has it; neighbours in a file share it."""
    try:
        return int(datetime.fromisoformat(f"{date}T{clock}{zone}").timestamp())
    except ValueError:
        return None


def check_time_unit(clock: Clock, column: str, table: FileTable, unit: Unit, chosen: bool) -> list[str]:
    """Return notes about an odd rate of arrivals; a unit that the user did not choose must make sense.

    Raises
    ------
    SpecsimError
        One line with the unit to set, when arrivals span many years or are in the far future.
    """
    file, span_s, gaps = table.file, float(clock.since_s.max()), max(1, len(clock.since_s) - 1)
    told = chosen or clock.latest_s is None
    latest_s, gap_s = 0.0 if told else clock.latest_s or 0.0, span_s / gaps
    times = {each: PER_S[unit] / PER_S[each] for each in UNITS if each != unit and not told}
    likely: list[Unit] = [
        each
        for each, factor in times.items()
        if (latest_s <= LATEST_S or SINCE_1970_S <= latest_s * factor <= LATEST_S)
        and (not span_s or 1 / FAST_PER_S <= gap_s * factor <= SPARSE_S)
    ]
    spans = ", ".join(f"in {each} {said_s(span_s * times[each])}" for each in likely)
    cure = f"; {spans}: {_set_to(likely, table)}" if likely else "; expected less"
    if latest_s > LATEST_S:
        raise SpecsimError(f"{file}: {column} reaches {latest_s:.6g} s, the year {1970 + latest_s / YEAR_S:,.0f}{cure}")
    if span_s > (LONGEST_S if told else MOST_YEARS * YEAR_S):
        raise SpecsimError(f"{file}: {column} spans {said_s(span_s)} in {unit}{cure}")
    if clock.step_s > MICROSECOND_S:
        raise SpecsimError(
            f"{file}: {column} reaches {clock.latest_s:.6g} s, where a float64 is {clock.step_s:.2g} s from the next: "
            f"expected whole numbers, or times since the first{cure if likely else ''}"
        )
    if not span_s or not likely or 1 / FAST_PER_S <= gap_s <= SLOW_S:
        return []
    rate = f"one request in {said_s(gap_s)}" if gap_s > 1 else f"{1 / gap_s:,.0f} requests/s"
    return [f"{rate}: if {column} is in {' or '.join(likely)}, {_set_to(likely, table)}"]


def unit_asked(cells: Sequence[object], column: str, table: FileTable) -> tuple[Unit, str]:
    """Return the first unit of arrivals that make sense in several, and a line that asks which it is."""
    values = [value for value in map(number, cells) if value is not None]
    span, gaps = max(values) - min(values), len(values) - 1
    units = plausible(span / gaps)
    each = [f"{unit} ({_rate_text(span / PER_S[unit], gaps)})" for unit in units]
    return units[0], f"{table.file}: {column} may be in {' or '.join(each)}: {_set_to(units, table)}"


def _rate_text(span_s: float, gaps: int) -> str:
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


def rate_text(since_s: Floats) -> str:
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


def _set_to(units: Sequence[Unit], table: FileTable) -> str:
    """Return how the user of a file, or of columns in memory, sets the unit."""
    if not table.in_memory:
        return f"set trace.time_unit={' or '.join(units)}"
    words = " or ".join(f'"{each}"' for each in units)
    return f"give simulate trace__time_unit={words}, or trace_of time_unit={words}"
