"""Attention of a packed batch over a paged cache, for transformers' models.

A model whose attention implementation is `PAGED` calls `attend` in every layer, with the pools of `PagedCache` and
with the pass's `Plan`, a keyword of the model's forward call.
"""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, Protocol

import torch

from profiler.attention.operations import Plain
from profiler.attention.packing import Packed, PackedRoom, Work
from profiler.attention.pages import CacheShape, PageTables
from specsim.errors import SpecsimError, nearest

PAGED = "specsim_paged"
KERNELS = ("auto", "fa3", "flex", "sdpa", "split")
SPLIT = ("fa3", "split")
SMALL_PAGE_TOKENS = 16
CHANGES_THE_RESULT = ("sliding_window", "softcap", "s_aux", "sinks", "learnable_sink", "position_bias")


class Plan(Protocol):
    """The attention of one pass; made once, used by every layer."""

    def __call__(self, query: torch.Tensor, keys: torch.Tensor, values: torch.Tensor, scaling: float) -> torch.Tensor:
        """Return (T, heads, head_dim) for a query of that shape over pools of (slots, kv_heads, head_dim)."""
        ...

    def load(self, other: Any) -> None:
        """Take over another plan of equal sizes, in place, so that a captured graph reads it."""
        ...


class Planner(Protocol):
    """An attention kernel: makes the plan of each pass."""

    name: str
    page_tokens: int

    def plan(self, work: Work, packed: Packed, tables: PageTables, size: int, room: PackedRoom | None = None) -> Plan:
        """Return the plan of a pass whose T queries are padded to `size`.

        With `room` the plan's sizes are the same for all passes of that room: for one of `SPLIT` always, for another
        if each row has one query.
        """
        ...


def attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    plan: Plan,
    **options: Any,
) -> tuple[torch.Tensor, None]:
    """Attend for one layer; the signature is that of transformers' attention functions.

    Raises
    ------
    SpecsimError
        When the model asks for a feature that no kernel here has, such as a sliding window.
    """
    for name in CHANGES_THE_RESULT:
        if options.get(name) is not None:
            asked = "" if isinstance(options[name], torch.Tensor) else f"={options[name]}"
            raise SpecsimError(
                f"{type(module).__name__} attends with {name}{asked}, which is not supported; "
                f"expected a model of plain causal attention"
            )
    return plan(query[0].transpose(0, 1), key, value, scaling)[None], None


def register() -> None:
    """Register `PAGED` with transformers; a second call changes nothing."""
    from transformers import AttentionInterface

    AttentionInterface.register(PAGED, attend)


def planner(kernel: str, shape: CacheShape, heads: int, *, device: torch.device, dtype: torch.dtype) -> Planner:
    """Return the attention kernel of that name; ``auto`` is the fastest that is installed.

    Raises
    ------
    SpecsimError
        When it is unknown or not installed.
    """
    name = best_kernel(device) if kernel == "auto" else kernel
    if name not in KERNELS:
        raise SpecsimError(f"attention {kernel!r} is unknown{nearest(kernel, KERNELS)}")
    if name in SPLIT:
        return _split(name, shape, heads, device=device, dtype=dtype)
    if name == "flex":
        from profiler.attention.flex import Flex

        return Flex(shape, compiled=device.type == "cuda", device=device)
    from profiler.attention.sdpa import Sdpa

    return Sdpa(heads // shape.kv_heads, device=device, dtype=dtype)


def _split(name: str, shape: CacheShape, heads: int, *, device: torch.device, dtype: torch.dtype) -> Planner:
    """Return attention to context and tail apart: by FlashAttention-3 and a Triton kernel, or both in plain torch."""
    from profiler.attention.split import SplitAttention, plain_paged

    if name == "split":
        return SplitAttention(name, shape, plain_paged, operations("torch").tail, device=device)
    from profiler.attention.fa3 import fa3

    paged = fa3(device, dtype)
    prepare = paged.preparation(heads, shape.kv_heads, shape.head_dim, dtype)
    return SplitAttention(name, shape, paged, operations("triton").tail, device=device, prepare=prepare)


def best_kernel(device: torch.device) -> str:
    """Return the fastest kernel that is installed for the device."""
    if device.type != "cuda":
        return "sdpa"
    from profiler.attention.fa3 import library

    if library() is not None and torch.cuda.get_device_capability(device)[0] == 9:
        return "fa3"
    return "flex"


def page_tokens(kernel: str, device: torch.device) -> int:
    """Return the page size of a kernel in tokens: FlexAttention's block on a GPU, else 16."""
    from profiler.attention.flex import BLOCK_TOKENS

    name = best_kernel(device) if kernel == "auto" else kernel
    return BLOCK_TOKENS if name == "flex" and device.type == "cuda" else SMALL_PAGE_TOKENS


def operations(name: str) -> Plain:
    """Return the operations of that name, ``torch`` or ``triton``.

    Raises
    ------
    SpecsimError
        When Triton is not installed.
    """
    if name == "torch":
        return Plain()
    if find_spec("triton") is None:
        raise SpecsimError('triton is not installed; expected pip install "specsim[profiler]"')
    from profiler.attention.kernels import AttentionKernels

    return AttentionKernels()


def operations_of(device: torch.device) -> Plain:
    """Return the operations that a device's fused passes are timed with: Triton's on CUDA, plain torch on the CPU.

    Raises
    ------
    SpecsimError
        When Triton is missing on CUDA.
    """
    return operations("triton" if device.type == "cuda" else "torch")
