"""Synthetic traces: arrivals and lengths drawn from the distributions that the file names."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping
from specsim.workload import entry as keys
from specsim.workload import synthetic
from specsim.workload.trace import Trace, TraceSource, check_span


@dataclass(frozen=True, slots=True)
class DrawnTrace:
    """A trace of ``kind: synthetic``, by its checked keys."""

    node: CheckedMapping

    @property
    def drawn(self) -> tuple[str, ...]:
        """Arrivals; and lengths, unless both are fixed."""
        lengths = (keys.lengths(self.node, name) for name in ("prompt_tokens", "output_tokens"))
        varied = any(each.distribution != "fixed" and (each.low is None or each.low != each.high) for each in lengths)
        return ("arrivals", "lengths") if varied else ("arrivals",)

    def read(self, seed: int, requests: int | None) -> Trace:
        """Return the first `requests`; by default ``trace.n``."""
        node = self.node
        n = node.whole("n") if requests is None else requests
        if n < 1:
            raise SpecsimError(f"requests={n}: expected a whole number, at least 1")
        rps = node.number("rps", above=0)
        # One random stream per column: a column must not change when another draws more numbers.
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
