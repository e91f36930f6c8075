"""The tables of docs/served-points.md about composed profiles."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from profiler.text import table
from specsim.calibration.fit import CLIENTS, Errors
from studies.served_points.composed import GROUP, HALVES, rows_of, scored

LEAST_ROWS, LEAST_FAR_ROWS, FAR = 20, 10, 0.15
"""Rows of a group that is held to the library's estimate and listed, and of one that is listed as far off."""
HEAD = ("kind", "model, GPU, engine, precision", "rows", "TPOT, seen", "TPOT", "library's", "E2E", "library's", "rate")
CLIENT_HEAD = ("kind", "clients", "rows", "TPOT", "library's TPOT", "E2E", "library's E2E")
KIND_HEAD = ("kind", "engine", "rows", "TPOT", "library's TPOT", "E2E", "library's E2E")
LEFT_OUT_HEAD = ("left out", "rows")
REFUSED = "placements that are not composed (kernels, memory), caches that do not fit"


def errors(half: str) -> Any:
    """Return the rows of a half that have errors: a pandas frame."""
    rows = scored(half)
    return rows[rows["refused"] == ""]


def left_out_table() -> str:
    """Return how many rows of both halves are left out for which reason."""
    found = rows_of(HALVES).left_out
    refused = sum(int((scored(half)["refused"] != "").sum()) for half in HALVES)
    return table(LEFT_OUT_HEAD, [[reason, f"{count:,}"] for reason, count in (*found.items(), (REFUSED, refused))])


def groups_table() -> str:
    """Return the errors of large groups and of those far off, by kind, then by the size of those of the unseen half."""
    seen = dict(iter(errors("seen").groupby(GROUP)))
    groups = [(key, rows) for key, rows in errors("unseen").groupby(GROUP) if _listed(rows)]
    groups.sort(key=lambda each: (each[1]["kind"].iloc[0], -_median(each[1]["tpot"])))
    return table(HEAD, [_row(key, rows, seen.get(key)) for key, rows in groups])


def _listed(rows: Any) -> bool:
    return len(rows) >= LEAST_ROWS or (len(rows) >= LEAST_FAR_ROWS and _median(rows["tpot"]) > FAR)


def _row(key: Any, rows: Any, seen: Any) -> list[str]:
    return [
        rows["kind"].iloc[0],
        ", ".join(filter(None, key)),
        f"{len(rows)}",
        "-" if seen is None else _cell(seen["tpot"]),
        _cell(rows["tpot"]),
        _cell(rows["library_tpot"]),
        _cell(rows["e2e"]),
        _cell(rows["library_e2e"]),
        _cell(rows["throughput"]),
    ]


def clients_table() -> str:
    """Return the errors of the unseen half by the number of clients."""
    return table(CLIENT_HEAD, _client_rows(errors("unseen")))


def _client_rows(rows: Any) -> Iterator[list[str]]:
    bracket = np.searchsorted(CLIENTS, rows["clients"])
    for (kind, place), some in rows.groupby(["kind", bracket]):
        above = f"{CLIENTS[place - 1] + 1}" if place else "1"
        name = f"{above}-{CLIENTS[place]}" if place < len(CLIENTS) else f"from {above}"
        yield [kind, name, *_four(some)]


def kinds_table() -> str:
    """Return the errors of the unseen half by kind of model, and by engine."""
    rows = errors("unseen")
    named = [((kind, "all"), some) for kind, some in rows.groupby("kind")]
    named += list(rows.groupby(["kind", "engine"]))
    return table(KIND_HEAD, [[*key, *_four(some)] for key, some in sorted(named, key=lambda each: each[0])])


def _four(rows: Any) -> list[str]:
    columns = ("tpot", "library_tpot", "e2e", "library_e2e")
    return [f"{len(rows)}", *(_cell(rows[name]) for name in columns)]


def farther() -> str:
    """Return the groups of the unseen half that the library's own estimate is nearer to, with enough rows."""
    groups = [(key, rows) for key, rows in errors("unseen").groupby(GROUP) if len(rows) >= LEAST_ROWS]
    worse = [(key, rows) for key, rows in groups if _median(rows["tpot"]) > _median(rows["library_tpot"])]
    names = [
        f"{', '.join(filter(None, key))} ({_percent(rows['tpot'])} against {_percent(rows['library_tpot'])}%)"
        for key, rows in worse
    ]
    return f"{len(groups) - len(worse)} of {len(groups)}; not in {'; '.join(names)}"


def _cell(values: Any) -> str:
    return str(Errors.of(values.tolist()))


def _median(values: Any) -> float:
    return float(values.abs().median())


def _percent(values: Any) -> str:
    return f"{100 * _median(values):.1f}"
