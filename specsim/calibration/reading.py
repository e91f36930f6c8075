"""Points from files: a table with a row a point, or results of ``vllm bench serve``; every mistake is one line."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from specsim.calibration.bench_result import BENCH, results_in
from specsim.calibration.load import Load
from specsim.calibration.points import REQUESTS_AT_A_RATE, REQUESTS_OF_A_CLIENT, Point
from specsim.errors import SpecsimError, nearest
from specsim.workload.columns import not_a_number, number, tokens
from specsim.workload.readers import Cells, Rows, Table, content, open_table

COUNTS = {"isl": ("isl", "input_tokens"), "osl": ("osl", "output_tokens")}
LEAST = {"isl": 1, "osl": 2}
CLIENTS = ("concurrency", BENCH)
TIMES = {
    "ttft": {"ttft_ms": 1e-3, "ttft_s": 1.0, "mean_ttft_ms": 1e-3},
    "tpot": {"tpot_ms": 1e-3, "tpot_s": 1.0, "mean_tpot_ms": 1e-3},
}
REQUESTS, SHARE = ("requests", "num_prompts"), "shortest_share"
GPUS = ("gpus", "tp_size", "tensor_parallel_size")
RATES = ("rate", "request_rate", "rps", "qps")
KNOWN = frozenset((*COUNTS["isl"], *COUNTS["osl"], *CLIENTS, *RATES, *TIMES["ttft"], *TIMES["tpot"]))
MOST_S = MOST_RATE = 1e5


class Measured(NamedTuple):
    """Points, the checksum of the files that hold them, and what to tell of these."""

    points: list[Point]
    sha256: str
    notes: list[str]


def read_points(files: Sequence[Path], gpus: int) -> Measured:
    """Return the points of some files, measured on so many GPUs.

    Raises
    ------
    SpecsimError
        One line for a column that is missing, a damaged row, other GPUs, a load that stands there twice.
    """
    digest, notes = hashlib.sha256(), list[str]()
    found: dict[Load, str] = {}  # without the number of requests
    points: list[Point] = []
    for file in files:
        raw = content(file, "file of points")
        digest.update(raw)
        table = results_in(raw, file) or open_table(file, KNOWN)
        rows, those = _points(table, gpus)
        notes += [note for note in rows.notes if note not in notes]
        for place, point in zip(rows.numbers, those, strict=True):
            here = f"{file}: {rows.damage.unit} {place}"
            load = point.load._replace(requests=0)
            if load in found:
                raise SpecsimError(
                    f"{here}: isl {load.isl}, osl {load.osl}, {load.sent} stands at {found[load]} too; "
                    "expected each load once, with its mean"
                )
            found[load] = here
            points.append(point)
    return Measured(points, digest.hexdigest(), notes)


def _points(table: Table, gpus: int) -> tuple[Rows, list[Point]]:
    """Return the rows of a table and the point in each."""
    names = {key: _column(table, key, those) for key, those in COUNTS.items()}
    senders = (_first(table, CLIENTS), _first(table, RATES))
    if senders == (None, None):
        _column(table, "concurrency", ())
    times = {key: _time(table, key, units) for key, units in TIMES.items()}
    optional = [name for name in (*REQUESTS, SHARE, *GPUS) if name in table.names]
    cells, rows = table.read([*names.values(), *filter(None, senders), *times.values(), *optional])
    isl, osl = (tokens(cells[name], name, rows, LEAST[key]).tolist() for key, name in names.items())
    ttft, tpot = (_seconds(cells, name, TIMES[key][name], rows) for key, name in times.items())
    clients, rates = _senders(cells, *senders, rows)
    requests = _requests(cells, clients, rows)
    shares = _shares(cells, rows)
    _check_gpus(cells, gpus, rows)
    rows.damage.check()
    if not isl:
        raise SpecsimError(f"{table.file}: no row; expected one for each point")
    loads = [Load(*each) for each in zip(isl, osl, clients, requests, shares, rates, strict=True)]
    return rows, [Point(*each) for each in zip(loads, ttft, tpot, strict=True)]


def _column(table: Table, key: str, names: Sequence[str]) -> str:
    """Return the column that holds a count."""
    if (name := _first(table, names)) is not None:
        return name
    close = nearest(key, [name for name in table.names if name not in KNOWN])
    hint = close if "did you mean" in close else ""
    raise SpecsimError(
        f"{table.file}: no column {key}; expected isl, osl, concurrency or rate, ttft_ms and tpot_ms{hint}"
    )


def _first(table: Table, names: Sequence[str]) -> str | None:
    """Return the first of some names that a column has."""
    return next((name for name in names if name in table.names), None)


def _senders(cells: Cells, concurrency: str | None, rate: str | None, rows: Rows) -> tuple[list[int], list[float]]:
    """Return the clients of each row and the requests a second, one of them 0: a closed loop or an open one."""
    nothing: list[object] = [None] * len(rows.numbers)
    clients, rates = [], []
    of_clients, of_rates = (nothing if name is None else cells[name] for name in (concurrency, rate))
    for row, some, often in zip(rows.numbers, of_clients, of_rates, strict=True):
        at_a_rate = not _empty(often)
        if _empty(some) != at_a_rate:
            both = " and ".join(name for name in (concurrency, rate) if name)
            said = f"{both} both given" if at_a_rate else f"{both.replace(' and ', ' or ')} not given"
            rows.damage.add(row, f"{said}; expected clients that wait for their answer, or a rate")
        if at_a_rate and (number(often) is None or not 0 < (number(often) or 0) <= MOST_RATE):
            rows.damage.add(row, f"{rate} {not_a_number(often, f'a number above 0 and at most {MOST_RATE:g}')}")
        rates.append(number(often) or 1.0 if at_a_rate else 0.0)
        one_row = Rows([row], rows.damage, rows.notes)
        clients.append(0 if at_a_rate or _empty(some) else int(tokens([some], str(concurrency), one_row)[0]))
    return clients, rates


def _empty(cell: object) -> bool:
    """Return whether a cell is of the other kind of load: nothing, or the rate of clients that never pause."""
    return cell is None or str(cell).strip().lower() in ("", "nan", "inf", "infinity")


def _time(table: Table, key: str, units: Mapping[str, float]) -> str:
    """Return the column that holds a time, whose name tells the unit."""
    for name in units:
        if name in table.names:
            return name
    if key in table.names:
        raise SpecsimError(f"{table.file}: column {key}: no unit; expected {key}_ms or {key}_s")
    return _column(table, f"{key}_ms", ())


def _seconds(cells: Cells, name: str, unit_s: float, rows: Rows) -> list[float]:
    seconds = []
    for row, cell in zip(rows.numbers, cells[name], strict=True):
        value = number(cell)
        if value is None:
            rows.damage.add(row, f"{name} {not_a_number(cell)}")
        elif not 0 < value * unit_s < MOST_S:
            rows.damage.add(row, f"{name} {value:g} is not above 0 and below {MOST_S / unit_s:g}")
        seconds.append((value or 1.0) * unit_s)
    return seconds


def _requests(cells: Cells, clients: Sequence[int], rows: Rows) -> list[int]:
    """Return how many requests were sent; ten for each client, or a thousand, where the points do not say."""
    name = next((name for name in REQUESTS if name in cells), None)
    if name is None:
        return [REQUESTS_OF_A_CLIENT * each or REQUESTS_AT_A_RATE for each in clients]
    sent: list[int] = tokens(cells[name], name, rows).tolist()
    for row, count, least in zip(rows.numbers, sent, clients, strict=True):
        if count < least:
            rows.damage.add(row, f"{name} {count} is below concurrency {least}")
    return sent


def _shares(cells: Cells, rows: Rows) -> list[float]:
    """Return the shortest length as a share of the longest, 1 where the points do not say."""
    shares = []
    for row, cell in zip(rows.numbers, cells.get(SHARE, [1.0] * len(rows.numbers)), strict=True):
        value = number(cell)
        if value is None or not 0 < value <= 1:
            rows.damage.add(row, f"{SHARE} {not_a_number(cell, 'a number above 0 and at most 1')}")
        shares.append(value or 1.0)
    return shares


def _check_gpus(cells: Cells, gpus: int, rows: Rows) -> None:
    """Note the rows that were measured on another number of GPUs than the profile's."""
    for name in GPUS:
        for row, cell in zip(rows.numbers, cells.get(name, ()), strict=False):
            if number(cell) != gpus:
                rows.damage.add(row, f"{name} {cell}, and the profile is of {gpus}")
