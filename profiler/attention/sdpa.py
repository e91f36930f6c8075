"""PyTorch's scaled dot product attention with an additive mask: used on the CPU, and the reference of every kernel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch.nn.functional import scaled_dot_product_attention

from profiler.attention.packing import Bools, Ints, Packed, PackedRoom, Work
from profiler.attention.pages import PageTables, copy_tensors

GATHERED_TOKENS = {"cpu": 4096, "cuda": 65536}


@dataclass(frozen=True, slots=True)
class SdpaGroup:
    """Rows of one call, padded to the longest of them.

    `queries` (b * q,) are packed queries; a row with fewer repeats the first. `slots` (b * k,) are those of the keys.
    `mask` (b, 1, share * q, k) is added to the scores; query heads that share a key head are one after the other.
    """

    rows: int
    queries: torch.Tensor
    slots: torch.Tensor
    mask: torch.Tensor


class SdpaPlan:
    """The groups of a pass, and the place of each packed query in their joined output."""

    def __init__(self, groups: list[SdpaGroup], inverse: torch.Tensor) -> None:
        self._groups = groups
        self._inverse = inverse

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend group by group; shapes as in `profiler.attention.planning.Plan`."""
        outputs = [_attend(group, query, keys, values, scaling) for group in self._groups]
        return torch.cat(outputs).index_select(0, self._inverse)

    def load(self, other: SdpaPlan) -> None:
        """Take over another plan of equal sizes."""
        self._inverse.copy_(other._inverse)
        for mine, its in zip(self._groups, other._groups, strict=True):
            copy_tensors(mine, its)


def _attend(
    group: SdpaGroup, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float
) -> torch.Tensor:
    """Return (b * q, heads, head_dim)."""
    rows, (_, heads, width) = group.rows, query.shape
    kv_heads = keys.shape[1]
    asked = query.index_select(0, group.queries).view(rows, -1, kv_heads, heads // kv_heads, width)
    count = asked.shape[1]
    asked = asked.permute(0, 2, 3, 1, 4).reshape(rows, kv_heads, -1, width)
    k = keys.index_select(0, group.slots).view(rows, -1, kv_heads, width).transpose(1, 2)
    v = values.index_select(0, group.slots).view(rows, -1, kv_heads, width).transpose(1, 2)
    out = scaled_dot_product_attention(asked, k, v, attn_mask=group.mask, scale=scaling)
    out = out.view(rows, kv_heads, heads // kv_heads, count, width).permute(0, 3, 1, 2, 4)
    return out.reshape(rows * count, heads, width)


class Sdpa:
    """The planner; `share` is the number of query heads per key head."""

    name = "sdpa"
    page_tokens = 16

    def __init__(self, share: int, *, device: torch.device, dtype: torch.dtype) -> None:
        self._share = share
        self._device = device
        self._dtype = dtype

    def plan(
        self, work: Work, packed: Packed, tables: PageTables, size: int, room: PackedRoom | None = None
    ) -> SdpaPlan:
        """Return the plan of a pass; see `profiler.attention.planning.Planner`."""
        groups, order = [], []
        limit = GATHERED_TOKENS[self._device.type]
        keys = work.key_tokens if room is None else np.full(work.rows, room.keys)
        for rows in grouped(work.new_tokens, keys, limit):
            group, queries, real = self._group(rows, work, packed, tables, int(keys[rows].max()))
            groups.append(group)
            order.append(np.where(real, queries, -1))
        return SdpaPlan(groups, torch.from_numpy(inverse(np.concatenate(order), size)).to(self._device))

    def _group(
        self, rows: Ints, work: Work, packed: Packed, tables: PageTables, keys: int
    ) -> tuple[SdpaGroup, Ints, Bools]:
        counts, lengths = work.new_tokens[rows], work.key_tokens[rows]
        place: Ints = np.arange(counts.max())
        real = place < counts[:, None]
        queries = np.where(real, packed.start[rows][:, None] + place, packed.start[rows][:, None])
        key = np.arange(keys)
        there = key < lengths[:, None]
        slots = tables.slots(np.broadcast_to(rows[:, None], there.shape), np.where(there, key, 0))
        seen = visible(rows, work, packed, queries, key) & there[:, None, :]
        mask = np.where(seen, 0.0, -np.inf)[:, None].repeat(self._share, axis=1).reshape(len(rows), 1, -1, len(key))
        group = SdpaGroup(
            len(rows),
            torch.from_numpy(queries.ravel()).to(self._device),
            torch.from_numpy(slots.ravel()).to(self._device),
            torch.from_numpy(mask).to(self._device, self._dtype),
        )
        chosen: Ints = queries.ravel()
        return group, chosen, real.ravel()


def inverse(order: Ints, size: int) -> Ints:
    """Return the place of each of `size` queries in their order, of which -1 is padding; 0 for none."""
    place = np.zeros(size, np.int64)
    place[order[order >= 0]] = np.flatnonzero(order >= 0)
    return place


def grouped(counts: Ints, lengths: Ints, limit: int) -> list[Ints]:
    """Split rows into groups of similar query and key counts whose padded keys stay within `limit`; (g,) rows each.

    Query counts of a group round up to the same power of two. Rows without queries are left out.
    """
    size = np.ceil(np.log2(np.maximum(counts, 1)))
    order = np.lexsort((lengths, size))
    groups: list[Ints] = []
    current: list[int] = []
    for row in order[counts[order] > 0].tolist():
        fits = (len(current) + 1) * lengths[row] <= limit
        if current and not (fits and size[row] == size[current[-1]]):
            groups.append(np.array(current))
            current = []
        current.append(row)
    return [*groups, np.array(current)] if current else groups


def visible(rows: Ints, work: Work, packed: Packed, queries: Ints, key: Ints) -> Bools:
    """Return whether each query of a row sees each key of the row, (g, q, k)."""
    tail = key - work.context[rows][:, None]
    last = np.maximum(packed.tail_start[rows + 1] - packed.tail_start[rows] - 1, 0)[:, None]
    entry = packed.tail_start[rows][:, None] + np.clip(tail, 0, last)
    opens = np.where(tail < 0, -1, packed.opens[np.minimum(entry, len(packed.opens) - 1)])
    closes = np.where(tail < 0, 2**40, packed.closes[np.minimum(entry, len(packed.closes) - 1)])
    point = packed.point[queries][:, :, None]
    return np.asarray((opens[:, None] <= point) & (point < closes[:, None]))
