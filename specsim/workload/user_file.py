"""A trace from a file by its path, or from columns in memory; the content tells its container and its columns."""

from __future__ import annotations

from collections.abc import Mapping
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
    ROLES,
    Columns,
    choose,
)
from specsim.workload.readers import Cells, FileTable, Findings, open_table
from specsim.workload.sessions import TurnPrompts, delays, prefixes, sessions, whole_prompts
from specsim.workload.trace import Floats, Ints, Trace, TraceSource

if TYPE_CHECKING:
    from pandas import DataFrame, Series

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
    read, found = choose(table, dict(how.called)), table.found
    frame = table.read(list(dict.fromkeys(read.called.values())))
    needed = {*ROLES, *read.form.also, *dict(how.called)}
    called = {
        role: name for role, name in read.called.items() if role in needed or not columns.empty(frame[name]).all()
    }
    read = read._replace(called=called)
    if not len(frame):
        found.check()
        raise SpecsimError(f"{table.file}: no row")
    session = sessions({role: frame[name] for role, name in called.items()}, found)
    served = _served(read, frame, found, bool(how.called))
    cells: Cells = {role: frame[name].iloc[served] for role, name in called.items()}
    cells, delay_s = delays(cells, None if session is None else session[served], found)
    arrivals = _arrivals(table, read, cells, how)
    prompt, output = (columns.tokens(cells[role], found) for role in (PROMPT, OUTPUT))
    optional = _objectives(read, cells, found)
    if "cached_tokens" in cells:
        optional["cached_tokens"] = _cached(cells["cached_tokens"], prompt, found)
    if session is not None:
        optional["session"] = session[served]
        found.note(f"{len(np.unique(session[served])):,} sessions")
        optional["delay_s"] = delay_s
    found.check()
    if arrivals:
        clock, unit, asked = arrivals
        if asked and (how.tick_s is not None or not how.unit_open):
            raise SpecsimError(asked)
        since_s, source = clock.since_s, replace(source, unit_asked=asked)
        # A turn that waits for an answer has the arrival of the one before it.
        given = clock if delay_s is None else clock._replace(since_s=since_s[np.isnan(delay_s)])
        chosen = how.time_unit is not None or asked is not None
        found.notes.extend(check_time_unit(given, called[ARRIVAL], table, unit, chosen))
    else:
        since_s = np.zeros(len(prompt)) if delay_s is None else optional["session"].astype(np.float64)
    if "cached_tokens" in optional:
        share = optional["cached_tokens"].sum() / prompt.sum()
        found.note(f"cached_tokens: {100 * share:.3g}% of the prompts' tokens are cached at arrival")
    if read.form.name == ADASERVE:
        prompt, note = columns.adaserve_prompts(cells, prompt, optional["slo_class"])
        source = replace(source, note=note)
    source = replace(source, timed=arrivals is not None)
    trace = columns.trace(since_s, prompt, output, served, source, optional)
    trace = trace if arrivals else replace(trace, arrival_s=np.zeros(len(trace)))
    trace = whole_prompts(trace, how.turns, found)
    hashed = prefixes(cells[HASHES], prompt, found) if HASHES in cells and how.turns != "added" else None
    if hashed is not None:
        trace = replace(trace, prefixes=hashed.taken(np.searchsorted(served, trace.row)))
    if arrivals:
        _note_order(since_s, trace, how.tick_s, found)
    return Reading(_spread(trace, how.tick_s), _said(table, read, trace))


def _served(read: Columns, frame: DataFrame, found: Findings, named: bool) -> Ints:
    """Return the indices from 0 of the rows of served requests, without failed ones."""
    count = len(frame)
    if not (read.form.failures or named):
        return np.arange(count, dtype=np.int64)
    prompt, output = (frame[read.called[role]] for role in (PROMPT, OUTPUT))
    untold = columns.empty(output) & (read.form.logged or named)
    if 2 * untold.sum() > count:
        raise SpecsimError(
            f"{found.file}: {untold.sum():,} of {count:,} requests have no {output.name}; expected counts "
            "of all answers' tokens (streams, too), or another column: 'trace.columns={output_tokens: YOURS}'"
        )
    served = np.flatnonzero(~untold & (columns.numbers(prompt) != 0) & (columns.numbers(output) != 0))
    if not len(served):
        raise SpecsimError(f"{found.file}: every request has 0 tokens")
    if len(served) < count:
        none = "no or 0" if untold.any() else "0"
        found.note(f"left out {count - len(served):,} of {count:,} requests ({none} tokens: they failed)")
    return served


def _arrivals(table: FileTable, read: Columns, cells: Cells, how: How) -> tuple[Clock, Unit, str | None] | None:
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
        unit, asked = unit_asked(cells[ARRIVAL], table)
    clock = read_clock(cells[ARRIVAL], table.found, unit)
    if clock.latest_s is None and how.time_unit is not None:
        raise SpecsimError(f"{table.file}: trace.time_unit={how.time_unit} changes nothing: {name} holds timestamps")
    if clock.latest_s is not None and why:
        table.found.note(f"{name} is in {unit} ({why}); trace.time_unit sets it")
    if clock.latest_s is None and read.form.name != "Azure":
        table.found.note(f"{name} holds timestamps")
    return (clock, "s", None) if clock.latest_s is None else (clock, unit, asked)


def _objectives(read: Columns, cells: Cells, found: Findings) -> dict[str, Any]:
    """Return the classes and objectives in the columns as fields of a `Trace`."""
    if read.form.name == ADASERVE:
        return columns.adaserve_objectives(cells["slo_ratio"], found)
    told: dict[str, Any] = {role: columns.slos(cells[role], found) for role in OBJECTIVES if role in cells}
    if "tpot_slo_s" in told and "tpot_slo_ratio" in told:
        both = cells["tpot_slo_s"][(told["tpot_slo_s"] > 0) & (told["tpot_slo_ratio"] > 0)]
        found.add_cells(both, lambda _: "and tpot_slo_ratio are both given")
    if "slo_class" in cells:
        told["slo_class"], told["slo_names"] = columns.classes(cells["slo_class"], found)
    return told


def _cached(column: Series[Any], prompt: Ints, found: Findings) -> Ints:
    """Return the tokens of each prompt that are cached at arrival, (N,); an empty cell is 0."""
    cached = columns.tokens(column.astype(object).mask(columns.empty(column), 0), found, 0)
    for place in np.flatnonzero(cached > prompt).tolist():
        said = f"{column.name} {cached[place]} is more than the prompt's {prompt[place]}"
        found.add(column.index[place], said)
    return cached


def _note_order(since_s: Floats, trace: Trace, tick_s: float | None, found: Findings) -> None:
    early = int(np.count_nonzero(since_s < np.maximum.accumulate(since_s)))
    if early:
        found.note(f"sorted by arrival ({early:,} of {len(trace):,} stood behind a later one)")
    for note in ticks(trace.arrival_s[~trace.waits]) if tick_s is None and not trace.source.unit_asked else ():
        found.note(note)


def _spread(trace: Trace, tick_s: float | None) -> Trace:
    if tick_s is None:
        return trace
    note = f"requests stamped alike are spread evenly over their tick of {tick_s:g} s" if tick_s >= 1 else None
    told = "; ".join(each for each in (trace.source.note, note) if each) or None
    return replace(trace, arrival_s=spread(trace.arrival_s, tick_s), source=replace(trace.source, note=told))


def _said(table: FileTable, read: Columns, trace: Trace) -> str:
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
    return "; ".join((f"read as {read.form.name} {table.kind}: {told}", span, *table.found.notes, *ignored))


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
    from pandas import DataFrame

    try:
        named = [(str(each), _cells(column)) for each, column in columns.items()]
    except (TypeError, ValueError, AttributeError):
        raise SpecsimError(f"{name}: {represented(columns)} holds no columns by name") from None
    cells = dict(named)
    if len(counts := {len(column) for column in cells.values()}) > 1:
        raise SpecsimError(f"{name}: its columns differ in length")
    rows = range(1, max(counts, default=0) + 1)
    how = keys.how(CheckedMapping(name, "", settings))._replace(unit_open=unit_open)
    table = FileTable(
        *(Path(name), "columns", tuple(each for each, _ in named)),
        lambda wanted: DataFrame({each: cells[each] for each in wanted}).set_axis(rows),
        _findings(columns, name),
    )
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


def _findings(columns: DataFrame | Mapping[str, Any], name: str) -> Findings:
    """Return what collects damaged rows: a DataFrame's have labels of their own."""
    index: Any = getattr(columns, "index", None)
    if not hasattr(index, "tolist"):
        return Findings(Path(name), "row")
    return Findings(Path(name), "index", label=lambda row: shown(index[row - 1 : row].tolist()[0]))


def _cells(column: Any) -> Series[Any]:
    """Return a column of numbers, timestamps or plain values, numbered from 0; time since any moment is a timestamp."""
    from pandas import Series

    if getattr(getattr(column, "dtype", None), "tz", None) is not None:
        column = column.dt.tz_convert(None)
    values = np.asarray(column)
    if values.dtype.kind == "m":
        values = np.datetime64(0, "ns") + values
    return Series(values) if values.ndim == 1 and values.dtype.kind in "Miuf" else Series(values.tolist(), dtype=object)
