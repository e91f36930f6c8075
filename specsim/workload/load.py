"""From one entry of ``conf/trace`` to the trace it names: read, window, resampling, row limit, rate, in this order."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.files.paths import shipped
from specsim.workload import entry as keys
from specsim.workload import synthetic
from specsim.workload.adaserve import read_adaserve_parquet
from specsim.workload.damage import content, sha256
from specsim.workload.entry import Entry, Published
from specsim.workload.locate import DATA_VARIABLE, Found, locate
from specsim.workload.resample import resample
from specsim.workload.trace import Trace, TraceSource, check_span
from specsim.workload.user_file import read_user_file

SHIPS_AS = {"twin": None, "toy": None}


def load_trace(entry: Entry, *, seed: int, requests: int | None = None, rps: float | None = None) -> Trace:
    """Return the trace of a composed ``conf/trace/NAME.yaml``, resampled, cut to ``requests``, stretched to ``rps``.

    Parameters
    ----------
    entry : the YAML as a plain dict, every key resolved
    seed : of synthetic and resampled traces; other files do not depend on it
    requests : the first so many rows behind the window; None keeps all
    rps : true mean rate of what is left, requests per second; None keeps the trace's own

    Raises
    ------
    SpecsimError
        One line for an unknown or missing key, a bad value, damage in a file, or more requests than exist.
    """
    node = keys.checked(entry)
    if entry["kind"] == "synthetic":
        trace = _synthetic(node, seed, requests)
    else:
        window, block_s = keys.window(node), keys.resample(node)
        trace = _user_file(node) if entry["kind"] == "file" else _published(node)
        trace = trace if window is None else trace.window(*window)
        if block_s is not None:
            said = f"trace.resample={block_s:g}: the seed draws blocks of {block_s:g} s from the recording"
            trace = _noted(resample(trace, block_s, seed=seed, requests=requests), said)
        trace = trace if requests is None else trace.head(requests)
    return trace if rps is None else trace.at_rate(rps)


def _synthetic(node: CheckedMapping, seed: int, requests: int | None) -> Trace:
    n = node.whole("n") if requests is None else requests
    if n < 1:
        raise SpecsimError(f"requests={n}: expected a whole number, at least 1")
    rps = node.number("rps", above=0)
    # One stream per column: a column's luck must not move when another one draws more.
    arrival, prompt, output = (
        np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(column,))) for column in range(3)
    )
    process = node.values["process"]
    if process == "poisson":
        arrival_s = synthetic.poisson(rps, n, arrival)
    elif process == "gamma":
        arrival_s = synthetic.gamma(rps, n, arrival, cv=node.number("cv", above=0.01, most=100))
    else:
        arrival_s = synthetic.on_off(rps, n, arrival, **_bursts(node))
    check_span(float(arrival_s[-1]), f"trace.rps={rps:g}")
    return Trace(
        arrival_s,
        synthetic.lengths(keys.lengths(node, "prompt_tokens"), n, prompt),
        synthetic.lengths(keys.lengths(node, "output_tokens"), n, output),
        np.arange(n, dtype=np.int64),
        TraceSource(node.text("name"), "synthetic"),
    )


def _bursts(node: CheckedMapping) -> dict[str, float]:
    return {
        "burst_requests": node.number("burst_requests", above=0.1),
        "on_share": node.number("on_share", above=0, below=1),
        "off_rate_ratio": node.number("off_rate_ratio", most=1),
    }


def _user_file(node: CheckedMapping) -> Trace:
    file = keys.path(node)
    source = TraceSource(file.name, "file", file.name, sha256(content(file)))
    trace, said = read_user_file(file, source, time_unit=keys.time_unit(node), tick_s=keys.tick_s(node))
    return _noted(trace, f"{file.name}: {said}")


def _published(node: CheckedMapping) -> Trace:
    name = node.text("name")
    twin_allowed = node.flag("twin")
    found, wanted = _located(node)
    if found.file is not None:
        checksum = sha256(content(found.file))
        source = TraceSource(name, "real", found.file.name, checksum, licence=node.text("licence"))
        return _noted(_read(node, found.file, source), None)
    why = "; ".join([f"{wanted} was found neither in ${DATA_VARIABLE} nor in the user cache", *found.passed_over])
    cure = f"`specsim trace fetch {name}` downloads it"
    if not twin_allowed:
        raise SpecsimError(f"trace.twin=false, but {why}; {cure}")
    return _shipped(node, f"{why}; {cure}")


def _located(node: CheckedMapping) -> tuple[Found, str]:
    first = locate(node.text("file"), node.text("sha256"))
    if node.values["kind"] != "adaserve":
        return first, node.text("file")
    _, single = keys.point_of(node)
    if first.file is not None:
        return first, single.file
    second = locate(single.file, single.sha256)
    return Found(second.file, first.passed_over + second.passed_over), f"{node.text('file')} or {single.file}"


def _read(node: CheckedMapping, file: Path, source: TraceSource) -> Trace:
    """Return a published trace; the file was found by its checksum."""
    if node.values["kind"] == "adaserve":
        point = keys.point_of(node)[1]
        if file.name.removesuffix(".gz") != point.file:
            return read_adaserve_parquet(file, _workload(node, point), source)
    return read_user_file(file, source, tick_s=keys.tick_s(node)).trace


def _workload(node: CheckedMapping, point: Published) -> str:
    stem = point.file.removeprefix("emission_").removesuffix(".json")
    return f"{node.text('workload')}__{stem}"


def _shipped(node: CheckedMapping, why: str) -> Trace:
    kind = cast(Literal["twin", "toy"], node.choice("ships_as", SHIPS_AS))
    name = node.text("ships")
    if node.values["kind"] == "adaserve":
        name = name.format(point=keys.point_of(node)[0])
    file = shipped("traces") / name
    source = TraceSource(node.text("name"), kind, file.name, sha256(content(file)), licence=node.text("licence"))
    trace = read_user_file(file, source).trace
    return _noted(trace, f"{source.name}: using the shipped {kind} of {len(trace)} requests: {why}")


def _noted(trace: Trace, note: str | None) -> Trace:
    """Put a note for the user before the reader's own."""
    notes: list[Any] = [part for part in (note, trace.source.note) if part]
    return replace(trace, source=replace(trace.source, note="; ".join(notes) or None))
