"""Files of benchmarks and servers as traces, an acceptance and points of a server."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from pandas import DataFrame

from specsim.acceptance.accepted_lengths import Verified, fitted, mean_length, verifications
from specsim.acceptance.loading import ANY
from specsim.acceptance.positions import SPREAD, curve_of, worth
from specsim.calibration.benchmarks import (
    BENCH,
    LENGTHS,
    NAMES,
    RATE,
    REQUESTS,
    STARTS,
    Result,
    drafted,
    results,
    speculation_of,
)
from specsim.calibration.reading import LISTED, counted, gathered, table_of
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.files.staging import in_one_step
from specsim.files.yaml_file import yaml_text
from specsim.workload.columns import number
from specsim.workload.entry import How
from specsim.workload.formats import KNOWN, choose
from specsim.workload.readers import FileTable, Findings, content, of_lists, of_records, open_table
from specsim.workload.trace import Trace, TraceSource
from specsim.workload.user_file import read_table

TRACE, ACCEPTANCE, POINTS = KINDS = ("trace", "acceptance", "points")
TOLD_BY = {
    TRACE: "requests stand in `vllm bench serve --save-result --save-detailed`, `sglang.bench_serving "
    "--output-details`, aiperf's profile_export.jsonl, GuideLLM's report, a gateway's log",
    ACCEPTANCE: "accepted lengths stand in the log, answers or /metrics of a server that speculates",
    POINTS: "results at 15 loads are what `specsim calibrate` needs",
}
LEAST_POINTS = 15
ROW_START = "request_start_time"
READ = (*LENGTHS, STARTS, "queue_times")
"""Lists of a result of `vllm bench serve` that make a trace."""
SERVED = re.compile(r"(speculative_\w+)=(\d+|True)")
"""Settings in the line of SGLang's log that tells its arguments."""
SERVER_START = re.compile(r"^(?=.*speculative_num_steps=)", re.MULTILINE)
"""Where that line begins: a log may hold several runs of a server."""
RUN = ("date", "duration", *sorted(NAMES))
"""Keys of a result that are equal in two of one run."""


class ImportedFile(NamedTuple):
    """A file's name, a line about its content, and what writes it."""

    name: str
    said: str
    write: Callable[[Path], object]


@dataclass(slots=True)
class Holdings:
    """The content of some files.

    Attributes
    ----------
    traces : with a line each on how it was read. requests, server : verifications by request, and of whole servers.
    lengths : by k of SGLang's drafts, pairs of output tokens and mean tokens of a verification.
    tables : of points. models : names of targets. logs : names of the files of verifications.
    lacks : pairs of a kind and why a file has none.
    named : whether a file has a column of the names that are given. unnamed : why another does not have them.
    """

    traces: list[tuple[Trace, str]] = field(default_factory=list)
    requests: list[Verified] = field(default_factory=list)
    server: list[Verified] = field(default_factory=list)
    lengths: dict[int, list[tuple[float, float]]] = field(default_factory=dict)
    tables: list[FileTable] = field(default_factory=list)
    models: set[str] = field(default_factory=set)
    logs: list[str] = field(default_factory=list)
    lacks: list[tuple[str, str]] = field(default_factory=list)
    named: bool = False
    unnamed: list[SpecsimError] = field(default_factory=list)

    def count(self) -> int:
        """Return how many traces, verifications, mean lengths and tables of points there are."""
        lengths = sum(map(len, self.lengths.values()))
        return len(self.traces) + len(self.requests) + len(self.server) + lengths + len(self.tables)

    def reasons(self, kind: str) -> str:
        """Return why there is none of a kind, once for all files that lack it alike, or what would tell it."""
        files: dict[str, list[str]] = {}
        for file, _, why in (why.partition(": ") for each, why in dict.fromkeys(self.lacks) if each == kind):
            files.setdefault(why, []).append(file)
        said = (f"{some[0]}{f' and {len(some) - 1} more' * (len(some) > 1)}: {why}" for why, some in files.items())
        return "; ".join(said) or TOLD_BY[kind]


def import_files(files: Sequence[Path], how: How, out: Path, *, force: bool) -> Iterator[str]:
    """Write what files hold below a folder; yield a line for each thing that is found or missing.

    Raises
    ------
    SpecsimError
        For a file that cannot be read, damaged requests, files that hold nothing, and a file that would be replaced.
    """
    held = Holdings()
    found = {file: results(content(file)) for file in dict.fromkeys(files)}
    once, twice = _once(found)
    for file in [each for each in once if once[each] or not found[each]]:
        before, lacks = held.count(), len(held.lacks)
        _read(file, once[file], how, held)
        if held.count() == before and not once[file]:
            raise _nothing(held.lacks[lacks:])
    if held.unnamed and not held.named:
        raise held.unnamed[0]
    made = [*_traces(held), *_acceptance(held), *_points(held)]
    if not made:
        raise _nothing(held.lacks)
    for each in made:
        if (out / each.name).exists() and not force:
            said = f"--out {out}: {out / each.name} is there"
            raise SpecsimError(f"{said}; expected another folder, or --force to replace it")
    for each in made:
        with in_one_step(out / each.name) as staged:
            each.write(staged)
        yield f"{out / each.name}: {each.said}"
    yield from twice
    for kind in KINDS:
        if not any(each.name.startswith(kind) for each in made):
            yield f"no {kind}: {held.reasons(kind)}"


def _nothing(lacks: Sequence[tuple[str, str]]) -> SpecsimError:
    return SpecsimError(next(why for kind in reversed(KINDS) for each, why in lacks if each == kind))


def _once(found: Mapping[Path, Sequence[Result]]) -> tuple[dict[Path, list[Result]], list[str]]:
    """Return results by file, of those of one run the one that lists its requests; a line on each other."""
    runs: dict[tuple[Any, ...], list[tuple[Path, Result]]] = {}
    for file, each in [(file, each) for file, some in found.items() for each in some if each.get("duration")]:
        runs.setdefault(tuple(str(each.get(key)) for key in RUN), []).append((file, each))
    kept = {run: max(some, key=lambda one: isinstance(one[1].get(LENGTHS[0]), list)) for run, some in runs.items()}
    others = [(file, each, run) for run, some in runs.items() for file, each in some if each is not kept[run][1]]
    left = {id(each) for _, each, _ in others}
    said = [f"{file}: a result of the same run as one of {kept[run][0]}: counted once" for file, _, run in others]
    return {file: [each for each in some if id(each) not in left] for file, some in found.items()}, said


def _read(file: Path, found: Sequence[Result], how: How, held: Holdings) -> None:
    """Add what a file holds, and why it lacks the rest."""
    text = "\n".join(map(json.dumps, found)) if found else content(file).decode("utf-8-sig", "replace")
    try:
        requests, server = verifications(text, str(file), None, None)
        held.requests += requests
        held.server += server
        held.logs += [file.name] * bool(requests or server)
    except SpecsimError as error:
        held.lacks.append((ACCEPTANCE, str(error)))
    served: dict[tuple[tuple[str, str], ...], str] = {}
    for part in () if found else SERVER_START.split(text):
        info = (*SERVED.findall(part),)
        served[info] = served.get(info, "") + part
    for info, part in served.items():
        if (length := mean_length(part)) is not None:
            settings = {name: value == "True" or int(value) for name, value in info}
            _read_length(file, {"accept_length": length, "server_info": settings}, held)
    try:
        tables = [(table, _called(table, how, held)) for table in _tables(file, found)]
    except SpecsimError as error:
        held.lacks += [(TRACE, str(error))] * (file.name not in held.logs)
    else:
        for place, (table, its) in enumerate(tables, start=1):
            trace, said = read_table(table, TraceSource(file.name, "file"), its)
            name = f"{file.name}, benchmark {place}" if len(tables) > 1 else file.name
            held.traces.append((trace, f"{name}: {said}"))
    _read_results(file, found, held)


def _called(table: FileTable, how: How, held: Holdings) -> How:
    """Return how a table is read: given names of columns, none of which it has, are another file's if it needs none."""
    named = any(name in table.names for _, name in how.called)
    held.named |= named
    try:
        choose(table, dict(how.called))
    except SpecsimError as error:
        try:
            known = not named and choose(table)
        except SpecsimError:
            known = False
        if not known:
            raise
        held.unnamed.append(error)
        return how._replace(called=())
    return how


def _read_results(file: Path, found: Sequence[Result], held: Holdings) -> None:
    # A report of GuideLLM without requests may have no numbers, either: the line on its requests says what it lacks.
    found = [each for each in found if REQUESTS not in each or each["completed"] is not None]
    # A result that speculates may not tell what a step drafts: the others are points all the same.
    for some in (found, [each for each in found if not speculation_of(each)]):
        try:
            points = [table_of(some, file)] if some else []
            gathered(points, None)
            held.tables += points
            break
        except SpecsimError as error:
            held.lacks.append((POINTS, str(error)))
    for each in [each for each in found if each.get("accept_length") is not None]:
        _read_length(file, each, held)
    held.models |= {str(each["model_id"]) for each in found if each.get("model_id")}


def _read_length(file: Path, result: Result, held: Holdings) -> None:
    """Add the mean length of SGLang's drafts, or why it tells nothing."""
    k, length, lacking = drafted(result)
    if k is not None and 1 < length < k + 1:
        held.lengths.setdefault(k, []).append((result.get("total_output_tokens") or 1.0, length))
        held.logs.append(file.name)
    else:
        said = lacking or f"accept_length {length:g} of k = {k}; expected above 1 and below k + 1"
        held.lacks.append((ACCEPTANCE, f"{file}: {said}; a file of kind length states both (docs/acceptance.md)"))


def _tables(file: Path, found: Sequence[Result]) -> list[FileTable]:
    """Return the tables of requests in a file: that of each benchmark that tells its requests, or the whole file."""
    records = [each for each in found if isinstance(each.get(REQUESTS), list) and each[REQUESTS]]
    listed = [each for each in found if isinstance(each.get(LENGTHS[0]), list)]
    if records:
        return [of_records(_rows_as_sent(each), Findings(file, "entry", _waited(each))) for each in records]
    if len(found) > 1 and not listed and not any(REQUESTS in each for each in found):
        raise SpecsimError(f"{file}: {len(found)} results without their requests")
    told = [of_lists(_as_sent(each), KNOWN, Findings(file, "entry", _waited(each))) for each in listed]
    return told or [open_table(file, KNOWN)]


def _waited(result: Result) -> list[str]:
    """Return a line about clients that waited for their answers: times at which these send are no arrivals."""
    limit = result.get(BENCH)
    closed = limit is not None and result.get(RATE) in (inf, "inf", None)
    return [f"sent by clients that waited for their answers: concurrency={limit}"] if closed else []


def _as_sent(result: Result) -> dict[str, Any]:
    """Return the lists of a result that make a trace, of clients that waited the lengths alone, as they were sent."""
    starts = result.get(STARTS)
    if not _waited(result):
        return {key: each for key, each in result.items() if not isinstance(each, list) or key in READ}
    lengths = {key: result[key] for key in LENGTHS if key in result}
    if isinstance(starts, list) and {len(each) for each in lengths.values()} == {len(starts)}:
        order = sorted(range(len(starts)), key=lambda place: number(starts[place]) or 0.0)
        lengths = {key: [each[place] for place in order] for key, each in lengths.items()}
    return {**{key: each for key, each in result.items() if not isinstance(each, list)}, **lengths}


def _rows_as_sent(result: Result) -> list[Any]:
    """Return the requests of a benchmark of GuideLLM, likewise."""
    rows: list[Any] = result[REQUESTS]
    if not _waited(result) or not all(isinstance(each, dict) for each in rows):
        return rows
    in_order = sorted(rows, key=lambda each: number(each.get(ROW_START)) or 0.0)
    return [{key: cell for key, cell in each.items() if key != ROW_START} for each in in_order]


def _traces(held: Holdings) -> Iterator[ImportedFile]:
    """Yield traces under specsim's own names of columns, as Parquet where prompts have hashes."""
    for place, (trace, said) in enumerate(held.traces, start=1):
        name = f"{TRACE}_{place}" if len(held.traces) > 1 else TRACE
        table = _frame(trace)
        kind, write = ("csv", table.to_csv) if trace.prefixes is None else ("parquet", table.to_parquet)
        yield ImportedFile(f"{name}.{kind}", said, partial(write, index=False))


def _frame(trace: Trace) -> DataFrame:
    columns: dict[str, Any] = trace.columns()
    del columns["row"]
    columns["arrival_s"] = np.where(trace.waits, np.nan, trace.arrival_s)
    if not trace.source.timed:
        del columns["arrival_s"]
    if "slo_class" in columns:
        columns["slo_class"] = np.array(trace.slo_names, dtype=object)[columns["slo_class"]]
    if "session" in columns:
        columns["session_id"] = columns.pop("session")
    if (prefixes := trace.prefixes) is not None:
        spans = zip(prefixes.first.tolist(), prefixes.count.tolist(), strict=True)
        columns["hash_ids"] = [prefixes.hashes[first : first + count].tolist() for first, count in spans]
    return DataFrame(columns)


def _acceptance(held: Holdings) -> Iterator[ImportedFile]:
    """Yield an acceptance file: rates by draft position, or else SGLang's mean lengths by k."""
    counted, kind = bool(held.requests or held.server), "positions"
    if not (counted or held.lengths):
        return
    categories: dict[str, Any] = {}
    said = []
    for name, each in fitted(held.requests, held.server).items() if counted else ():
        rates = [float(f"{rate:.4g}") for rate in each.rates + each.rates[-1:] * (each.chain - len(each.rates))]
        spread = {} if each.spread is None else {"spread": float(f"{each.spread:.3g}")}
        categories[name] = {"conditional": rates, **spread}
        curve = curve_of(CheckedMapping("", "", categories[name]), tuple(rates), each.chain, SPREAD)
        said.append(f"{name}: {each.counts}: {worth(curve)}")
    if not counted:
        kind, means = "length", {k: _mean(held.lengths[k]) for k in sorted(held.lengths)}
        categories["default"] = {"lengths": means}
        said = [f"{mean:g} tokens a verification at k = {k}" for k, mean in means.items()]
    pair = {"pair": {"target": next(iter(held.models)), "draft": ANY}} if len(held.models) == 1 else {}
    keys = {"description": f"Accepted lengths of {', '.join(dict.fromkeys(held.logs))}", **pair, "kind": kind}
    text = yaml_text({**keys, "categories": categories}, sort_keys=False)
    yield ImportedFile(f"{ACCEPTANCE}.yaml", "; ".join(said), lambda to: to.write_text(text, encoding="utf-8"))


def _mean(lengths: Sequence[tuple[float, float]]) -> float:
    """Return the tokens of all verifications by their number, of pairs of output tokens and mean lengths."""
    mean = sum(told for told, _ in lengths) / sum(told / length for told, length in lengths)
    return float(f"{mean:.4g}")


def _points(held: Holdings) -> Iterator[ImportedFile]:
    """Yield the points as CSV, or note why there are none."""
    try:
        points, notes = gathered(held.tables, None)
    except SpecsimError as error:
        held.lacks.append((POINTS, str(error)))
        return
    if points:
        loads = DataFrame([load for load, _, _ in points]).drop(columns=[*LISTED])
        loads = loads.rename(columns={"drafts": "num_speculative_tokens"})
        times = {f"{name}_ms": [1e3 * getattr(each, f"{name}_s") for each in points] for name in ("ttft", "tpot")}
        sent = loads[["concurrency", "rate"]].astype({"concurrency": "Int64"})
        table = loads.assign(**times, **{str(name): column.mask(column == 0) for name, column in sent.items()})
        few = f"; `specsim calibrate` takes at least {LEAST_POINTS}" if len(points) < LEAST_POINTS else ""
        lacks = dict.fromkeys(why for kind, why in held.lacks if kind == POINTS)
        said = "; ".join((f"{len(points)} point{'s' * (len(points) > 1)} of {counted(points)}{few}", *notes, *lacks))
        yield ImportedFile(f"{POINTS}.csv", said, partial(table.to_csv, index=False, float_format="%.10g"))
