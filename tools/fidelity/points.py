"""Published measurements of whole engines in closed loops, and what a target's passes say of the same loads."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from specsim.latency.model import MEMORY_SHARE, ModelLatency
from tools.fidelity.closed_loop import Load, Loop, closed_loop
from tools.public import sources

if TYPE_CHECKING:
    import pandas as pd

POINTS = sources.Dataset(
    "perf/serving_points/aiconfigurator_h100.parquet", sources.KERNELS, "Apache-2.0", "as each row says"
)
BUDGET_TOKENS = 8192
"""Tokens of a pass at most: what vLLM and TensorRT-LLM default to on GPUs of 80 GB."""
ROUNDS = 10
"""Requests of a client; the sources of the points do not state theirs."""
MS = 1e-3


@dataclass(frozen=True, slots=True)
class Served:
    """A target as it was served: the name, GPUs and precision by which its points are known."""

    model: str
    gpus: int
    precision: str | None
    target: ModelLatency
    memory_bytes: int

    @property
    def cache_tokens(self) -> float:
        """Tokens that fit beside the target's weights alone: engines were measured without a draft model."""
        free = MEMORY_SHARE * self.memory_bytes - self.target.weights_bytes
        return free / self.target.kv_bytes_per_token


class Point(NamedTuple):
    """One load: measured and simulated seconds to the first token and per output token."""

    engine: str
    load: Load
    ttft_s: float
    tpot_s: float
    simulated_ttft_s: float
    simulated_tpot_s: float

    @property
    def tpot_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated_tpot_s / self.tpot_s - 1

    @property
    def ttft_error(self) -> float:
        """(simulated - measured) / measured."""
        return self.simulated_ttft_s / self.ttft_s - 1


def points(data: Path, served: Served) -> Iterator[Point]:
    """Yield the points of a target whose caches fit its memory: beyond, engines queue by rules of their own."""
    for _, row in rows_of(data, served).iterrows():
        load = Load(int(row["isl"]), int(row["osl"]), int(row["concurrency"]))
        if load.concurrency * (load.isl + load.osl) > served.cache_tokens:
            continue
        version = row["backend_version"]
        engine = str(row["backend"]) + (f" {version}" if isinstance(version, str) else "")
        simulated = loop_of(load).latencies(served.target, load.osl)
        yield Point(engine, load, float(row["ttft_ms"]) * MS, float(row["tpot_ms"]) * MS, *simulated)


def rows_of(data: Path, served: Served) -> pd.DataFrame:
    """Return the rows of a target's points."""
    rows: Any = sources.read(data, POINTS)
    rows = rows[(rows["model_path"] == served.model) & (rows["tp_size"] == served.gpus)]
    precision = rows["precision"].fillna("")
    chosen: pd.DataFrame = rows[precision == (served.precision or "")]
    return chosen


@cache
def loop_of(load: Load) -> Loop:
    """Return the passes of a load, which every engine runs alike."""
    return closed_loop(load, ROUNDS, BUDGET_TOKENS)
