"""The operations of a fused pass as Triton kernels; a model needs one compilation of each, whatever the pass.

Sizes of the model are constants of the compilation; rows, lengths and strides that depend on the pass are not, and no
integer is specialised on being 1 or divisible by 16. Products and sums are in float32.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from profiler.attention.operations import Plain
from profiler.attention.packing import power_of_two
from profiler.attention.split import Pools, Tail

COLUMNS = 1024
TAIL_TILE = 64
TAIL_KEYS = 32
LEAST_DOT = 16


@triton.jit(do_not_specialize=["adds"])
def add_norm_kernel(hidden, residual, weight, out, adds, epsilon, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: D103, N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.arange(0, BLOCK)
    inside = column < WIDTH
    at = row * WIDTH + column
    summed = tl.load(hidden + at, mask=inside, other=0.0).to(tl.float32)
    # A row of `adds`, since the interpreter of Triton 3.9 takes no scalar in a mask.
    added = inside & (column * 0 + adds != 0)
    summed += tl.load(residual + at, mask=added, other=0.0).to(tl.float32)
    # The norm is of the sum as it is kept, rounded.
    kept = summed.to(residual.dtype.element_ty)
    tl.store(residual + at, kept, mask=inside)
    summed = kept.to(tl.float32)
    scale = tl.rsqrt(tl.sum(summed * summed, axis=0) / WIDTH + epsilon)
    scaled = (summed * scale).to(out.dtype.element_ty).to(tl.float32)
    scaled *= tl.load(weight + column, mask=inside, other=0.0).to(tl.float32)
    tl.store(out + at, scaled.to(out.dtype.element_ty), mask=inside)


@triton.jit
def rotary_write_kernel(  # type: ignore[no-untyped-def] # noqa: D103
    qkv, positions, slots, cosine, sine, query, keys, values,
    KV_HEADS: tl.constexpr, SHARE: tl.constexpr, SHARES: tl.constexpr, WIDTH: tl.constexpr, HALF: tl.constexpr,  # noqa: N803
):  # fmt: skip
    token, group = tl.program_id(0).to(tl.int64), tl.program_id(1)
    half: tl.constexpr = WIDTH // 2
    head, pair = tl.arange(0, SHARES)[:, None], tl.arange(0, HALF)
    inside = pair < half
    angle = tl.load(positions + token) * half + pair
    cos = tl.load(cosine + angle, mask=inside, other=0.0).to(tl.float32)
    sin = tl.load(sine + angle, mask=inside, other=0.0).to(tl.float32)
    first = qkv + token * ((SHARE + 2) * KV_HEADS * WIDTH)
    asked = (group * SHARE + head) * WIDTH + pair[None]
    real = (head < SHARE) & inside[None]
    low = tl.load(first + asked, mask=real, other=0.0).to(tl.float32)
    high = tl.load(first + asked + half, mask=real, other=0.0).to(tl.float32)
    to = query + token * (SHARE * KV_HEADS * WIDTH) + asked
    tl.store(to, (low * cos[None] - high * sin[None]).to(query.dtype.element_ty), mask=real)
    tl.store(to + half, (high * cos[None] + low * sin[None]).to(query.dtype.element_ty), mask=real)
    of_key = first + (SHARE * KV_HEADS + group) * WIDTH + pair
    low = tl.load(of_key, mask=inside, other=0.0).to(tl.float32)
    high = tl.load(of_key + half, mask=inside, other=0.0).to(tl.float32)
    slot = tl.load(slots + token) * (KV_HEADS * WIDTH) + group * WIDTH + pair
    tl.store(keys + slot, (low * cos - high * sin).to(keys.dtype.element_ty), mask=inside)
    tl.store(keys + slot + half, (high * cos + low * sin).to(keys.dtype.element_ty), mask=inside)
    of_value = of_key + KV_HEADS * WIDTH
    tl.store(values + slot, tl.load(of_value, mask=inside, other=0.0), mask=inside)
    tl.store(values + slot + half, tl.load(of_value + half, mask=inside, other=0.0), mask=inside)


@triton.jit
def silu_multiply_kernel(gate_up, out, WIDTH: tl.constexpr, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def] # noqa: D103, N803
    row = tl.program_id(0).to(tl.int64)
    column = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    inside = column < WIDTH
    gate = tl.load(gate_up + row * (2 * WIDTH) + column, mask=inside, other=0.0).to(tl.float32)
    up = tl.load(gate_up + row * (2 * WIDTH) + WIDTH + column, mask=inside, other=0.0).to(tl.float32)
    product = gate / (1.0 + tl.exp(-gate)) * up
    tl.store(out + row * WIDTH + column, product.to(out.dtype.element_ty), mask=inside)


@triton.jit(do_not_specialize=["lse_stride"])
def tail_kernel(  # type: ignore[no-untyped-def] # noqa: D103
    query, keys, values, start, tail_start, tail_slots, opens, closes, point, context, out, lse, lse_stride, scaling,
    KV_HEADS: tl.constexpr, SHARE: tl.constexpr, SHARES: tl.constexpr, WIDTH: tl.constexpr, COLUMNS: tl.constexpr,  # noqa: N803
    QUERIES: tl.constexpr, BLOCK: tl.constexpr,  # noqa: N803
):  # fmt: skip
    row, group = tl.program_id(0), tl.program_id(1)
    place = tl.arange(0, QUERIES * SHARES)
    share = place % SHARES
    asked = tl.load(start + row) + tl.program_id(2) * QUERIES + place // SHARES
    real = (asked < tl.load(start + row + 1)) & (share < SHARE)
    head = group * SHARE + share
    column = tl.arange(0, COLUMNS)
    inside = column < WIDTH
    at = (asked.to(tl.int64) * (KV_HEADS * SHARE) + head)[:, None] * WIDTH + column[None]
    there = real[:, None] & inside[None]
    q = tl.load(query + at, mask=there, other=0.0)
    mine = tl.load(point + asked, mask=real, other=-1)
    highest = tl.full([QUERIES * SHARES], float("-inf"), tl.float32)
    total = tl.zeros([QUERIES * SHARES], tl.float32)
    mixed = tl.zeros([QUERIES * SHARES, COLUMNS], tl.float32)
    begin, last = tl.load(tail_start + row), tl.load(tail_start + row + 1)
    # A loop over a range would do, but the interpreter takes no range of run-time ends from NumPy 2.4 on.
    while begin < last:
        entry = begin + tl.arange(0, BLOCK)
        held = entry < last
        slot = tl.load(tail_slots + entry, mask=held, other=0) * (KV_HEADS * WIDTH) + group * WIDTH
        cached = slot[:, None] + column[None]
        loaded = held[:, None] & inside[None]
        k = tl.load(keys + cached, mask=loaded, other=0.0)
        v = tl.load(values + cached, mask=loaded, other=0.0)
        opened = tl.load(opens + entry, mask=held, other=2**30)
        closed = tl.load(closes + entry, mask=held, other=0)
        sees = (opened[None] <= mine[:, None]) & (mine[:, None] < closed[None])
        score = tl.dot(q, tl.trans(k), input_precision="ieee").to(tl.float32) * scaling
        score = tl.where(sees, score, float("-inf"))
        higher = tl.maximum(highest, tl.max(score, axis=1))
        # A query that has seen no key yet has no highest score; -inf less -inf is no number.
        base = tl.where(higher == float("-inf"), 0.0, higher)
        weight = tl.exp(score - base[:, None])
        fade = tl.exp(highest - base)
        total = total * fade + tl.sum(weight, axis=1)
        mixed = mixed * fade[:, None] + tl.dot(weight.to(v.dtype), v, input_precision="ieee").to(tl.float32)
        highest = higher
        begin += BLOCK
    sees_context = real & (tl.load(context + row) > 0)
    before = tl.load(lse + head.to(tl.int64) * lse_stride + asked, mask=sees_context, other=float("-inf"))
    top = tl.maximum(highest, before)
    top = tl.where(top == float("-inf"), 0.0, top)
    part, rest = tl.exp(before - top), tl.exp(highest - top)
    earlier = tl.load(out + at, mask=sees_context[:, None] & inside[None], other=0.0).to(tl.float32)
    whole = part + rest * total
    merged = (part[:, None] * earlier + rest[:, None] * mixed) / tl.where(whole > 0.0, whole, 1.0)[:, None]
    tl.store(out + at, merged.to(out.dtype.element_ty), mask=there)


class AttentionKernels(Plain):
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
            add_norm_kernel,
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
            rotary_write_kernel,
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
            silu_multiply_kernel,
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
            tail_kernel,
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
