"""A trace from a file by its path, or from columns in memory; the content tells its container and its columns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.errors import SpecsimError, represented
from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.workload import columns
from specsim.workload import entry as keys
from specsim.workload.columns import (
    Clock,
    Unit,
    check_time_unit,
    rate_text,
    read_clock,
    spread,
    ticks,
    told_unit,
    unit_asked,
)
from specsim.workload.entry import How
from specsim.workload.formats import (
    ADASERVE,
    ARRIVAL,
    HASHES,
    KNOWN,
    OBJECTIVES,
    OUTPUT,
    PROMPT,
    REQUIRED,
    ROLES,
    Columns,
    choose,
)
from specsim.workload.readers import Cells, Damage, FileTable, TableRows, open_table
from specsim.workload.sessions import TurnPrompts, delays, prefixes, sessions, whole_prompts
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

if TYPE_CHECKING:
    from pandas import DataFrame

TOLD = 8
INDEX = ("", "Unnamed: 0", "__index_level_0__")
"""Names that pandas gives an index that it writes."""


class Reading(NamedTuple):
    """A trace, and a text for the user about how its file was read."""

    trace: Trace
    said: str


def read_user_file(file: Path, source: TraceSource, how: How | None = None) -> Reading:
    """Return the trace of a CSV, JSON or Parquet file, or of its gzip, with the columns of any of `formats.FORMATS`.

    Raises
    ------
    SpecsimError
        One line for damage or an unknown format, by line (CSV, JSON lines), row (Parquet) or entry (JSON) from 1.
    """
    if source.sha256 is not None:
        return _read_once(file, source, how or How())
    return read_table(open_table(file, KNOWN), source, how or How())


@lru_cache(maxsize=4)
def _read_once(file: Path, source: TraceSource, how: How) -> Reading:
    """Return the trace of a file; kept by the checksum in `source`, since a sweep reads the same few files."""
    found = read_table(open_table(file, KNOWN), source, how)
    for column in found.trace.columns().values():
        column.flags.writeable = False
    return found


def read_table(table: FileTable, source: TraceSource, how: How) -> Reading:
    """Return the trace of a table; see `read_user_file`."""
    read = choose(table, dict(how.called))
    cells, rows = table.read(list(dict.fromkeys(read.called.values())))
    needed = {*ROLES, *read.form.also, *dict(how.called)}
    empty = {role for role, name in read.called.items() if all(map(columns.is_empty, cells[name]))} - needed
    read = read._replace(called={role: name for role, name in read.called.items() if role not in empty})
    cells = {role: cells[name] for role, name in read.called.items()}
    if not rows.numbers:
        rows.damage.check()
        raise SpecsimError(f"{table.file}: no row")
    session = sessions(cells, rows)
    cells, rows, served = _served(read, cells, rows, bool(how.called))
    cells, delay_s = delays(cells, None if session is None else session[served], rows)
    arrivals = _arrivals(table, read, cells, rows, how)
    prompt, output = (columns.tokens(cells[role], read.called[role], rows) for role in (PROMPT, OUTPUT))
    optional = _objectives(read, cells, rows)
    if "cached_tokens" in cells:
        optional["cached_tokens"] = _cached(cells["cached_tokens"], read.called["cached_tokens"], prompt, rows)
    if session is not None:
        optional["session"] = session[served]
        rows.note(f"{len(np.unique(session[served])):,} sessions")
        optional["delay_s"] = delay_s
    rows.damage.check()
    if arrivals:
        clock, unit, asked = arrivals
        if asked and (how.tick_s is not None or not how.unit_open):
            raise SpecsimError(asked)
        since_s, source = clock.since_s, replace(source, unit_asked=asked)
        # A turn that waits for an answer has the arrival of the one before it.
        given = clock if delay_s is None else clock._replace(since_s=since_s[np.isnan(delay_s)])
        chosen = how.time_unit is not None or asked is not None
        rows.notes.extend(check_time_unit(given, read.called[ARRIVAL], table, unit, chosen))
    else:
        since_s = np.zeros(len(prompt)) if delay_s is None else optional["session"].astype(np.float64)
    if "cached_tokens" in optional:
        share = optional["cached_tokens"].sum() / prompt.sum()
        rows.note(f"cached_tokens: {100 * share:.3g}% of the prompts' tokens are cached at arrival")
    if read.form.name == ADASERVE:
        prompt, note = columns.adaserve_prompts(cells, prompt, optional["slo_class"])
        source = replace(source, note=note)
    source = replace(source, timed=arrivals is not None)
    trace = columns.trace(since_s, prompt, output, served, source, optional)
    trace = trace if arrivals else replace(trace, arrival_s=np.zeros(len(trace)))
    trace = whole_prompts(trace, how.turns, table.file, rows)
    found = prefixes(cells[HASHES], prompt, rows) if HASHES in cells and how.turns != "added" else None
    if found is not None:
        trace = replace(trace, prefixes=found.taken(np.searchsorted(served, trace.row)))
    if arrivals:
        _note_order(since_s, trace, how.tick_s, rows)
    return Reading(_spread(trace, how.tick_s), _said(table, read, trace, rows))


def _served(read: Columns, cells: Cells, rows: TableRows, named: bool) -> tuple[Cells, TableRows, Ints]:
    """Return the cells and rows of served requests, without failed ones, and their indices from 0."""
    count = len(rows.numbers)
    if not (read.form.failures or named):
        return cells, rows, np.arange(count, dtype=np.int64)
    lengths = list(zip(cells[PROMPT], cells[OUTPUT], strict=True))
    logged = read.form.logged or named
    untold = {place for place, (_, output) in enumerate(lengths) if logged and columns.is_empty(output)}
    if 2 * len(untold) > count:
        raise SpecsimError(
            f"{rows.damage.file}: {len(untold):,} of {count:,} requests have no {read.called[OUTPUT]}; expected counts "
            "of all answers' tokens (streams, too), or another column: 'trace.columns={output_tokens: YOURS}'"
        )
    served = [at for at, pair in enumerate(lengths) if at not in untold and not any(map(columns.is_zero, pair))]
    if not served:
        raise SpecsimError(f"{rows.damage.file}: every request has 0 tokens")
    if len(served) < count:
        none = "no or 0" if untold else "0"
        rows.note(f"left out {count - len(served):,} of {count:,} requests ({none} tokens: they failed)")
        cells = {name: [column[place] for place in served] for name, column in cells.items()}
        rows = rows._replace(numbers=[rows.numbers[place] for place in served])
    return cells, rows, np.array(served, np.int64)


def _arrivals(
    table: FileTable, read: Columns, cells: Cells, rows: TableRows, how: How
) -> tuple[Clock, Unit, str | None] | None:
    """Return arrivals, their unit, the user's, the format's or that of the content, and a line where it fits several.

    Returns None for a table of lengths alone.
    """
    for key in ("time_unit", "tick_s"):
        if ARRIVAL not in cells and getattr(how, key) is not None:
            raise SpecsimError(f"{table.file}: trace.{key}={getattr(how, key)} changes nothing: it has no arrivals")
    if ARRIVAL not in cells:
        return None
    name, why, asked, unit = read.called[ARRIVAL], None, None, how.time_unit or read.unit
    if unit is None:
        unit, why = told_unit(cells, ARRIVAL) or (None, None)
    if unit is None:
        unit, asked = unit_asked(cells[ARRIVAL], name, table)
    clock = read_clock(cells[ARRIVAL], name, rows, unit)
    if clock.latest_s is None and how.time_unit is not None:
        raise SpecsimError(f"{table.file}: trace.time_unit={how.time_unit} changes nothing: {name} holds timestamps")
    if clock.latest_s is not None and why:
        rows.note(f"{name} is in {unit} ({why}); trace.time_unit sets it")
    if clock.latest_s is None and read.form.name != "Azure":
        rows.note(f"{name} holds timestamps")
    return (clock, "s", None) if clock.latest_s is None else (clock, unit, asked)


def _objectives(read: Columns, cells: Cells, rows: TableRows) -> dict[str, Any]:
    """Return the classes and objectives in the columns as fields of a `Trace`."""
    if read.form.name == ADASERVE:
        return columns.adaserve_objectives(cells, rows)
    called = read.called
    found: dict[str, Any] = {
        role: columns.slos(cells[role], called[role], rows) for role in OBJECTIVES if role in cells
    }
    if "tpot_slo_s" in found and "tpot_slo_ratio" in found:
        for place in np.flatnonzero((found["tpot_slo_s"] > 0) & (found["tpot_slo_ratio"] > 0)).tolist():
            rows.damage.add(rows.numbers[place], "tpot_slo_s and tpot_slo_ratio are both given")
    if "slo_class" in cells:
        found["slo_class"], found["slo_names"] = columns.classes(cells["slo_class"], called["slo_class"], rows)
    return found


def _cached(cells: Sequence[object], name: str, prompt: Ints, rows: TableRows) -> Ints:
    """Return the tokens of each prompt that are cached at arrival, (N,); an empty cell is 0."""
    cached = columns.tokens([0 if cell is None or cell == "" else cell for cell in cells], name, rows, 0)
    for place in np.flatnonzero(cached > prompt).tolist():
        said = f"{name} {cached[place]} is more than the prompt's {prompt[place]}"
        rows.damage.add(rows.numbers[place], said)
    return cached


def _note_order(since_s: Floats, trace: Trace, tick_s: float | None, rows: TableRows) -> None:
    early = int(np.count_nonzero(since_s < np.maximum.accumulate(since_s)))
    if early:
        rows.note(f"sorted by arrival ({early:,} of {len(trace):,} stood behind a later one)")
    for note in ticks(trace.arrival_s[~trace.waits]) if tick_s is None and not trace.source.unit_asked else ():
        rows.note(note)


def _spread(trace: Trace, tick_s: float | None) -> Trace:
    if tick_s is None:
        return trace
    note = f"requests stamped alike are spread evenly over their tick of {tick_s:g} s" if tick_s >= 1 else None
    told = "; ".join(each for each in (trace.source.note, note) if each) or None
    return replace(trace, arrival_s=spread(trace.arrival_s, tick_s), source=replace(trace.source, note=told))


def _said(table: FileTable, read: Columns, trace: Trace, rows: TableRows) -> str:
    unused = [name for name in table.names if name not in read.called.values()]
    left = ["an index" if name in INDEX else name if name.isprintable() else shown(name) for name in unused[:TOLD]]
    left = [name if len(name) <= 40 else shown(name) for name in left]
    more = [f"{len(unused) - TOLD} more"] if len(unused) > TOLD else []
    ignored = [f"not read: {', '.join(left + more)}"] if left else []
    span = rate_text(trace.arrival_s[~trace.waits])
    if not trace.source.timed:
        span = f"{len(trace):,} requests, no arrivals"
    elif trace.source.unit_asked:
        span = f"{len(trace):,} requests, arrivals in no known unit"
    elif trace.waits.any():
        span = f"{len(trace):,} requests; with an arrival of their own: {span}"
    told = ", ".join(read.called[name] for name in (*ROLES, *read.form.also) if name in read.called)
    return "; ".join((f"read as {read.form.name} {table.kind}: {told}", span, *rows.notes, *ignored))


def trace_of(
    columns: DataFrame | Mapping[str, Any],
    name: str = "DataFrame",
    *,
    time_unit: Unit | None = None,
    tick_s: float | None = None,
    turns: TurnPrompts | None = None,
) -> Trace:
    """Return the trace of these columns, in order of arrival, with the first arrival at 0.

    Parameters
    ----------
    columns : a DataFrame, or sequences of one length by name: those of any file that docs/trace-formats.md names, as
        ``arrival_s``, ``prompt_tokens`` and ``output_tokens``; a missing value (None, NaN) is an empty cell.
    name : of the trace, in messages and in the provenance, which also holds the checksum of the columns.
    time_unit : of arrivals that are numbers: ``"s"``, ``"ms"``, ``"us"`` or ``"ns"``; None: docs/trace-formats.md.
    tick_s : seconds over which requests of one stamp are spread evenly; None: they arrive together.
    turns : whether prompts of sessions' turns are ``"whole"``, or what a turn ``"added"``; None: the content tells.

    Raises
    ------
    SpecsimError
        One line for an unknown or missing column, and for damaged rows, by the index of a DataFrame, else from 1.
    """
    return of_columns(columns, name, {"time_unit": time_unit, "tick_s": tick_s, "turns": turns})


def of_columns(
    columns: DataFrame | Mapping[str, Any], name: str, settings: Mapping[str, Any], *, unit_open: bool = False
) -> Trace:
    """Return the trace of columns by the `settings` of `trace_of`; `unit_open` is as in `How`."""
    try:
        named = [(str(each), column) for each, column in columns.items()]
        cells = {each: _cells(column, each) for each, column in named}
    except (TypeError, ValueError, AttributeError):
        raise SpecsimError(f"{name}: {represented(columns)} holds no columns by name") from None
    counts = {len(column) for column in cells.values()}
    if len(counts) > 1:
        raise SpecsimError(f"{name}: its columns differ in length")
    count = counts.pop() if counts else 0

    def read(wanted: Sequence[str]) -> tuple[Cells, TableRows]:
        return {each: cells[each] for each in wanted}, TableRows(range(1, count + 1), _damage(columns, name), [])

    how = keys.how(CheckedMapping(name, "", settings))._replace(unit_open=unit_open)
    table = FileTable(Path(name), "columns", tuple(each for each, _ in named), read)
    trace, said = read_table(table, TraceSource(name, "object"), how)
    return replace(trace, source=replace(trace.source, sha256=content_sha256(trace))).noted(f"{name}: {said}")


def content_sha256(trace: Trace) -> str:
    """Return the checksum of a trace: of all columns and the names of the classes."""
    digest = sha256(repr(trace.slo_names).encode())
    for name, column in trace.columns().items():
        digest.update(f"{name}:".encode())
        digest.update(np.ascontiguousarray(column).tobytes())
    if (prefixes := trace.prefixes) is not None:
        hashes = [prefixes.hashes[at : at + size] for at, size in zip(prefixes.first, prefixes.count, strict=True)]
        for each in (prefixes.count, *hashes, np.array(prefixes.block_tokens)):
            digest.update(each.tobytes())
    return digest.hexdigest()


def _damage(columns: DataFrame | Mapping[str, Any], name: str) -> Damage:
    """Return what collects damaged rows: a DataFrame's have labels of their own."""
    index: Any = getattr(columns, "index", None)
    if not hasattr(index, "tolist"):
        return Damage(Path(name), "row")
    return Damage(Path(name), "index", lambda row: shown(index[row - 1 : row].tolist()[0]))


def _cells(column: Any, name: str) -> list[object]:
    """Return a column as plain values: times, and time since any moment, as ``numpy.datetime64[ns]``.

    Missing values are None, unless the column may have none: then they stay what they are.
    """
    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column)
    if values.dtype.kind == "m":
        values = np.datetime64(0, "ns") + values
    if values.dtype.kind == "M":
        return ["NaT" if np.isnat(each) else each for each in values.astype("datetime64[ns]")]
    cells: list[object] = values.tolist()
    return cells if name in REQUIRED else [None if columns.is_missing(cell) else cell for cell in cells]
