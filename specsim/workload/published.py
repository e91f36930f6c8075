"""Traces from files: a user's, a published one, or the twin or toy that ships in its place."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Literal, cast

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, is_file_name
from specsim.files.paths import shipped
from specsim.workload import entry as keys
from specsim.workload.adaserve import read_adaserve_parquet
from specsim.workload.damage import content, sha256
from specsim.workload.ends import ended_early
from specsim.workload.entry import Published
from specsim.workload.locate import DATA_VARIABLE, Found, locate
from specsim.workload.trace import Trace, TraceSource
from specsim.workload.user_file import read_user_file

SHIPS_AS = {"twin": None, "toy": None}


@dataclass(frozen=True, slots=True)
class UserFile:
    """A trace of ``kind: file``, by its checked keys."""

    drawn: ClassVar[tuple[str, ...]] = ()
    node: CheckedMapping

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the whole file."""
        node = self.node
        file = keys.path(node)
        source = TraceSource(file.name, "file", file.name, sha256(content(file)))
        trace, said = read_user_file(file, source, time_unit=keys.time_unit(node), tick_s=keys.tick_s(node))
        return noted(trace, f"{file.name}: {said}")


@dataclass(frozen=True, slots=True)
class PublishedTrace:
    """A trace of one published file, by its checked keys."""

    drawn: ClassVar[tuple[str, ...]] = ()
    node: CheckedMapping

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the real trace if its file is found by name and checksum, else the one that ships."""
        node = self.node
        name, ships = node.text("name"), self.ships()
        twin_allowed = node.flag("twin")
        found, wanted = self.located()
        if found.file is not None:
            checksum = sha256(content(found.file))
            source = TraceSource(name, "real", found.file.name, checksum, licence=node.text("licence"))
            return noted(self.real(found.file, source), None)
        why = "; ".join([f"{wanted} was found neither in ${DATA_VARIABLE} nor in the user cache", *found.passed_over])
        cure = f"`specsim trace fetch {name}` downloads it"
        if not twin_allowed:
            raise SpecsimError(f"trace.twin=false, but {why}; {cure}")
        return self._shipped(ships, "; ".join(found.passed_over))

    def published(self) -> tuple[Published, ...]:
        """Return the files at the official source."""
        node = self.node
        return (Published(node.file_name("file"), node.text("sha256"), node.text("url")),)

    def located(self) -> tuple[Found, str]:
        """Return the real file, if it was found, and the name that was looked for."""
        file = self.node.file_name("file")
        return locate(file, self.node.text("sha256")), file

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the trace of the real file."""
        unit = keys.time_unit(self.node)
        return read_user_file(file, source, time_unit=unit, tick_s=keys.tick_s(self.node)).trace

    def ships(self) -> str:
        """Return the name of the file that ships in its place."""
        name = self.node.text("ships")
        inside = all(map(is_file_name, name.split("/")))
        return name if inside else self.node.fail("ships", "the name of a file that ships with specsim")

    def _shipped(self, ships: str, why: str) -> Trace:
        node = self.node
        kind = cast(Literal["twin", "toy"], node.choice("ships_as", SHIPS_AS))
        file = shipped("traces") / ships
        source = TraceSource(node.text("name"), kind, file.name, sha256(content(file)), licence=node.text("licence"))
        trace = read_user_file(file, source).trace
        return noted(trace, f"{source.name}: using the shipped {kind}: {why}" if why else None)


@dataclass(frozen=True, slots=True)
class AdaServeTrace(PublishedTrace):
    """A figure of AdaServe: all its points in one Parquet file, or each in a JSON file at the official source."""

    @property
    def drawn(self) -> tuple[str, ...]:  # type: ignore[override]
        """Lengths, where outputs end early."""
        return ("lengths",) if keys.mean_output_tokens(self.node) else ()

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the trace; its outputs end before the published cap if a mean says so."""
        # The inherited method is called by name, since `super()` fails in a dataclass with slots.
        trace, means = PublishedTrace.read(self, seed, requests), keys.mean_output_tokens(self.node)
        return ended_early(trace, means, seed) if means else trace

    def published(self) -> tuple[Published, ...]:
        """Return the file of each point."""
        return tuple(keys.points_of(self.node).values())

    def located(self) -> tuple[Found, str]:
        """Return the Parquet file, else the JSON file of the chosen point."""
        node = self.node
        first, single = locate(node.file_name("file"), node.text("sha256")), self._point[1]
        if first.file is not None:
            return first, single.file
        second = locate(single.file, single.sha256)
        return Found(second.file, first.passed_over + second.passed_over), f"{node.text('file')} or {single.file}"

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the requests of the chosen point."""
        point = self._point[1]
        if file.name.removesuffix(".gz") == point.file:
            return PublishedTrace.real(self, file, source)
        stem = point.file.removeprefix("emission_").removesuffix(".json")
        return read_adaserve_parquet(file, f"{self.node.text('workload')}__{stem}", source)

    def ships(self) -> str:
        """Return the name of the chosen point's toy."""
        return PublishedTrace.ships(self).replace("{point}", str(self._point[0]))

    @property
    def _point(self) -> tuple[float, Published]:
        return keys.point_of(self.node)


def noted(trace: Trace, note: str | None) -> Trace:
    """Return the trace with a note for the user before the reader's."""
    notes: list[Any] = [part for part in (note, trace.source.note) if part]
    return replace(trace, source=replace(trace.source, note="; ".join(notes) or None))
