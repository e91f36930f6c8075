"""Attention in two parts: a row's cached context without a mask, and its own tail by intervals.

The parts are merged by the logarithms of their sums of exponentials. A pass without a tree has one part, causal
attention without a mask. The first part is a kernel that engines use, FlashAttention-3; plain torch is its reference.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import TypeAlias

import numpy as np
import torch

from profiler.attention.packing import Ints, Packed, PackedRoom, Work, is_causal
from profiler.attention.pages import CacheShape, PageTables, copy_tensors

Pools: TypeAlias = tuple[torch.Tensor, torch.Tensor]
KEYS_OF_A_QUERY = 16
"""For each query of a captured pass there is room for so many keys after the context."""


@dataclass(frozen=True, slots=True)
class Span:
    """The keys of n rows that every query of a row sees (or causally), as tensors of fixed sizes.

    Attributes
    ----------
    start : (n + 1,) int32 first query of each row.
    length : (n,) int32 keys of each row.
    pages : (n, most) int32 pages of each row; 0 after its last.
    longest, most_queries : bounds on a row's length and queries, on the host, since asking the device ends a capture.
    page_tokens : tokens of a page.
    causal : whether a row's last query sees every key, the one before it one fewer, and so on.
    schedule : what the kernel has prepared for spans of these lengths, if it prepares anything.
    """

    start: torch.Tensor
    length: torch.Tensor
    pages: torch.Tensor
    longest: int
    most_queries: int
    page_tokens: int
    causal: bool
    schedule: torch.Tensor | None = None


@dataclass(frozen=True, slots=True)
class Tail:
    """The keys after the cached context of n rows, and the intervals of `Packed`; integers are int32, slots int64.

    Padding keys and queries come last, and belong to no row. No row has more than `most_queries`.
    """

    start: torch.Tensor
    tail_start: torch.Tensor
    slots: torch.Tensor
    opens: torch.Tensor
    closes: torch.Tensor
    point: torch.Tensor
    context: torch.Tensor
    most_queries: int

    @property
    def tensors(self) -> tuple[torch.Tensor, ...]:
        """The tensors in the order of a kernel's arguments."""
        return self.start, self.tail_start, self.slots, self.opens, self.closes, self.point, self.context

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(self.context)


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
        """Attend; shapes as in `profiler.attention.planning.Plan`. The result of padding queries is not defined."""
        found = self._paged(query, (keys, values), self.span, scaling)
        return found[0] if self.tail is None else self._merge(query, (keys, values), self.tail, found, scaling)

    def load(self, other: SplitPlan) -> None:
        """Take over another plan of equal sizes."""
        copy_tensors(self.span, other.span)
        if self.tail is not None:
            copy_tensors(self.tail, other.tail)


class SplitAttention:
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

    def plan(
        self, work: Work, packed: Packed, tables: PageTables, size: int, room: PackedRoom | None = None
    ) -> SplitPlan:
        """Return the plan of a pass; see `profiler.attention.planning.Planner`."""
        causal = is_causal(work, packed)
        length = work.key_tokens if causal else work.context
        longest, most = (int(length.max()), int(work.new_tokens.max())) if room is None else (room.keys, room.queries)
        held = max(-(-longest // self.page_tokens), 1)
        span = Span(
            start=self._placed(packed.start),
            length=self._placed(length),
            pages=self._placed(np.maximum(tables.widened(held).pages[:, :held], 0)),
            longest=longest,
            most_queries=most,
            page_tokens=self.page_tokens,
            causal=causal,
        )
        if self._prepare is not None:
            span = replace(span, schedule=self._prepare(span))
        keys = len(packed.opens) if room is None else KEYS_OF_A_QUERY * size
        tail = None if causal else self._tail(work, packed, tables, size, keys, most)
        return SplitPlan(span, tail, self._paged, self._merge)

    def _tail(self, work: Work, packed: Packed, tables: PageTables, size: int, keys: int, most: int) -> Tail:
        row = np.repeat(np.arange(work.rows), np.diff(packed.tail_start))
        place = work.context[row] + np.arange(len(row)) - packed.tail_start[row]
        return Tail(
            start=self._placed(packed.start),
            tail_start=self._placed(packed.tail_start),
            slots=self._placed(tables.slots(row, place), keys, np.int64),
            opens=self._placed(packed.opens, keys),
            closes=self._placed(packed.closes, keys),
            point=self._placed(packed.point, size),
            context=self._placed(work.context),
            most_queries=most,
        )

    def _placed(self, values: Ints, size: int | None = None, kind: type[np.signedinteger] = np.int32) -> torch.Tensor:
        """Return the values on the device, with zeros behind them up to `size`."""
        whole = np.zeros((size or len(values), *values.shape[1:]), kind)
        whole[: len(values)] = values
        return torch.from_numpy(whole).to(self._device)


def plain_paged(query: torch.Tensor, pools: Pools, span: Span, scaling: float) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the attention (T, heads, head_dim) of each query to its row's span, and the log-sum-exps (heads, T).

    A row without keys has 0 and -inf. The pools are (slots, kv_heads, head_dim).
    """
    count, device = len(query), query.device
    # The places of queries that a row lacks are those of one more, which is cut off.
    out = query.new_zeros((count + 1, *query.shape[1:]))
    lse = _wide(query).new_full((query.shape[1], count + 1), float("-inf"))
    place, nth = torch.arange(span.page_tokens, device=device), torch.arange(span.most_queries, device=device)
    key = torch.arange(span.pages.shape[1] * span.page_tokens, device=device)
    for row in range(len(span.length)):
        first, last = span.start[row], span.start[row + 1]
        asked = torch.where(first + nth < last, first + nth, count)
        slots = (span.pages[row][:, None] * span.page_tokens + place).flatten()
        end = span.length[row] - (last - 1 - asked if span.causal else torch.zeros_like(asked))
        score = _scores(query[asked.clamp(max=count - 1)], pools[0].index_select(0, slots), scaling)
        score = score.masked_fill(key >= end[:, None], float("-inf"))
        found = score.logsumexp(-1)
        weight = (score - found[..., None]).exp().nan_to_num(0.0)
        out[asked], lse[:, asked] = _mixed(weight, pools[1].index_select(0, slots)).to(out.dtype), found
    return out[:count], lse[:, :count]


def plain_tail(
    query: torch.Tensor, pools: Pools, tail: Tail, context: tuple[torch.Tensor, torch.Tensor], scaling: float
) -> torch.Tensor:
    """Return the attention (T, heads, head_dim) to tail and context, given that to the context and its log-sum-exps.

    A query sees the keys of its row's tail whose interval holds its point. Those of an empty context are not read.
    """
    of_query, of_key = _rows(tail.start, len(query)), _rows(tail.tail_start, len(tail.slots))
    point = tail.point[:, None]
    sees = (of_query[:, None] == of_key) & (tail.opens <= point) & (point < tail.closes)
    score = _scores(query, pools[0].index_select(0, tail.slots), scaling).masked_fill(~sees, float("-inf"))
    found = score.logsumexp(-1)
    mixed = _mixed((score - found[..., None]).exp(), pools[1].index_select(0, tail.slots))
    some = tail.context[of_query.clamp(max=tail.rows - 1)] > 0
    share = torch.sigmoid(torch.where(some, context[1], float("-inf")) - found).T[..., None]
    before = torch.where(some[:, None, None], _wide(context[0]), 0.0)
    return (before * share + mixed * (1 - share)).to(query.dtype)


def _rows(start: torch.Tensor, count: int) -> torch.Tensor:
    """Return the row of each of so many entries, (count,), given the first of each row; of padding one row more."""
    return torch.searchsorted(start[1:], torch.arange(count, device=start.device, dtype=start.dtype), right=True)


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
