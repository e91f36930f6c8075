"""FlexAttention with a tree mask over pages.

Rows are along the batch dimension and share one pool of keys. The block mask names the pages of each row, and the mask
lets a node see its ancestors. Rows are grouped by their query count, rounded up to a power of two, with one kernel call
per group: a decode or verify pass is one call.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch.nn.functional import pad

from profiler.attention.packing import EVERYWHERE, Ints, Packed, PackedRoom, Work, power_of_two
from profiler.attention.pages import CacheShape, PageTables, copy_tensors
from profiler.attention.sdpa import grouped, inverse

BLOCK_TOKENS = 128
QUERY_BLOCK = 128
FEWEST_BEHIND = 16
LEAST_TILE = 16
# Warps of the kernel for short queries, by its tile. By default it has two for every tile. From 64 on the compiler then
# spills accumulators to memory (stack frames of 1 to 11 KB for compute capability 9.0, none with these).
WARPS = {16: 2, 32: 4, 64: 4, 128: 8}
# Pipeline stages of key blocks from compute capability 9.0 on, for tiles that leave registers for them. PyTorch 2.11
# and 2.13 intend the same and fall through to one.
STAGES = {16: 3, 32: 3}
MANY_SHAPES = 1024


@dataclass(frozen=True, slots=True)
class FlexGroup:
    """Rows of one kernel call as tensors of fixed sizes, so that a captured graph can take over other rows.

    There are b rows of q queries and w keys after the cached context. Both are padded to powers of two, w to at least
    16, which gives fewer kernels to compile.

    Attributes
    ----------
    queries : (b * q,) packed query of each place; any query for padding.
    point : (b, q) point of each query; -1 for padding.
    row, context, tail : (b,) the row's number, its cached tokens, its keys after them.
    opens, closes : (b, w) intervals of those keys.
    owner, first : (pages,) the row of each page (-1: none), and the index of the page's first key in the row.
    count, blocks : pages to visit, in the layout of FlexAttention's BlockMask.
    """

    queries: torch.Tensor
    point: torch.Tensor
    row: torch.Tensor
    context: torch.Tensor
    tail: torch.Tensor
    opens: torch.Tensor
    closes: torch.Tensor
    owner: torch.Tensor
    first: torch.Tensor
    count: torch.Tensor
    blocks: torch.Tensor


class FlexPlan:
    """The groups of a pass with their block masks, and the place of each packed query in the joined output."""

    def __init__(
        self,
        groups: list[FlexGroup],
        inverse: torch.Tensor,
        page_tokens: int,
        kernel: Callable[..., Any],
        *,
        pipelined: bool,
    ) -> None:
        self._groups = groups
        self._pipelined = pipelined
        self._inverse = inverse
        self._kernel = kernel
        self._masks = [block_mask(group, page_tokens) for group in groups]

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend group by group; shapes as in `profiler.attention.planning.Plan`."""
        heads, width = query.shape[1:]
        kv_heads = keys.shape[1]
        k, v = keys.transpose(0, 1).unsqueeze(0), values.transpose(0, 1).unsqueeze(0)
        outputs = []
        for group, mask in zip(self._groups, self._masks, strict=True):
            rows, queries = group.point.shape
            share, options = tiling(queries, heads // kv_heads, pipelined=self._pipelined)
            asked = query.index_select(0, group.queries).view(rows, queries, kv_heads, -1, width)
            if share > asked.shape[3]:
                asked = pad(asked, (0, 0, 0, share - asked.shape[3]))
            asked = asked.flatten(2, 3).transpose(1, 2)
            out = self._kernel(
                asked, k, v, block_mask=mask, scale=scaling, enable_gqa=share > 1, kernel_options=options
            )
            out = out.transpose(1, 2).unflatten(2, (kv_heads, share))[:, :, :, : heads // kv_heads]
            outputs.append(out.reshape(-1, heads, width))
        return torch.cat(outputs).index_select(0, self._inverse)

    def load(self, other: FlexPlan) -> None:
        """Take over another plan of equal sizes."""
        self._inverse.copy_(other._inverse)
        for mine, its in zip(self._groups, other._groups, strict=True):
            copy_tensors(mine, its)


def tiling(queries: int, share: int, *, pipelined: bool = False) -> tuple[int, dict[str, Any]]:
    """Return the padded query heads per key head, and the kernel's options, for q padded queries of `share` heads.

    The kernel for short queries has one tile for all queries of the heads that share a key head; their number must be a
    power of two. There is no kernel for a tile larger than the mask's block, so such a tile is divided.
    """
    if queries >= QUERY_BLOCK:
        return share, {}
    whole = power_of_two(share)
    tile = min(max(whole * queries, LEAST_TILE), QUERY_BLOCK)
    stages = {"num_stages": STAGES[tile]} if pipelined and tile in STAGES else {}
    return whole, {"BLOCK_M": tile, "num_warps": WARPS[tile], **stages}


def block_mask(group: FlexGroup, page_tokens: int) -> Any:
    """Return the BlockMask of a group; its mask alone is right too, for a kernel that visits every block.

    Pages of whole context count as masked. If some blocks needed no mask, the kernel for short queries would split the
    keys by the length of the whole pool instead of the row's pages.
    """
    from torch.nn.attention.flex_attention import BlockMask

    point, row, context, tail = group.point, group.row, group.context, group.tail
    opens, closes, owner, first = group.opens, group.closes, group.owner, group.first
    last = opens.shape[1] - 1

    def sees(b: torch.Tensor, _: torch.Tensor, q: torch.Tensor, slot: torch.Tensor) -> torch.Tensor:
        page = slot // page_tokens
        behind = first[page] + slot % page_tokens - context[b]
        entry = torch.clamp(behind, 0, last)
        at = point[b, q]
        inside = (behind < tail[b]) & (opens[b, entry] <= at) & (at < closes[b, entry])
        return (owner[page] == row[b]) & ((behind < 0) | inside)

    return BlockMask(
        seq_lengths=(point.shape[1], len(owner) * page_tokens),
        kv_num_blocks=group.count,
        kv_indices=group.blocks,
        full_kv_num_blocks=None,
        full_kv_indices=None,
        q_num_blocks=None,
        q_indices=None,
        full_q_num_blocks=None,
        full_q_indices=None,
        BLOCK_SIZE=(QUERY_BLOCK, page_tokens),
        mask_mod=sees,
    )


@functools.cache
def _compiled() -> Callable[..., Any]:
    """Return the compiled kernel, one for each shape, since the batch dimension must not become symbolic."""
    import torch._dynamo
    from torch.nn.attention.flex_attention import flex_attention

    torch._dynamo.config.recompile_limit = MANY_SHAPES
    torch._dynamo.config.accumulated_recompile_limit = MANY_SHAPES
    compiled: Callable[..., Any] = torch.compile(flex_attention, dynamic=False)
    return compiled


def _plain(*tensors: torch.Tensor, **options: Any) -> Any:
    """Return attention over every slot of the pool without fusing: the kernel's reference."""
    from torch.nn.attention.flex_attention import flex_attention

    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="flex_attention called without torch.compile")
        return flex_attention(*tensors, **options)


class Flex:
    """The planner; `compiled=False` runs the plain reference, which visits every slot of the pool."""

    name = "flex"

    def __init__(self, shape: CacheShape, *, compiled: bool, device: torch.device) -> None:
        self.page_tokens = shape.page_tokens
        self._pages = shape.pages
        self._device = device
        self._pipelined = device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)
        self._kernel: Callable[..., Any] = _compiled() if compiled else _plain

    def plan(
        self, work: Work, packed: Packed, tables: PageTables, size: int, room: PackedRoom | None = None
    ) -> FlexPlan:
        """Return the plan of a pass; see `profiler.attention.planning.Planner`. Its tables are as wide as the pool."""
        del room
        owner, first = self._ownership(tables)
        groups, order = [], []
        for rows in grouped(work.new_tokens, work.key_tokens, limit=2**62):
            arrays, queries = group_arrays(rows, work, packed, tables)
            parts = {name: torch.from_numpy(each).to(self._device) for name, each in arrays.items()}
            # The kernel expects a table as wide as the pool, and reads no more than `count`.
            parts["blocks"] = pad(parts["blocks"], (0, self._pages - parts["blocks"].shape[-1]))
            groups.append(FlexGroup(**parts, owner=owner, first=first))
            order.append(queries)
        placed = torch.from_numpy(inverse(np.concatenate(order), size)).to(self._device)
        return FlexPlan(groups, placed, self.page_tokens, self._kernel, pipelined=self._pipelined)

    def _ownership(self, tables: PageTables) -> tuple[torch.Tensor, torch.Tensor]:
        row, place = np.nonzero(tables.pages >= 0)
        held = tables.pages[row, place]
        owner, first = np.full(self._pages, -1, np.int32), np.zeros(self._pages, np.int32)
        owner[held], first[held] = row, place * self.page_tokens
        return torch.from_numpy(owner).to(self._device), torch.from_numpy(first).to(self._device)


def group_arrays(rows: Ints, work: Work, packed: Packed, tables: PageTables) -> tuple[dict[str, Any], Ints]:
    """Return the arrays of a `FlexGroup` except `owner` and `first`, and the packed query of each place (-1: none)."""
    counts = work.new_tokens[rows]
    tails = packed.tail_start[rows + 1] - packed.tail_start[rows]
    place = np.arange(power_of_two(int(counts.max())))
    real = place < counts[:, None]
    queries = packed.start[rows][:, None] + np.where(real, place, 0)
    behind = np.arange(max(power_of_two(int(tails.max())), FEWEST_BEHIND))
    there = behind < tails[:, None]
    entry = packed.tail_start[rows][:, None] + np.where(there, behind, 0)
    point = np.where(real, packed.point[queries], -1)
    arrays = {
        "queries": queries.ravel(),
        "point": point.astype(np.int32),
        "row": rows.astype(np.int32),
        "context": work.context[rows].astype(np.int32),
        "tail": tails.astype(np.int32),
        "opens": np.where(there, packed.opens[entry], EVERYWHERE).astype(np.int32),
        "closes": np.where(there, packed.closes[entry], 0).astype(np.int32),
        **_blocks(rows, packed, tables, np.where(real, queries, -1)),
    }
    places: Ints = np.where(real, queries, -1).ravel()
    return arrays, places


def _blocks(rows: Ints, packed: Packed, tables: PageTables, queries: Ints) -> dict[str, Any]:
    """Return the pages that each block of 128 queries visits, as a table as wide as the longest row.

    A block visits no page after the last key that one of its queries may see.
    """
    blocks = -(-queries.shape[1] // QUERY_BLOCK)
    furthest = np.full((len(rows), blocks * QUERY_BLOCK), -1, np.int64)
    furthest[:, : queries.shape[1]] = np.where(queries >= 0, packed.key[queries], -1)
    reach = furthest.reshape(len(rows), blocks, QUERY_BLOCK).max(axis=2) + 1
    count = -(-reach // tables.page_tokens)
    held = np.maximum(tables.pages[rows, : int(count.max())], 0)
    table = np.broadcast_to(held[:, None], (len(rows), blocks, held.shape[1]))
    return {name: np.ascontiguousarray(each[:, None], np.int32) for name, each in (("count", count), ("blocks", table))}
