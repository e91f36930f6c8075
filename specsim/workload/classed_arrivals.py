"""Arrivals of a published recording under requests of other datasets: the seed draws classes, and lengths by class.

AdaServe v1 (arXiv 2501.12162, 6.1) sends Alpaca's instructions and ArXiv's articles at Azure's times.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from specsim.files.checked_mapping import CheckedMapping
from specsim.rng import stream_keys, uniforms
from specsim.workload import entry as keys
from specsim.workload import synthetic
from specsim.workload.published import PublishedTrace
from specsim.workload.trace import Ints, Trace

LENGTHS = ("prompt_tokens", "output_tokens")


@dataclass(frozen=True, slots=True)
class ClassedArrivals(PublishedTrace):
    """A trace with the arrivals of one published file, by its checked keys, which also hold `classes`.

    A class has its `share` of the requests, and its lengths. A share moves no other draw: a request that stays in its
    class keeps its lengths.
    """

    drawn: ClassVar[tuple[str, ...]] = ("lengths", "classes")

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return all arrivals, each with the class and the lengths that `seed` and its place give."""
        classes = self._classes()
        # The inherited method is called by name, since `super()` fails in a dataclass with slots.
        trace = PublishedTrace.read(self, seed, requests)
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
