"""Attention in two parts: a row's cached context without a mask, and its own tail by intervals.

The parts are merged by the logarithms of their sums of exponentials. A pass without a tree has one part, causal
attention without a mask. The first part is a kernel that engines use, FlashAttention-3; plain torch is its reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, replace
from itertools import pairwise
from typing import TypeAlias

import numpy as np
import torch

from profiler.passes.packing import Ints, Packed, Work, is_causal
from profiler.passes.pages import CacheShape, PageTables

Pools: TypeAlias = tuple[torch.Tensor, torch.Tensor]


@dataclass(frozen=True, slots=True)
class Span:
    """The keys of n rows that every query of a row sees (or causally), as tensors of fixed sizes.

    Attributes
    ----------
    start : (n + 1,) int32 first query of each row.
    length : (n,) int32 keys of each row.
    pages : (n, most) int32 pages of each row; 0 after its last.
    starts, longest : `start` and the largest length on the host, since asking the device ends a capture.
    page_tokens : tokens of a page.
    causal : whether a row's last query sees every key, the one before it one fewer, and so on.
    schedule : what the kernel has prepared for spans of these lengths, if it prepares anything.
    """

    start: torch.Tensor
    length: torch.Tensor
    pages: torch.Tensor
    starts: tuple[int, ...]
    longest: int
    page_tokens: int
    causal: bool
    schedule: torch.Tensor | None = None

    @property
    def most_queries(self) -> int:
        """Queries of the row that has most."""
        return max(np.diff(self.starts).tolist())


@dataclass(frozen=True, slots=True)
class Tail:
    """The keys after the cached context of n rows, and the intervals of `Packed`; integers are int32, slots int64."""

    start: torch.Tensor
    tail_start: torch.Tensor
    slots: torch.Tensor
    opens: torch.Tensor
    closes: torch.Tensor
    point: torch.Tensor
    context: torch.Tensor
    starts: tuple[int, ...]
    tail_starts: tuple[int, ...]

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors in the order of a kernel's arguments."""
        return self.start, self.tail_start, self.slots, self.opens, self.closes, self.point, self.context

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.starts) - 1

    @property
    def most_queries(self) -> int:
        """Queries of the row that has most."""
        return max(np.diff(self.starts).tolist())


Paged: TypeAlias = Callable[[torch.Tensor, Pools, Span, float], tuple[torch.Tensor, torch.Tensor]]
Prepare: TypeAlias = Callable[[Span], torch.Tensor]
Merge: TypeAlias = Callable[[torch.Tensor, Pools, Tail, tuple[torch.Tensor, torch.Tensor], float], torch.Tensor]


class SplitPlan:
    """The spans of a pass, and its tails if it has a tree."""

    def __init__(self, span: Span, tail: Tail | None, paged: Paged, merge: Merge) -> None:
        self.span = span
        self.tail = tail
        self._paged = paged
        self._merge = merge

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend; shapes as in `profiler.passes.attention.Plan`. The result of padding queries is not defined."""
        found = self._paged(query, (keys, values), self.span, scaling)
        return found[0] if self.tail is None else self._merge(query, (keys, values), self.tail, found, scaling)

    def load(self, other: SplitPlan) -> None:
        """Take over another plan of equal sizes."""
        for mine, its in ((self.span, other.span), (self.tail, other.tail)):
            for each in fields(mine) if mine is not None else ():
                if isinstance(held := getattr(mine, each.name), torch.Tensor):
                    held.copy_(getattr(its, each.name))


class Split:
    """The planner; `paged` attends to spans, as `prepare` has scheduled it, and `merge` to tails."""

    def __init__(
        self,
        name: str,
        shape: CacheShape,
        paged: Paged,
        merge: Merge,
        *,
        device: torch.device,
        prepare: Prepare | None = None,
    ) -> None:
        self.name = name
        self.page_tokens = shape.page_tokens
        self._paged, self._merge, self._prepare = paged, merge, prepare
        self._device = device

    def plan(self, work: Work, packed: Packed, tables: PageTables, size: int, room: int | None = None) -> SplitPlan:
        """Return the plan of a pass; see `profiler.passes.attention.Planner`."""
        causal = is_causal(work, packed)
        length = work.key_tokens if causal else work.context
        longest = int(length.max()) if room is None else room
        held = max(-(-longest // self.page_tokens), 1)
        span = Span(
            start=self._placed(packed.start),
            length=self._placed(length),
            pages=self._placed(np.maximum(tables.widened(held).pages[:, :held], 0)),
            starts=tuple(packed.start.tolist()),
            longest=longest,
            page_tokens=self.page_tokens,
            causal=causal,
        )
        if self._prepare is not None:
            span = replace(span, schedule=self._prepare(span))
        return SplitPlan(span, None if causal else self._tail(work, packed, tables), self._paged, self._merge)

    def _tail(self, work: Work, packed: Packed, tables: PageTables) -> Tail:
        row = np.repeat(np.arange(work.rows), np.diff(packed.tail_start))
        place = work.context[row] + np.arange(len(row)) - packed.tail_start[row]
        return Tail(
            start=self._placed(packed.start),
            tail_start=self._placed(packed.tail_start),
            slots=torch.from_numpy(tables.slots(row, place)).to(self._device),
            opens=self._placed(packed.opens),
            closes=self._placed(packed.closes),
            point=self._placed(packed.point),
            context=self._placed(work.context),
            starts=tuple(packed.start.tolist()),
            tail_starts=tuple(packed.tail_start.tolist()),
        )

    def _placed(self, values: Ints) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(values, np.int32)).to(self._device)


def plain_paged(query: torch.Tensor, pools: Pools, span: Span, scaling: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention (T, heads, head_dim) of each query to its row's span, and the log-sum-exps (heads, T).

    A row without keys has 0 and -inf. The pools are (slots, kv_heads, head_dim).
    """
    out, lse = torch.zeros_like(query), _wide(query).new_full(query.shape[1::-1], float("-inf"))
    place = torch.arange(span.page_tokens, device=query.device)
    key = torch.arange(span.pages.shape[1] * span.page_tokens, device=query.device)
    for row, (first, last) in enumerate(pairwise(span.starts)):
        if first == last:
            continue
        slots = (span.pages[row][:, None] * span.page_tokens + place).flatten()
        end = span.length[row].expand(last - first)
        if span.causal:
            end = end - torch.arange(last - first - 1, -1, -1, device=query.device)
        score = _scores(query[first:last], pools[0].index_select(0, slots), scaling)
        score = score.masked_fill(key >= end[:, None], float("-inf"))
        found = score.logsumexp(-1)
        weight = (score - found[..., None]).exp().nan_to_num(0.0)
        out[first:last], lse[:, first:last] = _mixed(weight, pools[1].index_select(0, slots)), found
    return out, lse


def plain_tail(
    query: torch.Tensor, pools: Pools, tail: Tail, context: tuple[torch.Tensor, torch.Tensor], scaling: float
) -> torch.Tensor:
    """Return the attention (T, heads, head_dim) to tail and context, given that to the context and its log-sum-exps.

    A query sees the keys of its row's tail whose interval holds its point. Those of an empty context are not read.
    """
    out = context[0].clone()
    for row in range(tail.rows):
        (first, last), (begin, end) = (each[row : row + 2] for each in (tail.starts, tail.tail_starts))
        if first == last:
            continue
        slots, point = tail.slots[begin:end], tail.point[first:last, None]
        sees = (tail.opens[begin:end] <= point) & (point < tail.closes[begin:end])
        score = _scores(query[first:last], pools[0].index_select(0, slots), scaling).masked_fill(~sees, float("-inf"))
        found = score.logsumexp(-1)
        mixed = _mixed((score - found[..., None]).exp(), pools[1].index_select(0, slots))
        some = tail.context[row] > 0
        before = torch.where(some, context[1][:, first:last], float("-inf"))
        share = torch.sigmoid(before - found).T[..., None]
        out[first:last] = torch.where(some, _wide(context[0][first:last]), 0.0) * share + mixed * (1 - share)
    return out


def _scores(query: torch.Tensor, keys: torch.Tensor, scaling: float) -> torch.Tensor:
    """Return (heads, q, k) of queries (q, heads, d) and keys (k, kv_heads, d)."""
    share = query.shape[1] // keys.shape[1]
    return torch.einsum("qhd,khd->hqk", _wide(query), _wide(keys).repeat_interleave(share, 1)) * scaling


def _mixed(weight: torch.Tensor, values: torch.Tensor) -> torch.Tensor:
    """Return (q, heads, d) of weights (heads, q, k) and values (k, kv_heads, d)."""
    share = len(weight) // values.shape[1]
    return torch.einsum("hqk,khd->qhd", weight, _wide(values).repeat_interleave(share, 1))


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    """Return the tensor in float32 at least, as kernels keep scores and sums."""
    return tensor if tensor.dtype == torch.float64 else tensor.float()
