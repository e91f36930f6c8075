"""Traces from files: a user's, a published one found by name and checksum, or the surrogate or toy in its place."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, Literal, cast

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.files.checked_mapping import CheckedMapping, expanded, is_file_name
from specsim.files.kept import user_cache
from specsim.files.yaml_file import MOST_FILE_BYTES, check_file, shipped
from specsim.rng import stream_keys, uniforms
from specsim.workload import columns, synthetic
from specsim.workload import entry as keys
from specsim.workload.columns import read_clock
from specsim.workload.entry import How, Published
from specsim.workload.readers import content, open_parquet, open_table, sha256
from specsim.workload.synthetic import ended_early
from specsim.workload.trace import Ints, Trace, TraceSource
from specsim.workload.user_file import read_table, read_user_file

if TYPE_CHECKING:
    from pandas import DataFrame

DATA_VARIABLE = "SPECSIM_DATA"
STAMPS = "Timestamp"
COLUMNS = ("emission_time_ms", "slo_ratio", "input_length", "output_length", *columns.COLLECTED)
LENGTHS = ("prompt_tokens", "output_tokens")
SHIPS_AS = {"surrogate": None, "toy": None}


@dataclass(frozen=True, slots=True)
class UserFile:
    """A trace of ``kind: file``, by its checked keys."""

    drawn: ClassVar[tuple[str, ...]] = ()
    node: CheckedMapping

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the whole file."""
        node = self.node
        file = expanded(node.text("path"), "trace=")
        check_file(file, MOST_FILE_BYTES, setting="trace=")
        source = TraceSource(file.name, "file", file.name, sha256(content(file)))
        trace, said = read_user_file(file, source, keys.how(node)._replace(unit_open=True))
        return trace.noted(f"{file.name}: {said}")


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """A trace of one published file, by its checked keys."""

    drawn: ClassVar[tuple[str, ...]] = ()
    node: CheckedMapping

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the real trace if its file is found by name and checksum, else the one that ships."""
        node = self.node
        name, ships, surrogate_allowed = node.text("name"), self.ships(), node.flag("surrogate")
        passed_over = []
        for wanted in self.wanted():
            for file in _called(wanted.file):
                try:
                    checksum = sha256(content(file))
                except SpecsimError as error:
                    passed_over.append(f"{error} and is not used")
                    continue
                if checksum == wanted.sha256:
                    source = TraceSource(name, "real", file.name, checksum, licence=node.text("licence"))
                    return self.real(file, source)
                passed_over.append(f"{file} has another sha256 and is not used")
        if not surrogate_allowed:
            names = " or ".join(wanted.file for wanted in self.wanted())
            why = "; ".join([f"{names} was found neither in ${DATA_VARIABLE} nor in the user cache", *passed_over])
            raise SpecsimError(f"trace.surrogate=false, but {why}; `specsim trace fetch {name}` downloads it")
        return self._shipped(ships, "; ".join(passed_over))

    def published(self) -> tuple[Published, ...]:
        """Return the files at the official source."""
        node = self.node
        return (Published(node.file_name("file"), node.text("sha256"), node.text("url")),)

    def wanted(self) -> tuple[Published, ...]:
        """Return the files that hold the real trace, of which the first that is found is read."""
        return self.published()

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the trace of the real file."""
        return read_user_file(file, source, keys.how(self.node)).trace

    def ships(self) -> str:
        """Return the name of the file that ships in its place."""
        name = self.node.text("ships")
        inside = all(map(is_file_name, name.split("/")))
        return name if inside else self.node.fail("ships", "the name of a file that ships with specsim")

    def _shipped(self, ships: str, why: str) -> Trace:
        node = self.node
        kind = cast(Literal["surrogate", "toy"], node.choice("ships_as", SHIPS_AS))
        file = shipped("traces") / ships
        source = TraceSource(node.text("name"), kind, file.name, sha256(content(file)), licence=node.text("licence"))
        trace = read_user_file(file, source).trace
        return trace.noted(f"{source.name}: using the shipped {kind}: {why}") if why else trace


class AdaServeTrace(PublishedTrace):
    """A figure of AdaServe: all its points in one Parquet file, or each in a JSON file at the official source."""

    @property
    def drawn(self) -> tuple[str, ...]:  # type: ignore[override]
        """Lengths, where outputs end early."""
        return ("lengths",) if keys.mean_output_tokens(self.node) else ()

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the trace; its outputs end before the published cap if a mean says so."""
        trace, means = super().read(seed, requests), keys.mean_output_tokens(self.node)
        return ended_early(trace, means, seed) if means else trace

    def published(self) -> tuple[Published, ...]:
        """Return the file of each point."""
        return tuple(keys.points_of(self.node).values())

    def wanted(self) -> tuple[Published, ...]:
        """Return the Parquet file, and the JSON file of the chosen point."""
        return *super().published(), self._point[1]

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the requests of the chosen point."""
        point = self._point[1]
        if file.name.removesuffix(".gz") == point.file:
            return super().real(file, source)
        stem = point.file.removeprefix("emission_").removesuffix(".json")
        return read_adaserve_parquet(file, f"{self.node.text('workload')}__{stem}", source)

    def ships(self) -> str:
        """Return the name of the chosen point's toy."""
        return super().ships().replace("{point}", str(self._point[0]))

    @property
    def _point(self) -> tuple[float, Published]:
        return keys.point_of(self.node)


def read_adaserve_parquet(file: Path, workload: str, source: TraceSource) -> Trace:
    """Return the rows of the collected ``requests.parquet`` whose ``trace`` column is ``workload``.

    Raises
    ------
    SpecsimError
        When the file is damaged or holds no such workload.
    """
    table = open_parquet(content(file), file)
    for name in (*COLUMNS, "trace"):
        if name not in table.names:
            raise SpecsimError(f"{file}: no column {name!r}{nearest(name, table.names)}")

    def read(wanted: Sequence[str]) -> DataFrame:
        frame = table.read([*wanted, "trace"])
        frame = frame[frame.pop("trace") == workload]
        if frame.empty:
            raise SpecsimError(f"{file}: no row of the workload {workload!r}")
        return frame

    return read_table(replace(table, names=COLUMNS, read=read), source, How()).trace


class ArrivalWindow(PublishedTrace):
    """SpecServe's windows: a published file of arrivals alone, in seconds; the checked keys also name the lengths.

    Source: github.com/cerebellumking/AdaSpec, ``benchmarks/adaspec/traces/*.csv``. The authors send prompts of
    Spec-Bench, drawn at random, at these times.
    """

    drawn: ClassVar[tuple[str, ...]] = ("lengths",)

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return all arrivals, each with the lengths that `seed` and its place give."""
        trace = super().read(seed, requests)
        prompt, output = (np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place,))) for place in (0, 1))
        return replace(
            trace,
            prompt_tokens=synthetic.lengths(keys.lengths(self.node, "prompt_tokens"), len(trace), prompt),
            output_tokens=synthetic.lengths(keys.lengths(self.node, "output_tokens"), len(trace), output),
        )

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the arrivals of the real file, with lengths of one token."""
        table = open_table(file, frozenset({STAMPS}))
        clock = read_clock(table.read([STAMPS])[STAMPS], table.found, "s")
        table.found.check()
        ones = np.ones(len(clock.since_s), dtype=np.int64)
        return columns.trace(clock.since_s, ones, ones, np.arange(len(ones), dtype=np.int64), source, {})


class ClassedArrivals(PublishedTrace):
    """A trace with the arrivals of one published file, by its checked keys, which also hold `classes`.

    AdaServe v1 (arXiv 2501.12162, 6.1) sends Alpaca's instructions and ArXiv's articles at Azure's times.

    A class has its `share` of the requests, and its lengths. A share moves no other draw: a request that stays in its
    class keeps its lengths.
    """

    drawn: ClassVar[tuple[str, ...]] = ("lengths", "classes")

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return all arrivals, each with the class and the lengths that `seed` and its place give."""
        classes = self._classes()
        trace = super().read(seed, requests)
        bounds = np.cumsum([each.number("share") for each in classes.values()])[:-1]
        code = np.searchsorted(bounds, uniforms(stream_keys(seed, "trace_class", trace.row)), side="right")
        prompt, output = (self._lengths(name, list(classes.values()), code, seed) for name in LENGTHS)
        return replace(trace, prompt_tokens=prompt, output_tokens=output, slo_class=code, slo_names=tuple(classes))

    def _lengths(self, name: str, classes: list[CheckedMapping], code: Ints, seed: int) -> Ints:
        """Return token counts (N,) of requests of these classes (N,)."""
        found = np.empty(len(code), np.int64)
        for place, each in enumerate(classes):
            rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(LENGTHS.index(name), place)))
            drawn = synthetic.lengths(keys.lengths(each, name), len(code), rng)
            found[code == place] = drawn[code == place]
        return found

    def _classes(self) -> dict[str, CheckedMapping]:
        classes = self.node.children("classes", "at least one class by name", f"share, {' and '.join(LENGTHS)}")
        for each in classes.values():
            each.only(("share", *LENGTHS))
        total = sum(each.number("share", above=0, most=1) for each in classes.values())
        if abs(total - 1) > 1e-9:
            self.node.refuse("classes", f"shares add up to {total:g}, expected 1")
        return classes


def data_folders() -> tuple[Path, ...]:
    """Return the folders of $SPECSIM_DATA, colon separated, in order."""
    return tuple(expanded(part, f"{DATA_VARIABLE}=") for part in os.environ.get(DATA_VARIABLE, "").split(":") if part)


def _called(name: str) -> Iterator[Path]:
    """Yield the files ``name``, or its ``.gz``, in the data folders and the user cache."""
    wanted = {name, f"{name}.gz"}
    for top in (*data_folders(), user_cache()):
        for folder, below, files in os.walk(top):
            below.sort()
            yield from (Path(folder) / file for file in sorted(wanted.intersection(files)))
