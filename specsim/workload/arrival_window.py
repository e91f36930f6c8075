"""SpecServe's windows: arrivals from a published file of time stamps alone, lengths drawn by the seed.

Source: github.com/cerebellumking/AdaSpec, ``benchmarks/adaspec/traces/*.csv``. The authors send prompts of Spec-Bench,
drawn at random, at these times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import ClassVar

import numpy as np

from specsim.workload import columns, synthetic
from specsim.workload import entry as keys
from specsim.workload.arrivals import read_clock
from specsim.workload.csv_file import open_csv
from specsim.workload.damage import content
from specsim.workload.published import PublishedTrace
from specsim.workload.trace import Trace, TraceSource

STAMPS = "Timestamp"


@dataclass(frozen=True, slots=True)
class ArrivalWindow(PublishedTrace):
    """A trace of one published file of arrivals, in seconds; its checked keys also name the lengths."""

    drawn: ClassVar[tuple[str, ...]] = ("lengths",)

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return all arrivals, each with the lengths that `seed` and its place give."""
        # The inherited method is called by name, since `super()` fails in a dataclass with slots.
        trace = PublishedTrace.read(self, seed, requests)
        prompt, output = (np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(place,))) for place in (0, 1))
        return replace(
            trace,
            prompt_tokens=synthetic.lengths(keys.lengths(self.node, "prompt_tokens"), len(trace), prompt),
            output_tokens=synthetic.lengths(keys.lengths(self.node, "output_tokens"), len(trace), output),
        )

    def real(self, file: Path, source: TraceSource) -> Trace:
        """Return the arrivals of the real file, with lengths of one token."""
        table = open_csv(content(file), file, frozenset({STAMPS}))
        cells, rows = table.read([STAMPS])
        clock = read_clock(cells[STAMPS], STAMPS, rows, "s")
        rows.damage.check()
        ones = np.ones(len(clock.since_s), dtype=np.int64)
        return columns.trace(clock.since_s, ones, ones, np.arange(len(ones), dtype=np.int64), source, {})
