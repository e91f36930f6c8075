"""FlashInfer's prefill over pages, if it is installed: ragged, without padding.

A pass with a tree takes a custom mask, which only kernels for FlashAttention-2 have. Any other is causal without one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from profiler.passes.attention_sdpa import visible
from profiler.passes.packing import Ints, Packed, Work, is_causal
from profiler.passes.pages import CacheShape, Tables, pages_needed
from specsim.errors import SpecsimError

WORKSPACE_BYTES = 256 * 2**20


@dataclass(frozen=True, slots=True)
class Ragged:
    """A pass in the layout of FlashInfer's `plan`: offsets of queries and pages, and the masks, row after row.

    `mask` is None for a causal pass.
    """

    query_start: torch.Tensor
    page_start: torch.Tensor
    pages: torch.Tensor
    last_page: torch.Tensor
    mask: torch.Tensor | None


class FlashInferPlan:
    """One planned wrapper; it is planned again to take over the pages of another pass.

    `tokens` is a number on the host, since asking the device for it would end the capture of a graph.
    """

    def __init__(self, owner: FlashInfer, wrapper: Any, ragged: Ragged, tokens: int, size: int) -> None:
        self._owner = owner
        self._wrapper = wrapper
        self._ragged = ragged
        self._tokens = tokens
        self._size = size
        owner.ready(wrapper, ragged)

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
        """Attend as `profiler.passes.attention.Plan` does; queries are scaled if `scaling` is not the planned one."""
        real = query[: self._tokens]
        if scaling != self._owner.scaling:
            real = real * (scaling / self._owner.scaling)
        pages = (-1, self._owner.page_tokens, *keys.shape[1:])
        out: torch.Tensor = self._wrapper.run(real, (keys.view(pages), values.view(pages)))
        missing = self._size - len(out)
        return torch.cat([out, out.new_zeros((missing, *out.shape[1:]))]) if missing else out

    def load(self, other: FlashInferPlan) -> None:
        """Take over another plan of equal sizes."""
        self._owner.ready(self._wrapper, other._ragged)


class FlashInfer:
    """The planner.

    Raises
    ------
    SpecsimError
        When FlashInfer is not installed.
    """

    name = "flashinfer"

    def __init__(self, shape: CacheShape, heads: int, *, device: torch.device, dtype: torch.dtype) -> None:
        try:
            import flashinfer
        except ImportError:
            raise SpecsimError("attention 'flashinfer' is not installed; expected flex, or sdpa") from None
        self._make = flashinfer.BatchPrefillWithPagedKVCacheWrapper
        self.page_tokens = shape.page_tokens
        self.scaling = shape.head_dim**-0.5
        self._shape, self._heads, self._device, self._dtype = shape, heads, device, dtype
        self._workspace = torch.empty(WORKSPACE_BYTES, dtype=torch.uint8, device=device)

    def plan(self, work: Work, packed: Packed, tables: Tables, size: int, room: int | None = None) -> FlashInferPlan:
        """Return the plan of a pass; see `profiler.passes.attention.Planner`."""
        ragged = self._ragged(work, packed, tables)
        # A wrapper with buffers of a mask would take the kernels for custom masks.
        buffers = {} if ragged.mask is None else self._mask_buffers(ragged.query_start, ragged.mask)
        wrapper = self._make(
            self._workspace,
            "NHD",
            use_cuda_graph=True,
            qo_indptr_buf=torch.empty_like(ragged.query_start),
            paged_kv_indptr_buf=torch.empty_like(ragged.page_start),
            paged_kv_indices_buf=ragged.pages.new_empty(self._pages_of(ragged, work.rows, room)),
            paged_kv_last_page_len_buf=torch.empty_like(ragged.last_page),
            **buffers,
        )
        return FlashInferPlan(self, wrapper, ragged, work.batched_tokens, size)

    def _pages_of(self, ragged: Ragged, rows: int, room: int | None) -> int:
        """Return how many pages a wrapper takes over at most."""
        return len(ragged.pages) if room is None else rows * -(-room // self.page_tokens)

    def _mask_buffers(self, query_start: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
        """Return buffers for the masks of a pass, packed into bits, each row's from a byte on."""
        size = len(mask) // 8 + len(query_start)
        return {
            "custom_mask_buf": torch.empty(size, dtype=torch.uint8, device=self._device),
            "mask_indptr_buf": torch.empty_like(query_start),
        }

    def ready(self, wrapper: Any, ragged: Ragged) -> None:
        """Plan a wrapper for a pass."""
        wrapper.plan(
            ragged.query_start,
            ragged.page_start,
            ragged.pages,
            ragged.last_page,
            self._heads,
            self._shape.kv_heads,
            self._shape.head_dim,
            self.page_tokens,
            custom_mask=ragged.mask,
            causal=ragged.mask is None,
            sm_scale=self.scaling,
            q_data_type=self._dtype,
            kv_data_type=self._dtype,
        )

    def _ragged(self, work: Work, packed: Packed, tables: Tables) -> Ragged:
        needed = pages_needed(work, self.page_tokens)
        last = work.key_tokens - (needed - 1) * self.page_tokens
        held = tables.pages[tables.pages >= 0]
        numbers = (packed.start, np.r_[0, np.cumsum(needed)], held, last)
        start, page, pages, ends = (torch.from_numpy(each.astype(np.int32)).to(self._device) for each in numbers)
        causal = is_causal(work, packed)
        mask = None if causal else torch.from_numpy(row_masks(work, packed)).to(self._device)
        return Ragged(start, page, pages, ends, mask)


def row_masks(work: Work, packed: Packed) -> Any:
    """Return whether each query sees each key of its row, flattened from (queries, keys), row after row."""
    pieces = [np.zeros(0, np.bool_)]
    for row in range(work.rows):
        queries: Ints = np.arange(packed.start[row], packed.start[row + 1])[None]
        key: Ints = np.arange(work.key_tokens[row])
        if queries.size:
            pieces.append(visible(np.array([row]), work, packed, queries, key).ravel())
    return np.concatenate(pieces)
