"""From one entry of ``conf/trace`` to the trace it names: read, window, row limit, rate, in this order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from specsim.errors import SpecsimError, beside
from specsim.paths import shipped
from specsim.workload import entry as keys
from specsim.workload import synthetic
from specsim.workload.adaserve import read_adaserve_json, read_adaserve_parquet
from specsim.workload.damage import content, sha256
from specsim.workload.entry import Entry, Published
from specsim.workload.formats import read_azure, read_mooncake
from specsim.workload.locate import DATA_VARIABLE, Found, locate
from specsim.workload.trace import Trace, TraceSource
from specsim.workload.user_file import read_user_file

SHIPS_AS = {"twin": None, "toy": None}


def load_trace(entry: Entry, *, seed: int, requests: int | None = None, rps: float | None = None) -> Trace:
    """Return the trace of a composed ``conf/trace/NAME.yaml``, cut to ``requests``, stretched to ``rps``.

    Parameters
    ----------
    entry : the YAML as a plain dict, every key resolved
    seed : of the synthetic traces; files do not depend on it
    requests : the first so many rows behind the window; None keeps all
    rps : true mean rate of what is left, requests per second; None keeps the trace's own

    Raises
    ------
    SpecsimError
        One line for an unknown or missing key, a bad value, damage in a file, or more requests than exist.
    """
    keys.check_keys(entry)
    if entry["kind"] == "synthetic":
        trace = _synthetic(entry, seed, requests)
    else:
        window = keys.window(entry)
        trace = _user_file(entry) if entry["kind"] == "file" else _published(entry)
        trace = trace if window is None else trace.window(*window)
        trace = trace if requests is None else trace.head(requests)
    return trace if rps is None else trace.at_rate(rps)


def _synthetic(entry: Entry, seed: int, requests: int | None) -> Trace:
    n = keys.whole(entry, "n") if requests is None else requests
    if n < 1:
        raise SpecsimError(f"requests={n}: expected a whole number, at least 1")
    rps = keys.number(entry, "rps")
    # One stream per column: a column's luck must not move when another one draws more.
    arrival, prompt, output = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(column,))) for column in range(3)
    )
    process = entry["process"]
    if process == "poisson":
        arrival_s = synthetic.poisson(rps, n, arrival)
    elif process == "gamma":
        arrival_s = synthetic.gamma(rps, n, arrival, cv=keys.number(entry, "cv", 0.01, 100))
    else:
        arrival_s = synthetic.on_off(rps, n, arrival, **_bursts(entry))
    return Trace(
        arrival_s,
        synthetic.lengths(keys.lengths(entry, "prompt_tokens"), n, prompt),
        synthetic.lengths(keys.lengths(entry, "output_tokens"), n, output),
        np.arange(n, dtype=np.int64),
        TraceSource(keys.text(entry, "name"), "synthetic"),
    )


def _bursts(entry: Entry) -> dict[str, float]:
    share = keys.number(entry, "on_share", 0, 1)
    ratio = entry["off_rate_ratio"]
    if share == 1:
        raise SpecsimError("trace.on_share=1: expected a share below 1; a trace always on is `poisson`")
    if ratio != 0:
        ratio = keys.number(entry, "off_rate_ratio", 0, 1)
    return {
        "burst_requests": keys.number(entry, "burst_requests", 0.1),
        "on_share": share,
        "off_rate_ratio": float(ratio),
    }


def _user_file(entry: Entry) -> Trace:
    file = Path(keys.text(entry, "path")).expanduser()
    if not file.exists():
        raise SpecsimError(f"trace={file}: no such file{beside(file)}")
    checksum = sha256(content(file))
    return read_user_file(file, TraceSource(file.name, "file", file.name, checksum))


def _published(entry: Entry) -> Trace:
    name = keys.text(entry, "name")
    twin_allowed = keys.flag(entry, "twin")
    found, wanted = _located(entry)
    if found.file is not None:
        checksum = sha256(content(found.file))
        source = TraceSource(name, "real", found.file.name, checksum, licence=keys.text(entry, "licence"))
        return _noted(_read(entry, found.file, source), None)
    why = "; ".join([f"{wanted} was found neither in ${DATA_VARIABLE} nor in the user cache", *found.passed_over])
    cure = f"`specsim trace fetch {name}` downloads it"
    if not twin_allowed:
        raise SpecsimError(f"trace.twin=false, but {why}; {cure}")
    return _shipped(entry, f"{why}; {cure}")


def _located(entry: Entry) -> tuple[Found, str]:
    first = locate(keys.text(entry, "file"), keys.text(entry, "sha256"))
    if entry["kind"] != "adaserve":
        return first, keys.text(entry, "file")
    _, single = keys.point_of(entry)
    if first.file is not None:
        return first, single.file
    second = locate(single.file, single.sha256)
    return Found(second.file, first.passed_over + second.passed_over), f"{entry['file']} or {single.file}"


def _read(entry: Entry, file: Path, source: TraceSource) -> Trace:
    if entry["kind"] == "azure_csv":
        return read_azure(file, source)
    if entry["kind"] == "mooncake_jsonl":
        return read_mooncake(file, source, tick_s=keys.number(entry, "tick_s"))
    point = keys.point_of(entry)[1]
    if file.name.removesuffix(".gz") == point.file:
        return read_adaserve_json(file, source)
    return read_adaserve_parquet(file, _workload(entry, point), source)


def _workload(entry: Entry, point: Published) -> str:
    stem = point.file.removeprefix("emission_").removesuffix(".json")
    return f"{keys.text(entry, 'workload')}__{stem}"


def _shipped(entry: Entry, why: str) -> Trace:
    kind = cast(Literal["twin", "toy"], keys.choice(entry, "ships_as", SHIPS_AS))
    name = keys.text(entry, "ships")
    if entry["kind"] == "adaserve":
        name = name.format(point=keys.point_of(entry)[0])
    file = shipped("traces") / name
    source = TraceSource(
        keys.text(entry, "name"), kind, file.name, sha256(content(file)), licence=keys.text(entry, "licence")
    )
    trace = read_user_file(file, source)
    return _noted(trace, f"{source.name}: using the shipped {kind} of {len(trace)} requests: {why}")


def _noted(trace: Trace, note: str | None) -> Trace:
    """Put a note for the user before the reader's own."""
    notes: list[Any] = [part for part in (note, trace.source.note) if part]
    return replace(trace, source=replace(trace.source, note="; ".join(notes) or None))
