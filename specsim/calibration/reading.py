"""Points of a measured server, from its benchmark's files."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

from specsim.calibration.replay import Cost, Door, Load, Loop, served
from specsim.errors import SpecsimError, nearest
from specsim.latency.engine import Engine
from specsim.latency.model import MEMORY_SHARE, Profile
from specsim.workload.columns import not_a_number, number, tokens
from specsim.workload.readers import Cells, Damage, Rows, Table, content, lines, open_table, utf8

REQUESTS_OF_A_CLIENT = 10
REQUESTS_AT_A_RATE = 1000
"""Where the points do not say how many requests were sent; at a rate, as vLLM's client defaults to."""
BUDGET_TOKENS = 8192
"""Batched tokens of a pass at most: what `vllm serve` (max_num_batched_tokens) defaults to on GPUs of 80 GB."""


class Point(NamedTuple):
    """A load and the mean seconds to the first token and per output token after it."""

    load: Load
    ttft_s: float
    tpot_s: float

    @property
    def e2e_s(self) -> float:
        """Mean seconds of a request."""
        return self.ttft_s + (self.load.osl - 1) * self.tpot_s

    @property
    def in_flight(self) -> float:
        """Requests in the server at a time, on average: the clients, or by Little's law."""
        return self.load.rate * self.e2e_s if self.load.rate else self.load.concurrency


class Held(NamedTuple):
    """A point, and the same as it was simulated."""

    measured: Point
    simulated: Point

    @property
    def ttft_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.ttft_s / self.measured.ttft_s - 1

    @property
    def tpot_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.tpot_s / self.measured.tpot_s - 1

    @property
    def e2e_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated.e2e_s / self.measured.e2e_s - 1


@dataclass(frozen=True, slots=True)
class Server:
    """Where points were measured: a profile whose target serves alone, and the batched tokens of a pass at most.

    `on_load` is called before a load is simulated, to show progress.
    """

    profile: Profile
    budget_tokens: int = BUDGET_TOKENS
    on_load: Callable[[], object] = int

    @property
    def cache_tokens(self) -> float:
        """Tokens that fit beside the target's weights alone: a server without speculation has no draft model."""
        target = self.profile.target
        return (MEMORY_SHARE * self.profile.memory_bytes - target.weights_bytes) / target.kv_bytes_per_token

    def fits(self, load: Load, engine: Engine) -> bool:
        """Return whether all caches fit at any time: beyond, engines queue and preempt by rules of their own."""
        if load.rate:
            return float(self._loop(load, engine).shapes.context_tokens.max()) + load.isl <= self.cache_tokens
        return load.concurrency * (load.isl + load.osl) <= self.cache_tokens

    def simulated(self, points: Sequence[Point], engine: Engine) -> list[Held]:
        """Return the points beside their simulation on an engine."""
        target = engine.running(self.profile).target
        again = [Point(each.load, *self._loop(each.load, engine).latencies(target)) for each in points]
        return [Held(*both) for both in zip(points, again, strict=True)]

    def costs(self, load: Load, engine: Engine) -> tuple[Cost, Cost]:
        """Return TTFT and TPOT as the host's seconds change them, in the passes that an engine runs."""
        bare = replace(engine, overhead_s=0.0, request_s=0.0)
        return self._loop(load, engine).costs(bare.running(self.profile).target)

    def _loop(self, load: Load, engine: Engine) -> Loop:
        self.on_load()
        if not engine.frontend_s and not load.rate:
            return _loop(load, self.budget_tokens, engine.pipeline_steps)
        door = Door(engine.pipeline_steps, engine.frontend_s, engine.running(self.profile).target)
        return served(load, self.budget_tokens, door)


@lru_cache(maxsize=512)
def _loop(load: Load, budget_tokens: int, pipeline_steps: int) -> Loop:
    """Return the passes of a closed loop without a frontend, which do not depend on their seconds."""
    return served(load, budget_tokens, Door(pipeline_steps))


BENCH, RATE = "max_concurrency", "request_rate"
NO_PAUSE = (inf, "inf")
TOTALS = {"isl": "total_input_tokens", "osl": "total_output_tokens"}
COLUMNS = ("isl", "osl", "concurrency", "rate", "requests", "mean_ttft_ms", "mean_tpot_ms")
KEYS = ("completed", *TOTALS.values(), "mean_ttft_ms", "mean_tpot_ms")
LENGTHS = ("input_lens", "output_lens")
SPECULATION = "spec_decode_acceptance_rate"


def results_in(raw: bytes, file: Path) -> Table | None:
    """Return the results in a file as a table of points, None where it holds none."""
    found = _objects(lines(utf8(raw)[0]).read())
    if not found or not all(
        isinstance(each, Mapping) and {"completed", *TOTALS.values()} & set(each) for each in found
    ):
        return None

    def read(wanted: Sequence[str]) -> tuple[Cells, Rows]:
        rows = Rows(range(1, len(found) + 1), Damage(file, "result"), [])
        points = [_point(place, each, rows) for place, each in zip(rows.numbers, found, strict=True)]
        rows.damage.check()
        return {name: [each[name] for each in points] for name in wanted}, rows

    return Table(file, "results", COLUMNS, read)


def _objects(text: str) -> list[Any]:
    """Return the JSON values of a text: one, those of a list, or one a line."""
    try:
        value = json.loads(text)
    except (ValueError, RecursionError):
        try:
            return [json.loads(line) for line in text.splitlines() if line.strip()]
        except (ValueError, RecursionError):
            return []
    return value if isinstance(value, list) else [value]


def _point(place: int, result: Mapping[str, Any], rows: Rows) -> dict[str, object]:
    """Return the cells of one result; what is wrong in it is noted."""
    missing = [key for key in KEYS if key not in result]
    done = number(result.get("completed"))
    if missing:
        rows.damage.add(place, f"no {missing[0]}")
    elif done is None or done < 1:
        rows.damage.add(place, f"completed {result['completed']!r}; expected requests that were served")
    elif wrong := _wrong_load(result):
        rows.damage.add(place, wrong)
    elif SPECULATION in result:
        rows.damage.add(place, f"{SPECULATION}: the server speculates; expected one that does not")
    if result.get("failed"):
        rows.note(f"{rows.damage.file}: {result['failed']} requests failed; the means are of the others")
    if any(len(set(result[name])) > 1 for name in LENGTHS if isinstance(result.get(name), list)):
        rows.note(f"{rows.damage.file}: lengths vary; every request is taken to have their means")
    cells: dict[str, object] = {key: result.get(key) for key in KEYS}
    for name, total in TOTALS.items():
        held = number(result.get(total))
        cells[name] = result.get(total) if held is None or not done else round(held / done)
    rate = result.get(RATE)
    return {**cells, "concurrency": result.get(BENCH), "rate": rate, "requests": result.get("completed")}


def _wrong_load(result: Mapping[str, Any]) -> str | None:
    """Return what is wrong with how requests were sent."""
    clients, rate = result.get(BENCH), result.get(RATE, inf)
    if clients is None and rate in NO_PAUSE:
        return f"no {BENCH} and {RATE} inf: all requests at once; expected --max-concurrency N or --request-rate R"
    if clients is not None and rate not in NO_PAUSE:
        return f"{RATE} {rate} and {BENCH} {clients}; expected one of them"
    if rate not in NO_PAUSE and result.get("burstiness", 1.0) != 1.0:
        return f"burstiness {result['burstiness']}; expected 1, a Poisson process"
    return None


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
