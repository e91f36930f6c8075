"""The operations of a fused pass as Triton kernels; shapes as in `profiler.passes.operations.Plain`."""

from __future__ import annotations

from typing import Any

import torch

from profiler.passes import kernels
from profiler.passes.attention_split import Pools, Tail
from profiler.passes.operations import Plain
from profiler.passes.packing import power_of_two

COLUMNS = 1024
TAIL_TILE = 64
TAIL_KEYS = 32
LEAST_DOT = 16


class Kernels(Plain):
    """Triton's kernels; with TRITON_INTERPRET=1, set before Triton is imported, they run on the CPU."""

    name = "triton"

    def add_norm(
        self, hidden: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Add and norm; the sum takes the place of `residual`."""
        rows, width = hidden.shape
        kept = torch.empty_like(hidden) if residual is None else residual
        out = torch.empty_like(hidden)
        block = power_of_two(width)
        launch(
            kernels.add_norm_kernel,
            (rows,),
            (hidden, kept, weight, out, int(residual is not None), epsilon),
            {"WIDTH": width, "BLOCK": block},
            warps=min(max(block // 512, 1), 16),
        )
        return out, kept

    def rotary_write(
        self, qkv: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, rotary: Pools, pools: Pools
    ) -> torch.Tensor:
        """Rotate and write."""
        kv_heads, width = pools[0].shape[1:]
        heads = qkv.shape[1] // width - 2 * kv_heads
        query = qkv.new_empty((len(qkv), heads, width))
        share = heads // kv_heads
        sizes = {"KV_HEADS": kv_heads, "SHARE": share, "SHARES": power_of_two(share)}
        launch(
            kernels.rotary_write_kernel,
            (len(qkv), kv_heads),
            (qkv, positions, slots, *rotary, query, *pools),
            {**sizes, "WIDTH": width, "HALF": power_of_two(width // 2)},
            warps=1,
        )
        return query

    def silu_multiply(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Multiply."""
        rows, width = len(gate_up), gate_up.shape[1] // 2
        out = gate_up.new_empty((rows, width))
        launch(
            kernels.silu_multiply_kernel,
            (rows, -(-width // COLUMNS)),
            (gate_up, out),
            {"WIDTH": width, "BLOCK": COLUMNS},
            warps=4,
        )
        return out

    def tail(self, query: torch.Tensor, pools: Pools, tail: Tail, context: Pools, scaling: float) -> torch.Tensor:
        """Attend to the tails and merge in place."""
        (_, heads, width), kv_heads = query.shape, pools[0].shape[1]
        share = heads // kv_heads
        shares = power_of_two(share)
        queries = max(TAIL_TILE // shares, 1)
        out, lse = context
        launch(
            kernels.tail_kernel,
            (tail.rows, kv_heads, -(-tail.most_queries // queries)),
            (query, *pools, *tail.tensors, out, lse, lse.stride(0), scaling),
            {
                "KV_HEADS": kv_heads,
                "SHARE": share,
                "SHARES": shares,
                "WIDTH": width,
                "COLUMNS": max(power_of_two(width), LEAST_DOT),
                "QUERIES": queries,
                "BLOCK": TAIL_KEYS,
            },
            warps=4,
        )
        return out


def launch(kernel: Any, grid: tuple[int, ...], given: tuple[Any, ...], sizes: dict[str, int], warps: int) -> None:
    """Launch a kernel; only the types of `given`, `sizes` and `warps` decide what is compiled."""
    kernel[grid](*given, **sizes, num_warps=warps)
