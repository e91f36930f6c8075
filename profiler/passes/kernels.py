"""Triton kernels of the fused path. A model needs one compilation of each, whatever the pass.

Sizes of the model are constants of the compilation; rows, lengths and strides that depend on the pass are not, and no
integer is specialised on being 1 or divisible by 16. Products and sums are in float32.
"""

from __future__ import annotations

import triton
import triton.language as tl


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
