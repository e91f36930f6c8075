"""The published traces as their owners wrote them: Azure's CSV and Mooncake's JSON lines."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, datetime
from io import StringIO
from pathlib import Path

import numpy as np

from specsim.errors import SpecsimError
from specsim.workload import columns
from specsim.workload.columns import Rows
from specsim.workload.damage import Damage, shown, text
from specsim.workload.trace import Floats, Trace, TraceSource

AZURE_HEADER = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"]
AZURE_STAMP = re.compile(r"(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)(?:\.(\d{1,7}))?", re.ASCII)
TICKS_PER_S = 10_000_000
MOONCAKE_KEYS = ("timestamp", "input_length", "output_length")


def read_azure(file: Path, source: TraceSource) -> Trace:
    """Return a trace of AzurePublicDataset (2023): wall-clock stamps in 100 ns ticks, tokens in and out.

    Raises
    ------
    SpecsimError
        One line for whatever is damaged, with line numbers; 0 tokens are damage (the files hold none).
    """
    header, lines = csv_rows(file)
    if header != AZURE_HEADER:
        raise SpecsimError(f"{file}: line 1: header {shown(','.join(header))}, expected {','.join(AZURE_HEADER)}")
    rows = Rows([line for line, _ in lines], Damage(file))
    cells = checked_width(lines, header, rows)
    ticks = [_azure_ticks(stamp, line, rows) for stamp, line in zip(cells[0], rows.numbers, strict=True)]
    first = next((tick for tick in ticks if tick is not None), 0)
    since = [None if tick is None else (tick - first) / TICKS_PER_S for tick in ticks]
    arrival_s = columns.arrivals(since, "TIMESTAMP (seconds since the first)", rows)
    prompt = columns.tokens(cells[1], AZURE_HEADER[1], rows)
    output = columns.tokens(cells[2], AZURE_HEADER[2], rows)
    rows.damage.check()
    return columns.trace(arrival_s, prompt, output, source)


def read_mooncake(file: Path, source: TraceSource, *, tick_s: float) -> Trace:
    """Return a trace of Mooncake's FAST25 release; requests of one stamp are spread evenly over its tick.

    The conversation trace is stamped in ticks of 3 s: its burstiness below 3 s is lost and not restored here.

    Raises
    ------
    SpecsimError
        One line for whatever is damaged, with line numbers.
    """
    damage = Damage(file)
    cells: list[list[object]] = [[], [], []]
    numbers: list[int] = []
    for line, record in _json_lines(text(file), damage):
        numbers.append(line)
        for cell, key in zip(cells, MOONCAKE_KEYS, strict=True):
            cell.append(record.get(key))
    rows = Rows(numbers, damage)
    stamp_s = columns.arrivals(cells[0], MOONCAKE_KEYS[0], rows) / 1000
    prompt = columns.tokens(cells[1], MOONCAKE_KEYS[1], rows)
    output = columns.tokens(cells[2], MOONCAKE_KEYS[2], rows)
    damage.check()
    note = f"requests stamped alike are spread evenly over their tick of {tick_s:g} s" if tick_s >= 1 else None
    return columns.trace(spread(stamp_s, tick_s), prompt, output, replace(source, note=note))


def spread(stamp_s: Floats, tick_s: float) -> Floats:
    """Return arrivals (N,): the k-th of m requests stamped alike moves by k/m of the tick (or of the gap)."""
    first = np.flatnonzero(np.diff(stamp_s, prepend=-1.0) > 0)
    size = np.diff(first, append=len(stamp_s))
    width_s = np.minimum(tick_s, np.diff(stamp_s[first], append=np.inf))
    place = np.arange(len(stamp_s)) - np.repeat(first, size)
    return np.asarray(stamp_s + np.repeat(width_s / size, size) * place, np.float64)


def csv_rows(file: Path) -> tuple[list[str], list[tuple[int, list[str]]]]:
    """Return the header and the (line number, cells) of the rows of a CSV; empty last lines are none."""
    reader = csv.reader(StringIO(text(file), newline=""), strict=True)
    try:
        lines = [(reader.line_num, cells) for cells in reader]
    except csv.Error as error:
        raise SpecsimError(f"{file}: line {reader.line_num}: not CSV ({error})") from None
    while lines and not lines[-1][1]:
        lines.pop()
    if len(lines) < 2:
        raise SpecsimError(f"{file}: no row behind the header line")
    return [cell.strip() for cell in lines[0][1]], lines[1:]


def checked_width(lines: list[tuple[int, list[str]]], header: list[str], rows: Rows) -> list[list[str]]:
    """Return the cells column by column; rows of another width and repeated headers are noted."""
    wanted = len(header)
    for line, cells in lines:
        if not any(cell.strip() for cell in cells):
            rows.damage.add(line, "empty line")
        elif [cell.strip() for cell in cells] == header:
            rows.damage.add(line, "the header again")
        elif len(cells) != wanted:
            rows.damage.add(line, f"{len(cells)} cells where the header has {wanted}")
    padded = [(cells + [""] * wanted)[:wanted] if len(cells) != wanted else cells for _, cells in lines]
    return [list(column) for column in zip(*padded, strict=True)]


def _azure_ticks(stamp: str, line: int, rows: Rows) -> int | None:
    match = AZURE_STAMP.fullmatch(stamp.strip())
    try:
        if match is None:
            raise ValueError
        # Whole seconds by the calendar, ticks by hand: datetime knows microseconds only.
        second = int(datetime.fromisoformat(match[1]).replace(tzinfo=UTC).timestamp())
    except ValueError:
        rows.damage.add(line, f"TIMESTAMP {shown(stamp)} is not like 2023-11-16 18:17:03.9799600")
        return None
    return second * TICKS_PER_S + int((match[2] or "").ljust(7, "0"))


def _json_lines(body: str, damage: Damage) -> Iterator[tuple[int, dict[str, object]]]:
    decode: Callable[[str], object] = json.loads
    for line, record in enumerate(body.rstrip().split("\n"), start=1):
        try:
            value = decode(record)
        except (json.JSONDecodeError, RecursionError):
            damage.add(line, "not a JSON object" if record.strip() else "empty line")
            continue
        if isinstance(value, dict):
            yield line, value
        else:
            damage.add(line, "not a JSON object")
