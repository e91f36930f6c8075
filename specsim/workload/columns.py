"""Checked columns from the cells of a file: arrivals and their unit, tokens, objectives, classes."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from math import isfinite, nan
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from specsim.core.request import LONGEST_S
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import shown
from specsim.workload.readers import Cells, FileTable, Findings
from specsim.workload.slo import MOST_CLASSES, problem_of
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

if TYPE_CHECKING:
    from pandas import Series

ADASERVE_CLASSES = ("coding", "chat", "summarization")
COLLECTED = UNIT, TOKENS = "input_length_unit", "input_tokens"
"""Columns of AdaServe's workloads collected in one table, beside those of the artifact."""
CODE_OF_MS = {-50.0: 1, -150.0: 2}
# Measured by the collectors of the data on prompts with both lengths; used for prompts with characters alone.
CHARACTERS_PER_TOKEN = (3.4, 4.6, 4.6)
MAX_TOKENS = 10_000_000
MOST_NUMBER = 1e300
COMMA = re.compile(r"\s*[+-]?[0-9]*,[0-9,.]+\s*", re.ASCII)


def number(cell: object) -> float | None:
    """Return a finite number, or None for ``nan``, ``1_000``, a boolean or any text that is no number."""
    if isinstance(cell, str):
        try:
            value = float(cell) if cell.isascii() and "_" not in cell else nan
        except ValueError:
            return None
    elif isinstance(cell, int | float) and not isinstance(cell, bool):
        value = float(cell) if abs(cell) < MOST_NUMBER else nan
    else:
        return None
    return value if isfinite(value) else None


def numbers(column: Series[Any]) -> Floats:
    """Return the number in each cell (N,), NaN for any that holds none."""
    if _numeric(column):
        values = column.to_numpy(np.float64)
        return np.where(np.abs(values) < MOST_NUMBER, values, nan)
    return np.array([number(cell) for cell in column.tolist()], np.float64)


def _numeric(column: Series[Any]) -> bool:
    """Return whether all cells are numpy's numbers."""
    return isinstance(column.dtype, np.dtype) and column.dtype.kind in "iuf"


def is_empty(cell: Any) -> bool:
    """Return whether a cell is an empty text, None, NaN, or pandas' NA or NaT."""
    if isinstance(cell, str | float):
        return cell == "" or cell != cell
    return cell is None or type(cell).__name__ in ("NAType", "NaTType")


def empty(column: Series[Any]) -> NDArray[np.bool_]:
    """Return which cells are empty, (N,)."""
    if _numeric(column):
        return column.isna().to_numpy()
    return np.array([is_empty(cell) for cell in column.tolist()], np.bool_)


def not_a_number(cell: object, wanted: str = "a number") -> str:
    """Return what is wrong with a cell that is no number."""
    comma = isinstance(cell, str) and COMMA.fullmatch(cell)
    return f"{shown(cell)} holds a comma; expected a decimal point" if comma else f"{shown(cell)} is not {wanted}"


def tokens(column: Series[Any], found: Findings, least: int = 1) -> Ints:
    """Return token counts (N,), each `least` to ``MAX_TOKENS``; damaged cells are noted and read as 1."""
    values = numbers(column)
    whole, inside = values % 1 == 0, (least <= values) & (values <= MAX_TOKENS)
    found.add_cells(column[~whole], lambda cell: not_a_number(cell, "a whole number"))
    bounds = f"is not in {least}..{MAX_TOKENS}"
    found.add_cells(column[whole & ~inside], lambda cell: f"{shown(_whole(cell) or int(number(cell) or 0))} {bounds}")
    for cell in column[whole].tolist():
        if isinstance(cell, float) or (isinstance(cell, str) and not {".", "e", "E"}.isdisjoint(cell)):
            found.note(f"{column.name} are whole numbers written like {shown(cell)}")
            break
    return np.where(whole & inside, values, 1).astype(np.int64)


def slos(column: Series[Any], found: Findings) -> Floats:
    """Return SLOs (N,), each above 0, NaN for an empty cell; damaged cells are noted."""
    values = numbers(column)
    found.add_cells(column[~(empty(column) | (values > 0))], lambda cell: not_a_number(cell, "a number above 0"))
    return values


def classes(column: Series[Any], found: Findings) -> tuple[Ints, tuple[str, ...]]:
    """Return class codes (N,) and names in alphabetical order; a cell that is no name is noted."""
    names = column.map(_name).to_numpy(object)
    wrong = {name for name in set(names) if problem_of(name)}
    damaged = np.array([name in wrong for name in names])
    found.add_cells(column[damaged], lambda cell: f"{shown(cell)} {problem_of(_name(cell))}")
    order, code = np.unique(np.where(damaged, "", names), return_inverse=True)
    if len(order) > MOST_CLASSES:
        raise SpecsimError(
            f"{found.file}: {column.name} names {len(order):,} classes; expected at most {MOST_CLASSES:,}"
        )
    return code, tuple(order.tolist())


def _name(cell: object) -> str:
    return cell.strip() if isinstance(cell, str) else ""


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


def adaserve_objectives(column: Series[Any], found: Findings) -> dict[str, Any]:
    """Return the classes and TPOT SLOs of AdaServe's artifact as fields of a `Trace`.

    The authors give three classes by ``slo_ratio``: above 0 a multiple of the baseline latency, below 0 milliseconds
    per token.
    """
    values = numbers(column)
    found.add_cells(
        column[~((values > 0) | np.isin(values, list(CODE_OF_MS)))],
        lambda cell: f"{shown(cell)} is not above 0, -50 or -150",
    )
    code = np.array([CODE_OF_MS.get(value, 0) for value in values.tolist()], np.int64)
    ratio, seconds = np.where(values > 0, values, nan), np.where(values > 0, nan, -values / 1000)
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
STAMP = re.compile(r"\s*\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::\d\d(?:[.,]\d{1,9})?)? ?(Z|[+-]\d\d(?::?\d\d)?)?\s*", re.ASCII)
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


def read_clock(column: Series[Any], found: Findings, unit: Unit) -> Clock:
    """Return the arrival of each row; damaged cells are noted and read as 0.

    Numbers are finite, not negative and in `unit`. Timestamps are in ISO 8601 to the nanosecond, all with a zone or all
    without, or numpy's.
    """
    import pandas as pd

    values = numbers(column)
    if not np.isnan(values).any():
        return _from_numbers(column, values, found, unit)
    stamps, zoned = _stamps(column)
    first = int((stamps.notna() | ~np.isnan(values)).argmax())
    if pd.isna(stamps.iloc[first]):
        return _from_numbers(column, values, found, unit)
    other = "no time zone" if zoned[first] else "a time zone"
    found.add_cells(column[stamps.isna()], lambda cell: f"{shown(cell)} is no time like {EXAMPLE}")
    found.add_cells(
        column[stamps.notna() & (zoned != zoned[first])],
        lambda cell: f"{shown(cell)} has {other}, unlike rows before it",
    )
    times = stamps.fillna(stamps.min()).dt.tz_localize(None).to_numpy()
    # Without a sign, as two times may be further apart than int64 counts.
    return Clock((times - times.min()).view(np.uint64) / PER_S[stamps.dt.unit], None)


def _stamps(column: Series[Any]) -> tuple[Series[Any], NDArray[np.bool_]]:
    """Return timestamps in UTC, NaT for a cell that holds none, and which of them (N,) have a zone of their own."""
    import pandas as pd

    if column.dtype.kind == "M":
        return pd.to_datetime(column, utc=True), np.zeros(len(column), np.bool_)
    written = str, datetime, np.datetime64
    matches = [STAMP.fullmatch(str(cell)) if isinstance(cell, written) else None for cell in column]
    texts = [None if match is None else match[0].strip().replace(",", ".") for match in matches]
    stamps = pd.to_datetime(pd.Series(texts, column.index, object), utc=True, format="ISO8601", errors="coerce")
    return stamps, np.array([match is not None and match[1] is not None for match in matches], np.bool_)


def told_unit(cells: Cells, column: str) -> tuple[Unit, str] | None:
    """Return the unit of arrivals that are numbers in a column of no unit of its own, and what tells it; None: nothing.

    ``chat_id`` beside ``parent_chat_id`` is Bailian's, in seconds; delays are aiperf's, in milliseconds. Otherwise the
    size of stamps since 1970 tells it, or a single unit in which the mean rate is plausible.
    """
    if cells.keys() >= BAILIAN:
        return "s", f"{CHAT} and {PARENT} are Bailian's"
    if AIPERF & cells.keys():
        return "ms", "delays are aiperf's"
    values = numbers(cells[column])
    values = values[~np.isnan(values)]
    least, most = (values.min(), values.max()) if len(values) else (0.0, 0.0)
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


def _from_numbers(column: Series[Any], values: Floats, found: Findings, unit: Unit) -> Clock:
    found.add_cells(column[np.isnan(values)], not_a_number)
    found.add_cells(column[values < 0], lambda cell: f"{number(cell):g} is negative")
    values = np.where(values >= 0, values, 0.0)
    latest_s = float(values.max()) / PER_S[unit]
    far = latest_s > LONGEST_S or values.max() > 2**53
    exact = [_whole(cell) for cell in column.tolist()] if far else []
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


def unit_asked(column: Series[Any], table: FileTable) -> tuple[Unit, str]:
    """Return the first unit of arrivals that make sense in several, and a line that asks which it is."""
    values = numbers(column)
    span, gaps = float(np.nanmax(values) - np.nanmin(values)), int(np.count_nonzero(~np.isnan(values))) - 1
    units = plausible(span / gaps)
    each = [f"{unit} ({_rate_text(span / PER_S[unit], gaps)})" for unit in units]
    return units[0], f"{table.file}: {column.name} may be in {' or '.join(each)}: {_set_to(units, table)}"


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
