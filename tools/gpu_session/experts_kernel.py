"""A product of tokens with the expert of their tile, in Triton."""

from __future__ import annotations

import torch
import triton
import triton.language as tl


@triton.jit(do_not_specialize=["pairs"])
def product_kernel(  # type: ignore[no-untyped-def] # noqa: D103
    given, weights, out, placed, of_tile, pairs, experts,
    COLUMNS: tl.constexpr, DEPTH: tl.constexpr, TAKEN: tl.constexpr,  # noqa: N803
    ROWS_TILE: tl.constexpr, COLUMNS_TILE: tl.constexpr, DEPTH_TILE: tl.constexpr,  # noqa: N803
):  # fmt: skip
    tile = tl.program_id(1)
    expert = tl.load(of_tile + tile)
    if expert < experts:
        pair = tl.load(placed + tile * ROWS_TILE + tl.arange(0, ROWS_TILE))
        real = pair < pairs
        column = tl.program_id(0) * COLUMNS_TILE + tl.arange(0, COLUMNS_TILE)
        depth = tl.arange(0, DEPTH_TILE)
        left = given + (pair // TAKEN)[:, None] * DEPTH + depth[None]
        right = weights + expert * COLUMNS * DEPTH + column[None].to(tl.int64) * DEPTH + depth[:, None]
        total = tl.zeros([ROWS_TILE, COLUMNS_TILE], tl.float32)
        for _ in range(0, DEPTH, DEPTH_TILE):
            a = tl.load(left, mask=real[:, None], other=0.0)
            b = tl.load(right, mask=(column < COLUMNS)[None], other=0.0)
            total = tl.dot(a, b, total, input_precision="ieee")
            left += DEPTH_TILE
            right += DEPTH_TILE
        to = out + pair[:, None] * COLUMNS + column[None]
        tl.store(to, total.to(out.dtype.element_ty), mask=real[:, None] & (column < COLUMNS)[None])


def product(
    given: torch.Tensor,
    weights: torch.Tensor,
    placed: torch.Tensor,
    of_tile: torch.Tensor,
    taken: int,
    tile: tuple[int, int, int, int],
) -> torch.Tensor:
    """Return (pairs, columns): row p is row p // `taken` of `given` times the weights (E, columns, depth) of its tile.

    `placed` holds the pair of each row of each tile, the number of pairs where there is none; `of_tile` the expert of a
    tile, E where it is empty.
    """
    experts, columns, depth = weights.shape
    pairs = len(given) * taken
    rows, columns_tile, depth_tile, warps = tile
    out = given.new_empty((pairs, columns))
    product_kernel[(-(-columns // columns_tile), len(of_tile))](
        given, weights, out, placed, of_tile, pairs, experts,
        COLUMNS=columns, DEPTH=depth, TAKEN=taken,
        ROWS_TILE=rows, COLUMNS_TILE=columns_tile, DEPTH_TILE=min(depth_tile, depth), num_warps=warps, num_stages=4,
    )  # fmt: skip
    return out
