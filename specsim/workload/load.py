"""The trace of an entry of ``conf/trace``: reading, window, resampling, row limit, rate, in this order."""

from __future__ import annotations

from collections.abc import Mapping, Set
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from types import ModuleType

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.registry import Kinds, asked
from specsim.rng import stream_keys, uniforms
from specsim.workload import entry as keys
from specsim.workload.entry import Entry
from specsim.workload.published import AdaServeTrace, ArrivalWindow, ClassedArrivals, PublishedTrace, UserFile
from specsim.workload.slo import SloMix
from specsim.workload.synthetic import DrawnTrace, poisson
from specsim.workload.trace import Floats, HeldTrace, Ints, Trace, TraceReader

DRAWN = ("arrivals", "lengths", "classes", "acceptance")
MOST_BLOCKS = 100_000
LABELS = frozenset({"name", "description", "window", "resample", "suggests"})
KINDS: Kinds[TraceReader] = Kinds(
    "trace",
    {
        "azure_csv": lambda node, _: PublishedTrace(node),
        "mooncake_jsonl": lambda node, _: PublishedTrace(node),
        "adaserve": lambda node, _: AdaServeTrace(node),
        "arrivals_csv": lambda node, _: ArrivalWindow(node),
        "azure_classes": lambda node, _: ClassedArrivals(node),
        "file": lambda node, _: UserFile(node),
        "synthetic": lambda node, _: DrawnTrace(node),
    },
    TraceReader,
    LABELS,
    "docs/traces.md",
)
READ_WHOLE = (PublishedTrace, UserFile, HeldTrace)
"""Readers that never stop early, so that they return all that there is."""


@dataclass(frozen=True, slots=True)
class TraceRecipe:
    """A reader, and the window and resampling of its trace.

    Attributes
    ----------
    source : the beginning of messages. reader : of the whole trace.
    window : seconds of arrival that are kept; None: all.
    block_s : seconds of the blocks that the seed draws from a recording; None: not resampled.
    baselines_s : baseline latencies that it states, seconds by the name of a target model.
    """

    source: str
    reader: TraceReader
    window: tuple[float, float] | None
    block_s: float | None
    baselines_s: Mapping[str, float]

    @property
    def drawn(self) -> frozenset[str]:
        """The parts that the seed draws anew: arrivals, lengths, classes."""
        return frozenset(self.reader.drawn if self.block_s is None else ("arrivals", "lengths", "classes"))

    def trace(
        self, seed: int, requests: int | None = None, rps: float | None = None, *, clients: bool = False
    ) -> Trace:
        """Return the trace: its window, resampled, cut to `requests`, stretched to `rps`.

        Parameters
        ----------
        seed : of synthetic and resampled traces; other traces do not depend on it.
        requests : how many rows of the window are kept; None: all.
        rps : true mean rate of the kept rows, requests per second; None: the trace's own. A file of lengths alone gets
            Poisson arrivals, and needs it, unless `clients` that wait send its requests. With either, the unit of
            arrivals does not matter, unless a part is cut out by time.

        Raises
        ------
        SpecsimError
            One line for a bad value, damage in a file, or more requests than exist.
        """
        whole = self.window is not None or self.block_s is not None
        trace: Trace = asked(self.source, self.reader.read, Trace, seed, None if whole else requests)
        if not trace.source.timed:
            self._check_untimed(trace, rps, clients)
        if trace.source.unit_asked and (whole or not (rps or clients)):
            raise SpecsimError(trace.source.unit_asked)
        trace = trace if self.window is None else trace.window(*self.window)
        whole = whole or requests is None or len(trace) > requests or isinstance(self.reader, READ_WHOLE)
        if whole and "arrivals" not in self.drawn:
            trace = replace(trace, source=replace(trace.source, holds=len(trace), cut=self.window is not None))
        if self.block_s is not None:
            said = f"trace.resample={self.block_s:g}: the seed draws blocks of {self.block_s:g} s from the recording"
            trace = resample(trace, self.block_s, seed=seed, requests=requests).noted(said)
        trace = trace if requests is None else trace.head(requests)
        if rps is not None and not trace.source.timed:
            first = ~trace.waits
            drawn = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0,)))
            # A session's turns stand behind its first one.
            arrival_s = poisson(rps * first.mean(), int(first.sum()), drawn)[np.cumsum(first) - 1]
            said = f"arrivals: Poisson at rps={rps:g}, drawn by the seed"
            trace = replace(trace, arrival_s=arrival_s).noted(said)
        return trace if rps is None else trace.at_rate(rps)

    def _check_untimed(self, trace: Trace, rps: float | None, clients: bool) -> None:
        """Refuse what needs the arrivals that a file of lengths does not have."""
        lacks = f"trace {trace.source.name!r} has no arrivals"
        for key, given in (("window", self.window), ("resample", self.block_s)):
            if given is not None:
                raise SpecsimError(f"trace.{key}: {lacks}")
        if rps is None and not clients:
            named = "df.rename(columns={'YOURS': 'arrival_s'})"
            named = named if trace.source.origin == "object" else "'trace.columns={arrival_s: YOURS}'"
            raise SpecsimError(
                f"{lacks}; expected concurrency=N (clients that wait) or rps=R (Poisson arrivals), or the name of the "
                f"column: {named}"
            )


def trace_recipe(
    entry: Entry, source: str = "", folder: Path = Path(), plugins: Mapping[str, ModuleType] | None = None
) -> TraceRecipe:
    """Return the recipe of a composed trace file.

    Parameters
    ----------
    entry : the YAML as a plain dict, every key resolved.
    source, folder, plugins : for a kind of one's own: the beginning of messages, the folder to which its paths are
        relative, and the modules that its `_target_` may name.

    Raises
    ------
    SpecsimError
        One line for an unknown or missing key, or an unknown kind.
    """
    if "_target_" not in entry:
        node = keys.checked(entry, source)
    else:
        node = CheckedMapping(source or f"trace={entry.get('name', entry['_target_'])}", "", entry)
    reader = KINDS.made(node, folder, plugins or {})
    window, block_s = keys.window(node), keys.resample(node)
    if block_s is not None and "arrivals" in reader.drawn:
        node.refuse("resample", f"{shown(node.values['resample'])} changes nothing: the seed draws this trace anew")
    return TraceRecipe(node.source, reader, window, block_s, keys.baselines_s(node))


def resample(trace: Trace, block_s: float, *, seed: int, requests: int | None = None) -> Trace:
    """Return a trace of the same span whose blocks of `block_s` seconds are drawn from `trace`, rows numbered anew.

    This is the moving-block bootstrap (Kuensch 1989): blocks of equal length begin anywhere in the recording, may
    overlap and may be drawn more than once. A block keeps its bursts, lengths, classes and objectives.

    Block i depends only on (seed, i), so a shorter trace is the beginning of a longer one. If the span holds fewer than
    `requests`, blocks are added after it: the trace may have more requests than the recording.

    Raises
    ------
    SpecsimError
        When a block is not shorter than the trace, or blocks are too many.
    """
    span_s = float(trace.arrival_s[-1])
    if span_s == 0:
        raise SpecsimError(f"trace.resample={block_s:g}: trace {trace.source.name!r} has no span to draw blocks from")
    least_s = span_s / MOST_BLOCKS
    if not least_s <= block_s < span_s:
        raise SpecsimError(
            f"trace.resample={block_s:g}: expected seconds of at least {least_s:g} and below {span_s:g}, "
            f"the span of trace {trace.source.name!r}"
        )
    blocks, wanted = ceil(span_s / block_s), 1 if requests is None else requests
    rows, arrival_s, block = _drawn(trace, block_s, blocks, seed)
    inside = int(np.searchsorted(arrival_s, span_s, side="right"))
    while inside < wanted:
        blocks = max(2 * blocks, ceil(wanted / len(trace) * span_s / block_s))
        rows, arrival_s, block = _drawn(trace, block_s, blocks, seed)
        inside = min(len(rows), wanted)
    return trace.redrawn(rows[:inside], arrival_s[:inside], block[:inside])


def _drawn(trace: Trace, block_s: float, blocks: int, seed: int) -> tuple[Ints, Floats, Ints]:
    """Return rows of the trace, their rising arrivals in seconds since the first block's beginning, and their block."""
    block = np.arange(blocks)
    start_s = uniforms(stream_keys(seed, "trace_block", block)) * (trace.arrival_s[-1] - block_s)
    first = np.searchsorted(trace.arrival_s, start_s, side="left")
    size = np.searchsorted(trace.arrival_s, start_s + block_s, side="left") - first
    place = np.arange(size.sum()) - np.repeat(np.cumsum(size) - size, size)
    rows = np.repeat(first, size) + place
    arrival_s = trace.arrival_s[rows] + np.repeat(block * block_s - start_s, size)
    # Rounding may put an arrival before the one that it follows.
    return rows, np.maximum.accumulate(arrival_s) if len(rows) else arrival_s, np.repeat(block, size)


def varies(drawn: Set[str], mix: SloMix, *, names_classes: bool) -> tuple[str, ...]:
    """Return which of `DRAWN` change with the seed of a run, in that order.

    Parameters
    ----------
    drawn : what the seed draws of the trace. names_classes : whether the trace names the class of each request.

    Classes that the trace names vary only if the seed draws them. ``acceptance`` is named even if the scheduler never
    drafts.
    """
    stay = not mix.classes or (names_classes and not mix.redraw_classes)
    classes = "classes" in drawn if stay else len(mix.classes) > 1
    found = {*(drawn - {"classes"}), *(("classes",) if classes else ()), "acceptance"}
    return tuple(each for each in DRAWN if each in found)
