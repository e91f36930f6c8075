"""A trace by its path; the content of the file tells its container and its columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.kept import Arrays, kept
from specsim.replica.request import Prefixes
from specsim.workload import adaserve, columns
from specsim.workload.arrivals import Clock, Unit, read_clock, spread, told_unit
from specsim.workload.damage import shown
from specsim.workload.formats import ADASERVE, AZURE, HASHES, KNOWN, OBJECTIVES, VLLM, Format, choose, unread
from specsim.workload.hashes import prefixes
from specsim.workload.pace import check_pace, pace, ticks, unit_asked
from specsim.workload.sessions import sessions
from specsim.workload.sniff import open_table
from specsim.workload.table import Cells, Rows, Table
from specsim.workload.trace import Ints, Trace, TraceSource

TOLD = 8
HASHED = ("hashes", "first", "count")
INDEX = ("", "Unnamed: 0", "__index_level_0__")
"""Names that pandas gives an index that it writes."""


class Reading(NamedTuple):
    """A trace, and a text for the user about how its file was read."""

    trace: Trace
    said: str


def read_user_file(
    file: Path, source: TraceSource, *, time_unit: Unit | None = None, tick_s: float | None = None
) -> Reading:
    """Return the trace of a CSV, JSON or Parquet file, or of its gzip, with the columns of any of `formats.FORMATS`.

    Parameters
    ----------
    time_unit : of arrivals that are numbers; None: the format's, if that makes sense
    tick_s : seconds over which requests of one stamp are spread evenly; None: they arrive together

    Raises
    ------
    SpecsimError
        One line for damage or an unknown format, by line (CSV, JSON lines), row (Parquet) or entry (JSON) from 1.
    """
    if source.sha256 is None:
        return read_table(open_table(file, KNOWN), source, time_unit=time_unit, tick_s=tick_s)
    return _read_once(file, source, time_unit, tick_s)


@lru_cache(maxsize=4)
def _read_once(file: Path, source: TraceSource, time_unit: Unit | None, tick_s: float | None) -> Reading:
    """Return the trace of a file; kept by the checksum in `source`, since a sweep reads the same few files."""

    def read() -> Arrays:
        trace, said = read_table(open_table(file, KNOWN), source, time_unit=time_unit, tick_s=tick_s)
        words = {"said": said, "note": trace.source.note or "", "slo_names": trace.slo_names}
        texts = {name: np.array(each, dtype=np.str_) for name, each in words.items()}
        return {**trace.columns(), **texts, **_hashes(trace.prefixes)}

    code = sorted(Path(__file__).parent.glob("*.py"))
    found = dict(kept("trace", (str(file), source, time_unit, tick_s), code, read))
    said, note, names = (found.pop(name).tolist() for name in ("said", "note", "slo_names"))
    for column in found.values():
        column.flags.writeable = False
    told = None
    if HASHED[0] in found:
        hashes, first, count = (found.pop(name) for name in HASHED)
        told = Prefixes(hashes, first, count, int(found.pop("block_tokens")))
    trace = Trace(**found, slo_names=tuple(names), source=replace(source, note=note or None), prefixes=told)
    return Reading(trace, said)


def _hashes(prefixes: Prefixes | None) -> Arrays:
    if prefixes is None:
        return {}
    return {name: getattr(prefixes, name) for name in HASHED} | {"block_tokens": np.array(prefixes.block_tokens)}


def read_table(
    table: Table, source: TraceSource, *, time_unit: Unit | None = None, tick_s: float | None = None
) -> Reading:
    """Return the trace of a table; see `read_user_file`."""
    file, form = table.file, choose(table)
    cells, rows = table.read([name for name in dict.fromkeys(table.names) if name in (*form.columns, *form.optional)])
    if not rows.numbers:
        rows.damage.check()
        raise SpecsimError(f"{file}: no row")
    session = sessions(cells, rows)
    cells, rows, served = _served(form, cells, rows)
    clock, unit = _clock(table.file, form, cells, rows, time_unit)
    prompt, output = (columns.tokens(cells[name], name, rows) for name in (form.prompt, form.output))
    optional = adaserve.objectives(cells, rows) if form is ADASERVE else _objectives(cells, rows)
    if "cached_tokens" in cells and "cached_tokens" in form.optional:
        optional["cached_tokens"] = _cached(cells["cached_tokens"], prompt, rows)
    if session is not None:
        optional["session"] = session[served]
        rows.note(f"{len(np.unique(session[served])):,} sessions")
    rows.damage.check()
    if unit is None:
        raise unit_asked(cells[form.arrival], form.arrival, table)
    found = prefixes(cells[HASHES], prompt, rows) if HASHES in cells and HASHES in form.optional else None
    if "cached_tokens" in optional:
        share = optional["cached_tokens"].sum() / prompt.sum()
        rows.note(f"cached_tokens: {100 * share:.3g}% of the prompts' tokens are cached at arrival")
    for odd in check_pace(clock, form.arrival, table, unit, time_unit is not None):
        rows.note(odd)
    if form is ADASERVE:
        prompt, note = adaserve.prompt_tokens(cells.get("prompt"), prompt, optional["slo_class"])
        source = replace(source, note=note)
    trace = columns.trace(clock.since_s, prompt, output, served, source, optional)
    if found is not None:
        trace = replace(trace, prefixes=found.taken(np.searchsorted(served, trace.row)))
    _note_order(clock, trace, tick_s, rows)
    return Reading(_spread(trace, tick_s), _said(table, form, trace, rows))


def _served(form: Format, cells: Cells, rows: Rows) -> tuple[Cells, Rows, Ints]:
    """Return the cells and rows of served requests, without failed ones, and their indices from 0."""
    count = len(rows.numbers)
    if not form.failures:
        return cells, rows, np.arange(count, dtype=np.int64)
    lengths = zip(cells[form.prompt], cells[form.output], strict=True)
    served = [place for place, pair in enumerate(lengths) if 0 not in map(columns.number, pair)]
    if not served:
        raise SpecsimError(f"{rows.damage.file}: every request has 0 tokens")
    if len(served) < count:
        rows.note(f"left out {count - len(served):,} of {count:,} requests (0 tokens: they failed)")
        cells = {name: [column[place] for place in served] for name, column in cells.items()}
        rows = rows._replace(numbers=[rows.numbers[place] for place in served])
    return cells, rows, np.array(served, np.int64)


def _clock(file: Path, form: Format, cells: Cells, rows: Rows, chosen: Unit | None) -> tuple[Clock, Unit | None]:
    """Return the arrivals and their unit: the user's, the format's, or that of the content; None: it fits several."""
    stamps, why, unit = cells[form.arrival], None, chosen or form.unit
    if unit is None:
        unit, why = told_unit(cells, form.arrival) or (None, None)
    clock = read_clock(stamps, form.arrival, rows, unit or "s")
    if clock.latest_s is None:
        unit = unit or "s"
    if clock.latest_s is None and chosen is not None:
        raise SpecsimError(f"{file}: trace.time_unit={chosen} changes nothing: {form.arrival} holds timestamps")
    if clock.latest_s is not None and why:
        rows.note(f"{form.arrival} is in {unit} ({why}); trace.time_unit sets it")
    if clock.latest_s is None and form is not AZURE:
        rows.note(f"{form.arrival} holds timestamps")
    return clock, unit


def _objectives(cells: Cells, rows: Rows) -> dict[str, Any]:
    """Return the fields of a `Trace` from the optional columns."""
    found: dict[str, Any] = {name: columns.slos(cells[name], name, rows) for name in OBJECTIVES if name in cells}
    if "tpot_slo_s" in found and "tpot_slo_ratio" in found:
        for place in np.flatnonzero((found["tpot_slo_s"] > 0) & (found["tpot_slo_ratio"] > 0)).tolist():
            rows.damage.add(rows.numbers[place], "tpot_slo_s and tpot_slo_ratio are both given")
    if "slo_class" in cells:
        found["slo_class"], found["slo_names"] = columns.classes(cells["slo_class"], "slo_class", rows)
    return found


def _cached(cells: Sequence[object], prompt: Ints, rows: Rows) -> Ints:
    """Return the tokens of each prompt that are cached at arrival, (N,); an empty cell is 0."""
    cached = columns.tokens([0 if cell is None or cell == "" else cell for cell in cells], "cached_tokens", rows, 0)
    for place in np.flatnonzero(cached > prompt).tolist():
        said = f"cached_tokens {cached[place]} is more than the prompt's {prompt[place]}"
        rows.damage.add(rows.numbers[place], said)
    return cached


def _note_order(clock: Clock, trace: Trace, tick_s: float | None, rows: Rows) -> None:
    early = int(np.count_nonzero(clock.since_s < np.maximum.accumulate(clock.since_s)))
    if early:
        rows.note(f"sorted by arrival ({early:,} of {len(trace):,} stood behind a later one)")
    for note in ticks(trace.arrival_s) if tick_s is None else ():
        rows.note(note)


def _spread(trace: Trace, tick_s: float | None) -> Trace:
    if tick_s is None:
        return trace
    note = f"requests stamped alike are spread evenly over their tick of {tick_s:g} s" if tick_s >= 1 else None
    told = "; ".join(each for each in (trace.source.note, note) if each) or None
    return replace(trace, arrival_s=spread(trace.arrival_s, tick_s), source=replace(trace.source, note=told))


def _said(table: Table, form: Format, trace: Trace, rows: Rows) -> str:
    unused = unread(table, form)
    left = ["an index" if name in INDEX else name if name.isprintable() else shown(name) for name in unused[:TOLD]]
    left = [name if len(name) <= 40 else shown(name) for name in left]
    more = [f"{len(unused) - TOLD} more"] if len(unused) > TOLD else []
    ignored = [f"not read: {', '.join(left + more)}"] if left else []
    name = form.name if form is VLLM and table.kind == "JSON" else f"{form.name} {table.kind}"
    return "; ".join((f"read as {name}: {', '.join(form.columns)}", pace(trace.arrival_s), *rows.notes, *ignored))
