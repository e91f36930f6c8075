"""Points of a measured server, from its benchmark's files."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from math import inf, nan
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from specsim.calibration.benchmarks import BENCH, LENGTHS, RATE, STARTS, TOTALS, Result, drafted, results
from specsim.calibration.replay import BenchLoad, Cost, Door, Loop, served
from specsim.errors import SpecsimError, nearest
from specsim.latency.drafter import Drafter, equipped, without_drafter
from specsim.latency.engine import Engine
from specsim.latency.model import ModelLatency, Profile
from specsim.schedulers.parts.batching import RESERVES
from specsim.workload.columns import not_a_number, number, numbers, tokens
from specsim.workload.readers import FileTable, Findings, content, frame, open_table
from specsim.workload.trace import Floats

if TYPE_CHECKING:
    from pandas import DataFrame, Series

REQUESTS_OF_A_CLIENT = 10
REQUESTS_AT_A_RATE = 1000
"""Where the points do not say how many requests were sent; at a rate, as vLLM's client defaults to."""
BUDGET_TOKENS = 8192
"""Batched tokens of a pass at most: what `vllm serve` (max_num_batched_tokens) defaults to on GPUs of 80 GB."""


class MeasuredPoint(NamedTuple):
    """A load and the mean seconds to the first token and per output token after it."""

    load: BenchLoad
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


def counted(points: Sequence[MeasuredPoint]) -> str:
    """Return how many loads of which kind there are."""
    at_a_rate = sum(each.load.rate > 0 for each in points)
    kinds = ((len(points) - at_a_rate, "closed"), (at_a_rate, "open"))
    return f"{' and '.join(f'{number} {kind}' for number, kind in kinds if number)} loop{'s' * (len(points) > 1)}"


class Held(NamedTuple):
    """A point, and the same as it was simulated."""

    measured: MeasuredPoint
    simulated: MeasuredPoint

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
class MeasuredServer:
    """Where points were measured: a profile, the batched tokens of a pass at most, and what drafts where a point does.

    Without a `drafter` it is the profile's draft model. `on_load` is called before each simulation, to show progress.
    """

    profile: Profile
    budget_tokens: int = BUDGET_TOKENS
    on_load: Callable[[], object] = int
    drafter: Drafter | None = None

    def running(self, engine: Engine, load: BenchLoad) -> Profile:
        """Return the profile as an engine runs a load, with the drafter."""
        profile = engine.running(self.profile)
        profile = profile if self.drafter is None else equipped(profile, self.drafter)
        return engine.speculating(profile, drafts=load.drafts) if load.drafts else profile

    def cache_tokens(self, load: BenchLoad, engine: Engine) -> int:
        """Return the tokens that fit beside the weights: a server without speculation has no drafter."""
        profile = self.running(engine, load)
        return (profile if load.drafts else without_drafter(profile)).usable_kv_tokens

    def fits(self, load: BenchLoad, engine: Engine) -> bool:
        """Return whether all caches, and what is reserved, fit at any time: beyond, engines queue and preempt."""
        if load.rate:
            share, ahead = RESERVES[engine.batches_on(self.profile).reserves]
            shapes, whole = self._loop(load, engine).shapes, load.isl + load.osl
            held = shapes.context_tokens + share * (shapes.requests * whole - shapes.context_tokens)
            most = float(held.max()) + load.isl + (min(ahead, load.osl) if share else 0)
        else:
            most = load.concurrency * (load.isl + load.osl)
        return most <= self.cache_tokens(load, engine)

    def simulated(self, points: Sequence[MeasuredPoint], engine: Engine) -> list[Held]:
        """Return the points beside their simulation on an engine."""
        models = {each.load.drafts: self._models(engine, each.load) for each in points}
        again = [MeasuredPoint(load, *self._loop(load, engine).latencies(*models[load.drafts])) for load, *_ in points]
        return [Held(*both) for both in zip(points, again, strict=True)]

    def costs(self, load: BenchLoad, engine: Engine) -> tuple[Cost, Cost]:
        """Return TTFT and TPOT as the host's seconds change them, in the passes that an engine runs."""
        bare = replace(engine, overhead_s=0.0, request_s=0.0)
        return self._loop(load, engine).costs(*self._models(bare, load))

    def _models(self, engine: Engine, load: BenchLoad) -> tuple[ModelLatency, ModelLatency]:
        profile = self.running(engine, load)
        return profile.target, profile.draft

    def _loop(self, load: BenchLoad, engine: Engine) -> Loop:
        self.on_load()
        batches = engine.batches_on(self.profile)
        order = batches.order == "prompts_first", batches.chunked_prefill
        steps = engine.steps_ahead(speculating=load.drafts > 0)
        if not engine.frontend_s and not load.rate:
            return _loop(load, self.budget_tokens, steps, *order)
        door = Door(steps, engine.frontend_s, *self._models(engine, load), *order)
        return served(load, self.budget_tokens, door)


@lru_cache(maxsize=512)
def _loop(load: BenchLoad, budget_tokens: int, pipeline_steps: int, first: bool, chunked: bool) -> Loop:
    """Return the passes of a closed loop without a frontend, which do not depend on their seconds."""
    return served(load, budget_tokens, Door(pipeline_steps, prompts_first=first, chunked_prefill=chunked))


NO_PAUSE = (inf, "inf")
SPECULATION = ("num_speculative_tokens", "acceptance_length")
LISTED = ("listed", "listed_s")
NTH = "run_number"
"""Which repetition of its settings a result of `vllm bench sweep` is, from 0; below 0 is its warm-up."""
COLUMNS = ("isl", "osl", "concurrency", "rate", "requests", "mean_ttft_ms", "mean_tpot_ms", *SPECULATION, *LISTED, NTH)
RESULTS = "results"
KEYS = ("completed", *TOTALS.values(), "mean_ttft_ms", "mean_tpot_ms")


def table_of(found: Sequence[Result], file: Path) -> FileTable:
    """Return the results of a file as a table of points, without warm-ups, which may be shorter than any load."""
    rows = Findings(file, "result")
    measured = {place: each for place, each in enumerate(found, start=1) if (number(each.get(NTH)) or 0) >= 0}

    def read(wanted: Sequence[str]) -> DataFrame:
        for place in sorted({*range(1, len(found) + 1)} - {*measured}):
            rows.note(f"{file}: {rows.at(place)}: left out, a warm-up ({NTH} below 0)")
        points = [_point(place, each, rows) for place, each in measured.items()]
        rows.check()
        return frame({name: [each[name] for each in points] for name in wanted}, list(measured))

    return FileTable(file, RESULTS, COLUMNS, read, rows)


def _point(place: int, result: Mapping[str, Any], found: Findings) -> dict[str, object]:
    """Return the cells of one result; its faults are noted."""
    missing = [key for key in KEYS if key not in result]
    done = number(result.get("completed"))
    *speculation, lacking = drafted(result)
    if missing:
        found.add(place, f"no {missing[0]}")
    elif done is None or done < 1:
        found.add(place, f"completed {result['completed']!r}; expected requests that were served")
    elif wrong := _wrong_load(result):
        found.add(place, wrong)
    elif lacking:
        found.add(place, lacking)
    elif isinstance(starts := result.get(STARTS), list) and None in map(number, starts):
        found.add(place, f"{STARTS}: expected a number each")
    if result.get("failed"):
        found.note(f"{found.file}: {result['failed']} requests failed; the means are of the others")
    listed, listed_s = _listed(result)
    # A request that failed is listed with 0 tokens.
    if not listed and any(len({*result[name]} - {0}) > 1 for name in LENGTHS if isinstance(result.get(name), list)):
        found.note(f"{found.file}: lengths vary; every request is taken to have their means")
    if listed and not listed_s and result.get(RATE, inf) not in NO_PAUSE:
        found.note(f"{found.file}: no {STARTS}; the times at which its requests are sent are drawn")
    cells: dict[str, object] = {key: result.get(key) for key in KEYS}
    for name, total in TOTALS.items():
        held = number(result.get(total))
        cells[name] = result.get(total) if held is None or not done else round(held / done)
    cells |= zip(SPECULATION, speculation, strict=True)
    rate = result.get(RATE)
    cells |= {"concurrency": result.get(BENCH), "rate": rate, "requests": result.get("completed")}
    return cells | dict(zip(LISTED, (listed, listed_s), strict=True)) | {NTH: number(result.get(NTH))}


def _listed(result: Mapping[str, Any]) -> tuple[tuple[tuple[int, int], ...], tuple[float, ...]]:
    """Return the lengths of a result's requests in the order in which they were sent, and of a rate when, in seconds.

    Both are empty where the result lists none, or not all that were served.
    """
    lists = [result.get(name) for name in (*LENGTHS, STARTS)]
    isl, osl, starts = ([number(each) or 0 for each in cells] if isinstance(cells, list) else [] for cells in lists)
    if not len(isl) == len(osl) == result.get("completed") or min(isl + osl, default=0) < 1:
        return (), ()
    sent = np.argsort(starts, kind="stable").tolist() if len(starts) == len(isl) else range(len(isl))
    listed = tuple((int(isl[place]), int(osl[place])) for place in sent)
    at_a_rate = len(starts) == len(isl) and result.get(RATE, inf) not in NO_PAUSE
    return listed, tuple(starts[place] - min(starts) for place in sent) if at_a_rate else ()


def _wrong_load(result: Mapping[str, Any]) -> str | None:
    """Return what is wrong with how requests were sent."""
    clients, rate = result.get(BENCH), result.get(RATE, inf)
    if clients is None and rate in NO_PAUSE:
        return f"no {BENCH} and {RATE} inf: requests at once or a ramp; expected --max-concurrency N or --request-rate"
    if clients is not None and rate not in NO_PAUSE:
        return f"{RATE} {rate} and {BENCH} {clients}; expected one of them"
    if rate not in NO_PAUSE and result.get("burstiness", 1.0) != 1.0:
        return f"burstiness {result['burstiness']}; expected 1, a Poisson process (inf: requests at even gaps)"
    return None


COUNTS = {"isl": ("isl", "input_tokens"), "osl": ("osl", "output_tokens")}
LEAST = {"isl": 1, "osl": 2}
CLIENTS = ("concurrency", BENCH)
TIMES = {
    "ttft": {"ttft_ms": 1e-3, "ttft_s": 1.0, "mean_ttft_ms": 1e-3},
    "tpot": {"tpot_ms": 1e-3, "tpot_s": 1.0, "mean_tpot_ms": 1e-3},
}
REQUESTS, SHARE = ("requests", "num_prompts"), "shortest_share"
DRAFTS = ("num_speculative_tokens", "k")
ACCEPTANCES = ("acceptance_length", "acceptance_rate", "acceptance_rates")
"""How a point says what a step brings: tokens, accepted of drafted tokens, or the shares of drafts by position."""
GPUS = ("gpus", "tp_size", "tensor_parallel_size")
RATES = ("rate", "request_rate", "rps", "qps")
KNOWN = frozenset((*COUNTS["isl"], *COUNTS["osl"], *CLIENTS, *RATES, *TIMES["ttft"], *TIMES["tpot"]))
MOST_S = MOST_RATE = 1e5
MOST_DRAFTS = 64


class Measured(NamedTuple):
    """Points, the checksum of the files that hold them, and what to tell of these."""

    points: list[MeasuredPoint]
    sha256: str
    notes: list[str]


def read_points(files: Sequence[Path], gpus: int) -> Measured:
    """Return the points of some files, measured on so many GPUs.

    Raises
    ------
    SpecsimError
        One line for a column that is missing, a damaged row, other GPUs, a load that stands there twice.
    """
    digest, tables = hashlib.sha256(), list[FileTable]()
    for file in files:
        raw = content(file, "file of points")
        digest.update(raw)
        found = results(raw)
        tables.append(table_of(found, file) if found else open_table(file, KNOWN))
    points, notes = gathered(tables, gpus)
    return Measured(points, digest.hexdigest(), notes)


def gathered(tables: Iterable[FileTable], gpus: int | None) -> tuple[list[MeasuredPoint], list[str]]:
    """Return the points of some tables and what to tell of them; see `read_points`. `gpus` None: on however many.

    Results of `vllm bench sweep` that repeat a load are one point, their mean.
    """
    found: dict[BenchLoad, dict[float | None, tuple[MeasuredPoint, str]]] = {}
    notes = list[str]()
    for table in tables:
        those = _points(table, gpus)
        notes += [note for note in table.found.notes if note not in notes]
        for place, (point, run) in those.items():
            here = f"{table.file}: {table.found.at(place)}"
            load = point.load._replace(requests=0, listed=(), listed_s=())
            if run is not None and load.drafts:  # Acceptance lengths of repetitions differ by chance.
                load = load._replace(acceptance_length=1.0)
            runs = found.setdefault(load, {})
            if runs and (run is None or not runs.keys().isdisjoint((run, None))):
                _, there = runs.get(run, next(iter(runs.values())))
                raise SpecsimError(
                    f"{here}: isl {load.isl}, osl {load.osl}, {load.sent} stands at {there} too; "
                    "expected each load once, with its mean"
                )
            runs[run] = point, here
    points = [_mean([point for point, _ in runs.values()]) for runs in found.values()]
    count = sum(map(len, found.values()))
    if count > len(points):
        notes.append(f"{count} results: the repetitions of a load make one point, their mean")
    return points, notes


def _mean(points: Sequence[MeasuredPoint]) -> MeasuredPoint:
    """Return the mean of points of one load, with the requests of the first."""
    load, *_ = points[0]
    length, ttft_s, tpot_s = np.mean([(each.load.acceptance_length, *each[1:]) for each in points], axis=0).tolist()
    return MeasuredPoint(load._replace(acceptance_length=length), ttft_s, tpot_s)


def _points(table: FileTable, gpus: int | None) -> dict[int, tuple[MeasuredPoint, float | None]]:
    """Return the point in each row of a table, by the row's number, and which repetition of its load it is."""
    names = {key: _column(table, key, those) for key, those in COUNTS.items()}
    senders = (_first(table, CLIENTS), _first(table, RATES))
    if senders == (None, None):
        _column(table, "concurrency", ())
    times = {key: _time(table, key, units) for key, units in TIMES.items()}
    further = (*REQUESTS, SHARE, *GPUS, *DRAFTS, *ACCEPTANCES, *((*LISTED, NTH) if table.kind == RESULTS else ()))
    optional = [name for name in further if name in table.names]
    wanted = [*names.values(), *filter(None, senders), *times.values(), *optional]
    for name in wanted:
        if table.names.count(name) > 1:
            raise SpecsimError(f"{table.file}: {table.where}column {name!r} is there twice")
    cells = table.read(wanted).astype(object)
    found = table.found
    isl, osl = (tokens(cells[name], found, LEAST[key]).tolist() for key, name in names.items())
    units = {name: TIMES[key][name] for key, name in times.items()}
    ttft, tpot = ((unit_s * _above_0(cells[name], found, MOST_S / unit_s)).tolist() for name, unit_s in units.items())
    clients, rates = _senders(cells, *senders, found)
    requests = _requests(cells, clients, found)
    shares = _above_0(cells[SHARE], found, 1).tolist() if SHARE in cells else [1.0] * len(isl)
    drafts, lengths = _speculation(cells, found)
    for name in GPUS if gpus is not None else ():
        if name in cells:
            others = cells[name][numbers(cells[name]) != gpus]
            found.add_cells(others, lambda cell: f"{cell}, and the profile is of {gpus}")
    found.check()
    if not isl and table.kind != RESULTS:
        raise SpecsimError(f"{table.file}: no row; expected one for each point")
    listed = [cells[name].tolist() if name in cells else [()] * len(isl) for name in LISTED]
    fields = (isl, osl, clients, requests, shares, rates, drafts, lengths, *listed)
    loads = [BenchLoad(*each) for each in zip(*fields, strict=True)]
    points = [MeasuredPoint(*each) for each in zip(loads, ttft, tpot, strict=True)]
    runs = cells[NTH].tolist() if NTH in cells else [None] * len(points)
    return dict(zip(cells.index.tolist(), zip(points, runs, strict=True), strict=True))


def _column(table: FileTable, key: str, names: Sequence[str]) -> str:
    """Return the column that holds a count."""
    if (name := _first(table, names)) is not None:
        return name
    close = nearest(key, [name for name in table.names if name not in KNOWN])
    hint = close if "did you mean" in close else ""
    raise SpecsimError(
        f"{table.file}: no column {key}; expected isl, osl, concurrency or rate, ttft_ms and tpot_ms{hint}"
    )


def _first(table: FileTable, names: Sequence[str]) -> str | None:
    """Return the first of some names that a column has."""
    return next((name for name in names if name in table.names), None)


def _senders(
    cells: DataFrame, concurrency: str | None, rate: str | None, found: Findings
) -> tuple[list[int], list[float]]:
    """Return the clients of each row and the requests a second, one of them 0: a closed loop or an open one."""
    nothing = frame({"": [None] * len(cells)}, cells.index)[""]
    clients, rates = (nothing if name is None else cells[name] for name in (concurrency, rate))
    closed, rated = ~clients.map(_empty), ~rates.map(_empty)
    for row in cells.index[closed == rated]:
        both = " and ".join(name for name in (concurrency, rate) if name)
        said = f"{both} both given" if rated[row] else f"{both.replace(' and ', ' or ')} not given"
        found.add(row, f"{said}; expected clients that wait for their answer, or a rate")
    counts = tokens(clients.where(closed, 1), found)
    per_s = np.where(rated, _above_0(rates.where(rated, 1.0), found, MOST_RATE), 0.0)
    return np.where(rated, 0, counts).tolist(), per_s.tolist()


def _above_0(column: Series[Any], found: Findings, most: float) -> Floats:
    """Return numbers (N,) above 0 and up to `most`; any other value is noted, and read as 1."""
    values = numbers(column)
    good = (values > 0) & (values <= most)
    found.add_cells(column[~good], lambda cell: not_a_number(cell, f"a number above 0 and at most {most:g}"))
    return np.where(good, values, 1.0)


def _empty(cell: object) -> bool:
    """Return whether a cell is of the other kind of load: nothing, or the rate of clients that never pause."""
    return cell is None or str(cell).strip().lower() in ("", "nan", "inf", "infinity")


def _time(table: FileTable, key: str, units: Mapping[str, float]) -> str:
    """Return the column that holds a time, whose name tells the unit."""
    for name in units:
        if name in table.names:
            return name
    if key in table.names:
        raise SpecsimError(f"{table.file}: column {key}: no unit; expected {key}_ms or {key}_s")
    return _column(table, f"{key}_ms", ())


def _requests(cells: DataFrame, clients: Sequence[int], found: Findings) -> list[int]:
    """Return how many requests were sent; ten for each client, or a thousand, where the points do not say."""
    name = next((name for name in REQUESTS if name in cells), None)
    if name is None:
        return [REQUESTS_OF_A_CLIENT * each or REQUESTS_AT_A_RATE for each in clients]
    sent: list[int] = tokens(cells[name], found).tolist()
    for row, count, least in zip(cells.index, sent, clients, strict=True):
        if count < least:
            found.add(row, f"{name} {count} is below concurrency {least}")
    return sent


def _speculation(cells: DataFrame, found: Findings) -> tuple[list[int], list[float]]:
    """Return the draft tokens of each row's steps, 0 without speculation, and the tokens that a step brings."""
    drafts, lengths = [], []
    told = cells.reindex(columns=[next((name for name in DRAFTS if name in cells), DRAFTS[0]), *ACCEPTANCES])
    for row, cell, *acceptance in told.itertuples(name=None):
        given = {name: each for name, each in zip(ACCEPTANCES, acceptance, strict=True) if not _empty(each)}
        count = 0 if _empty(cell) else number(cell)
        if count is None or not 0 <= count <= MOST_DRAFTS or not float(count).is_integer():
            found.add(row, f"{DRAFTS[0]} {not_a_number(cell, f'a whole number up to {MOST_DRAFTS}')}")
            count, given = 0, {}
        length = 1.0
        if not count and any(_length(1, *each) != 1 for each in given.items()):
            found.add(row, f"{' and '.join(given)} without draft tokens; expected {' or '.join(DRAFTS)}, too")
        elif count and len(given) != 1:
            said = " and ".join(given) or "no acceptance"
            found.add(row, f"{count:g} draft tokens with {said}; expected one of {', '.join(ACCEPTANCES)}")
        elif count:
            length = _length(int(count), *next(iter(given.items())))
            if not 1 <= length <= count + 1:
                name, typed = next(iter(given.items()))
                said = f"{count:g} draft tokens bring 1 to {count + 1:g} tokens a step"
                if name == "acceptance_rates":
                    said = f"expected {count:g} shares from 1 down to 0, of drafts right up to each position"
                found.add(row, f"{name} {typed}: {said}")
        drafts.append(int(count))
        lengths.append(length)
    return drafts, lengths


def _length(drafts: int, name: str, cell: object) -> float:
    """Return the tokens that a step brings, NaN where a cell does not say."""
    shares = [number(each) for each in (str(cell).strip("[]").replace(";", " ").replace(",", " ").split())]
    if None in shares or len(shares) != (drafts if name == "acceptance_rates" else 1):
        return nan
    told = [each for each in shares if each is not None]
    if name == "acceptance_length":
        return told[0]
    falling = told == sorted(told, reverse=True) and 0 <= told[-1] <= told[0] <= 1
    return (1 + drafts * told[0] if name == "acceptance_rate" else 1 + sum(told)) if falling else nan
