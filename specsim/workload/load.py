"""The trace of an entry of ``conf/trace``: reading, window, resampling, row limit, rate, in this order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import ModuleType

from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.kinds.table import Kinds, asked
from specsim.workload import entry as keys
from specsim.workload.arrival_window import ArrivalWindow
from specsim.workload.classed_arrivals import ClassedArrivals
from specsim.workload.drawn import DrawnTrace
from specsim.workload.entry import Entry
from specsim.workload.published import AdaServeTrace, PublishedTrace, UserFile, noted
from specsim.workload.reader import TraceReader
from specsim.workload.resample import resample
from specsim.workload.trace import Trace

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


@dataclass(frozen=True, slots=True)
class TraceRecipe:
    """A reader, and the window and resampling of its trace.

    Attributes
    ----------
    source : the beginning of messages. reader : of the whole trace.
    window : seconds of arrival that are kept; None: all.
    block_s : seconds of the blocks that the seed draws from a recording; None: not resampled.
    """

    source: str
    reader: TraceReader
    window: tuple[float, float] | None
    block_s: float | None

    @property
    def drawn(self) -> frozenset[str]:
        """What the seed draws anew: arrivals, lengths, classes."""
        return frozenset(self.reader.drawn if self.block_s is None else ("arrivals", "lengths", "classes"))

    def trace(self, seed: int, requests: int | None = None, rps: float | None = None) -> Trace:
        """Return the trace; see `load_trace`."""
        whole = self.window is not None or self.block_s is not None
        trace: Trace = asked(self.source, self.reader.read, Trace, seed, None if whole else requests)
        trace = trace if self.window is None else trace.window(*self.window)
        if "arrivals" not in self.reader.drawn and (requests is None or whole or len(trace) > requests):
            trace = replace(trace, source=replace(trace.source, holds=len(trace)))
        if self.block_s is not None:
            said = f"trace.resample={self.block_s:g}: the seed draws blocks of {self.block_s:g} s from the recording"
            trace = noted(resample(trace, self.block_s, seed=seed, requests=requests), said)
        trace = trace if requests is None else trace.head(requests)
        return trace if rps is None else trace.at_rate(rps)


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
        node = keys.checked(entry)
    else:
        node = CheckedMapping(source or f"trace={entry.get('name', entry['_target_'])}", "", entry)
    reader = KINDS.made(node, folder, plugins or {})
    window, block_s = keys.window(node), keys.resample(node)
    if block_s is not None and "arrivals" in reader.drawn:
        node.refuse("resample", f"{shown(node.values['resample'])} changes nothing: the seed draws this trace anew")
    return TraceRecipe(node.source, reader, window, block_s)


def load_trace(entry: Entry, *, seed: int, requests: int | None = None, rps: float | None = None) -> Trace:
    """Return the trace of a composed ``conf/trace/NAME.yaml``, resampled, cut to ``requests``, stretched to ``rps``.

    Parameters
    ----------
    entry : the YAML as a plain dict, every key resolved
    seed : of synthetic and resampled traces; other traces do not depend on it
    requests : how many rows of the window are kept; None: all
    rps : true mean rate of the kept rows, requests per second; None: the trace's own

    Raises
    ------
    SpecsimError
        One line for an unknown or missing key, a bad value, damage in a file, or more requests than exist.
    """
    return trace_recipe(entry).trace(seed, requests, rps)
