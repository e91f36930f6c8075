"""The operations between the products of a fused pass: in plain torch, or as one Triton kernel each."""

from __future__ import annotations

import torch
from torch.nn.functional import silu

from profiler.attention.split import Pools, Tail, plain_tail


class Plain:
    """The operations in plain torch, rounded where transformers' models round: the reference of the kernels.

    T are the tokens of the pass, H is the model's width.
    """

    name = "torch"

    def add_norm(
        self, hidden: torch.Tensor, residual: torch.Tensor | None, weight: torch.Tensor, epsilon: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the RMS norm of `hidden` + `residual`, times `weight` (H,), and the sum; all are (T, H)."""
        kept = hidden if residual is None else hidden + residual
        wide = kept.float()
        scaled = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + epsilon)
        return weight * scaled.to(kept.dtype), kept

    def rotary_write(
        self, qkv: torch.Tensor, positions: torch.Tensor, slots: torch.Tensor, rotary: Pools, pools: Pools
    ) -> torch.Tensor:
        """Return rotated queries (T, heads, head_dim); write rotated keys, and values, to their slots of the pools.

        `qkv` is (T, (heads + 2 kv_heads) * head_dim), `rotary` cosine and sine (positions, head_dim / 2), `positions`
        and `slots` (T,) int64, a pool (slots, kv_heads, head_dim).
        """
        kv_heads, width = pools[0].shape[1:]
        split = qkv.view(len(qkv), -1, width)
        cosine, sine = (each.index_select(0, positions)[:, None] for each in rotary)
        low, high = split[:, :-kv_heads].chunk(2, dim=-1)
        turned = torch.cat([low * cosine - high * sine, high * cosine + low * sine], dim=-1)
        pools[0].index_copy_(0, slots, turned[:, -kv_heads:])
        pools[1].index_copy_(0, slots, split[:, -kv_heads:])
        return turned[:, :-kv_heads]

    def silu_multiply(self, gate_up: torch.Tensor) -> torch.Tensor:
        """Return SiLU(gate) * up, (T, f), of `gate_up` (T, 2 f)."""
        gate, up = gate_up.chunk(2, dim=-1)
        return silu(gate) * up

    def tail(self, query: torch.Tensor, pools: Pools, tail: Tail, context: Pools, scaling: float) -> torch.Tensor:
        """Attend to the tails and merge with the attention to the contexts; see `split.plain_tail`."""
        return plain_tail(query, pools, tail, context, scaling)
