"""Seconds of one operator of one layer on one GPU, read off the public measurements.

Every table is interpolated in the logarithms of its axes and of the time; all sizes are those of one GPU's
share under tensor parallelism.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from tools.public import sources

if TYPE_CHECKING:
    import pandas as pd

Floats = NDArray[np.float64]
MS = 1e-3
LAYER_OPS = {
    "input_layernorm": "norm",
    "attn_rope": "rope",
    "mlp_act": "act",
    "emb": "emb",
}
GRAPH_TOKENS = 8
MOST_GQA_HEADS = 8
"""KV heads that the engine's decode tables go up to; with more, a model is of multi-head attention."""


def log_interp(at: float, axis: Floats, times: Floats) -> float:
    """Interpolate straight in log-log, clamped below the axis and proportional to size above it."""
    inside = float(np.exp(np.interp(np.log(at), np.log(axis), np.log(times))))
    return inside * max(1.0, at / float(axis[-1]))


def padded(sizes: pd.Series[int]) -> pd.Series[bool]:
    """Mark the sizes that an engine pads its captured passes to: powers of two up to 8, then multiples of 8.

    The tables hold sizes one past them too, where FP8 kernels can take twice as long.
    """
    return sizes.isin((1, 2, 4)) | (sizes % GRAPH_TOKENS == 0)


@dataclass(slots=True)
class Gemm:
    """Matrix products (m x k) @ (k x n) of one GPU type and precision; ``times[n, k]`` is a curve over m."""

    m: Floats
    sizes: Floats
    times: dict[tuple[int, int], Floats]
    curves: dict[tuple[int, int], Floats] = field(default_factory=dict)

    @classmethod
    def load(cls, data: Path, dataset: sources.Dataset, dtype: str) -> Gemm:
        """Read the grid of `dtype` (``bfloat16``, ``fp8``); `ValueError` when it was not measured."""
        rows = sources.read(data, dataset)
        rows = rows[(rows["gemm_dtype"] == dtype) & padded(rows["m"])].sort_values("m")
        if rows.empty:
            raise ValueError(f"{dataset.file}: no {dtype} products")
        groups: Any = rows.groupby(["n", "k"])
        times = {(int(n), int(k)): group["latency"].to_numpy(dtype=float) * MS for (n, k), group in groups}
        m = np.unique(rows["m"]).astype(float)
        return cls(m, np.unique(rows["k"]).astype(float), {k: v for k, v in times.items() if len(v) == len(m)})

    def seconds(self, m: float, n: int, k: int) -> float:
        """Return the seconds of one product."""
        if (n, k) not in self.curves:
            self.curves[n, k] = self.curve(n, k)
        return log_interp(m, self.m, self.curves[n, k])

    def curve(self, n: int, k: int) -> Floats:
        """Seconds over the measured m, interpolated between the measured n and k around the wanted ones."""
        if (n, k) in self.times:
            return self.times[n, k]
        total, weight_sum = np.zeros_like(self.m), 0.0
        for near_n, weight_n in self.around(n):
            for near_k, weight_k in self.around(k):
                weight = weight_n * weight_k
                total += weight * np.log(self.times[near_n, near_k])
                weight_sum += weight
        beyond = max(1.0, n / self.sizes[-1]) * max(1.0, k / self.sizes[-1])
        return np.asarray(np.exp(total / weight_sum) * beyond)

    def around(self, size: int) -> list[tuple[int, float]]:
        """Return the measured sizes on either side with their weights, linear in the logarithm."""
        if size >= self.sizes[-1]:
            return [(int(self.sizes[-1]), 1.0)]
        upper = int(np.searchsorted(self.sizes, size))
        high = self.sizes[upper]
        if high == size:
            return [(size, 1.0)]
        low = self.sizes[upper - 1]
        share = float(np.log(size / low) / np.log(high / low))
        return [(int(low), 1.0 - share), (int(high), share)]


@dataclass(frozen=True)
class Attention:
    """Attention of one layer on one GPU, for one count of query and KV heads of 128 dimensions."""

    batch: Floats
    context: Floats
    decode_grid: Floats
    prompt: Floats
    prompt_s: Floats

    @classmethod
    def load(cls, data: Path, kernels: sources.Kernels, heads: int, kv_heads: int, cache: str) -> Attention:
        """Read both tables for exactly this count of heads and a cache of `cache` (``bfloat16``, ``fp8``)."""
        decode = decode_rows(data, kernels, heads, kv_heads, cache)
        grid = decode.pivot_table(index="batch_size", columns="step", values="latency").sort_index() * MS
        prompts = one_shape(sources.read(data, kernels.context), heads, kv_heads, cache)
        curve = prompts.groupby("isl")["latency"].mean().sort_index() * MS
        return cls(
            grid.index.to_numpy(dtype=float),
            grid.columns.to_numpy(dtype=float) + 1.0,
            extended(grid.to_numpy(dtype=float)),
            curve.index.to_numpy(dtype=float),
            curve.to_numpy(dtype=float),
        )

    def decode(self, batch: int, context: float) -> float:
        """Seconds for `batch` single queries, each against `context` cached tokens."""
        over_batch = [log_interp(context + 1, self.context, row) for row in self.decode_grid]
        return log_interp(batch, self.batch, np.asarray(over_batch))

    def chunk(self, tokens: float, context: float) -> float:
        """Seconds for one chunk of `tokens` behind `context`: the longer prompt's time less the shorter's."""
        whole = log_interp(tokens + context, self.prompt, self.prompt_s)
        before = log_interp(context, self.prompt, self.prompt_s) if context else 0.0
        return max(whole - before, log_interp(tokens, self.prompt, self.prompt_s))

    @cached_property
    def pair_s(self) -> float:
        """Seconds per (query, key) pair of a prompt of 4,096 tokens: the rate of attention's products."""
        pairs = 4096 * 4097 / 2
        return log_interp(4096, self.prompt, self.prompt_s) / pairs


def decode_rows(data: Path, kernels: sources.Kernels, heads: int, kv_heads: int, cache: str) -> pd.DataFrame:
    """Return a decode pass's rows: the engine's own, or the older table's for multi-head attention."""
    if kv_heads <= MOST_GQA_HEADS:
        return one_shape(sources.read(data, kernels.decode), heads, kv_heads, cache)
    rows = sources.read(data, sources.MHA_DECODE)
    rows = rows[rows["system"] == kernels.system].rename(columns={"latency_ms": "latency"})
    return one_shape(rows, heads, kv_heads, "float16")


def one_shape(rows: pd.DataFrame, heads: int, kv_heads: int, cache: str) -> pd.DataFrame:
    """Return the rows of one count of heads and one type of cache; `ValueError` when there are none."""
    chosen = rows[(rows["num_heads"] == heads) & (rows["num_key_value_heads"] == kv_heads)]
    chosen = chosen[chosen["kv_cache_dtype"] == cache]
    if chosen.empty:
        raise ValueError(f"no attention measured with {heads}/{kv_heads} heads and a cache of {cache}")
    return chosen


def extended(grid: Floats) -> Floats:
    """Fill the unmeasured corner (long context, large batch) by doubling along the context axis."""
    filled = grid.copy()
    for column in range(1, filled.shape[1]):
        gap = np.isnan(filled[:, column])
        filled[gap, column] = 2.0 * filled[gap, column - 1]
    return filled


@dataclass(frozen=True)
class ElementwiseLayer:
    """GPU time of each elementwise operator of one measured model's layer, over batched tokens."""

    tokens: Floats
    times: dict[str, Floats]

    @classmethod
    def load(cls, data: Path, dataset: sources.Dataset, model: str, gpus: int) -> ElementwiseLayer:
        """Read the medians of `model` under tensor parallelism over `gpus`."""
        rows = sources.read(data, dataset)
        rows = rows[(rows["model"] == model) & (rows["num_tensor_parallel_workers"] == gpus)]
        columns = [f"{name}.median_ms" for name in LAYER_OPS]
        medians = rows.groupby("num_tokens")[columns].median().sort_index()
        times = {short: medians[f"{name}.median_ms"].to_numpy(dtype=float) * MS for name, short in LAYER_OPS.items()}
        return cls(medians.index.to_numpy(dtype=float), times)

    def seconds(self, operator: str, tokens: float) -> float:
        """Return the seconds of one operator; fewer than one token's worth costs what one does."""
        return log_interp(max(tokens, 1.0), self.tokens, self.times[operator])


@dataclass(frozen=True)
class AllReduce:
    """vLLM's own all-reduce of 16-bit values between the GPUs of one node, captured, over the number of values.

    NCCL does it from 8 MiB on, as in the engine.
    """

    values: Floats
    times: Floats

    @classmethod
    def load(cls, data: Path, dataset: sources.Dataset, gpus: int) -> AllReduce:
        """Read the curve over `gpus`, in CUDA graphs."""
        rows = sources.read(data, dataset)
        rows = rows[(rows["backend"] == "vllm_graph") & (rows["num_gpus"] == gpus)].sort_values("message_size")
        return cls(rows["message_size"].to_numpy(dtype=float), rows["latency"].to_numpy(dtype=float) * MS)

    def seconds(self, values: float) -> float:
        """Return the seconds to sum `values` numbers across the GPUs."""
        return log_interp(values, self.values, self.times)
