"""FlashAttention-3 over pages, from the library that vLLM builds: one file, loaded without vLLM.

The operators are `fwd` and `get_scheduler_metadata` of `_vllm_fa3_C` (vllm-project/flash-attention,
hopper/flash_api_stable_registration.cpp; before, flash_api_torch_lib.cpp). `fwd` has 37 arguments without defaults, in
another revision 38. So each is given by its name in the library's own schema.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch

from profiler.attention.split import Pools, Prepare, Span
from specsim.errors import SpecsimError, beside, first_line

VARIABLE = "SPECSIM_FA3"
LIBRARY = "_vllm_fa3_C.abi3.so"
DTYPES = (torch.float16, torch.bfloat16)
# The arguments of `fwd` that a pass decides, and of the others those that are not None.
OF_A_PASS = (
    "q",
    "k",
    "v",
    "cu_seqlens_q",
    "seqused_k",
    "max_seqlen_q",
    "max_seqlen_k",
    "page_table",
    "softmax_scale",
    "is_causal",
    "scheduler_metadata",
)
ALWAYS: dict[str, Any] = {
    "window_size_left": -1,
    "window_size_right": -1,
    "softcap": 0.0,
    "is_rotary_interleaved": True,
    "num_splits": 0,  # The library's heuristic.
    "sm_margin": 0,
    "cp_world_size": 1,
    "cp_rank": 0,
}
# Likewise of `get_scheduler_metadata`; what both have must be equal.
OF_A_SPAN = ("batch_size", "seqused_k", "cu_seqlens_q", "max_seqlen_q", "max_seqlen_k", "page_size", "is_causal")
OF_A_MODEL = ("num_heads", "num_heads_k", "headdim", "headdim_v", "qkv_dtype")
ALWAYS_SCHEDULED: dict[str, Any] = {
    "max_seqlen_k_new": 0,
    "window_size_left": -1,
    "window_size_right": -1,
    "has_softcap": False,
    "num_splits": 0,
    "sm_margin": 0,
}


class Named:
    """An operator without defaults, called with some arguments by name; of the others those in `always`, else None.

    Raises
    ------
    SpecsimError
        When the operator lacks an argument, or needs one that is not known here.
    """

    def __init__(self, op: Any, given: Iterable[str], always: Mapping[str, Any]) -> None:
        self._op = op
        known = {*given, *always}
        asked = {each.name: str(each.type) for each in op._schema.arguments}
        missing = sorted(known - set(asked))
        unknown = [name for name in asked if name not in known and not asked[name].startswith("Optional")]
        if missing or unknown:
            said = f"lacks {', '.join(missing)}" if missing else f"also needs {', '.join(unknown)}"
            raise SpecsimError(
                f"attention 'fa3': {op._schema.name} of this {LIBRARY} {said}; expected the one of vllm 0.21.0"
            )
        self._rest = {name: always.get(name) for name in asked if name not in given}

    def __call__(self, arguments: Mapping[str, Any]) -> Any:
        """Return what the operator does."""
        return self._op(**arguments, **self._rest)


class Fa3:
    """Attends to spans with `fwd`, the library's operator, and prepares its schedules with `get_scheduler_metadata`."""

    def __init__(self, fwd: Any, get_scheduler_metadata: Any) -> None:
        self._fwd = Named(fwd, OF_A_PASS, ALWAYS)
        self._schedule = Named(get_scheduler_metadata, (*OF_A_SPAN, *OF_A_MODEL), ALWAYS_SCHEDULED)

    def __call__(
        self, query: torch.Tensor, pools: Pools, span: Span, scaling: float
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return what `split.plain_paged` does, but for rows without keys and padding, whatever is there."""
        paged = [pool.view(-1, span.page_tokens, *pool.shape[1:]) for pool in pools]
        found: Sequence[torch.Tensor] = self._fwd(
            {
                "q": query,
                "k": paged[0],
                "v": paged[1],
                "page_table": span.pages,
                "softmax_scale": scaling,
                "scheduler_metadata": span.schedule,
                **_lengths(span),
            }
        )
        return found[0], found[1]

    def preparation(self, heads: int, kv_heads: int, head_dim: int, dtype: torch.dtype) -> Prepare:
        """Return what schedules a span for all layers of a model at once, as engines do; else each layer would."""
        model = dict(zip(OF_A_MODEL, (heads, kv_heads, head_dim, head_dim, dtype), strict=True))

        def prepare(span: Span) -> torch.Tensor:
            own = {"batch_size": len(span.length), "page_size": span.page_tokens}
            schedule: torch.Tensor = self._schedule({**own, **_lengths(span), **model})
            return schedule

        return prepare


def _lengths(span: Span) -> dict[str, Any]:
    return {
        "cu_seqlens_q": span.start,
        "seqused_k": span.length,
        "max_seqlen_q": span.most_queries,
        # The library divides the keys into blocks, at least one.
        "max_seqlen_k": max(span.longest, 1),
        "is_causal": span.causal,
    }


def library() -> Path | None:
    """Return the library: the file that SPECSIM_FA3 names, else that of an installed vLLM, else None.

    Raises
    ------
    SpecsimError
        When SPECSIM_FA3 names no file.
    """
    if named := os.environ.get(VARIABLE):
        path = Path(named).expanduser()
        if not path.is_file():
            raise SpecsimError(f"{VARIABLE} {named!r}: no such file{beside(path)}; expected a path of {LIBRARY}")
        return path
    spec = find_spec("vllm")
    for folder in (spec.submodule_search_locations if spec else None) or ():
        path = Path(folder) / "vllm_flash_attn" / LIBRARY
        if path.is_file():
            return path
    return None


@cache
def loaded(path: Path) -> Fa3:
    """Return the attention of a library's operator.

    Raises
    ------
    SpecsimError
        When it cannot be loaded, or is another library.
    """
    try:
        torch.ops.load_library(str(path))
        ops = torch.ops._vllm_fa3_C
        found = ops.fwd.default, ops.get_scheduler_metadata.default
    except (OSError, AttributeError, RuntimeError) as error:
        raise SpecsimError(f"attention 'fa3': {path} cannot be loaded: {first_line(error)}") from None
    return Fa3(*found)


def fa3(device: torch.device, dtype: torch.dtype) -> Fa3:
    """Return FlashAttention-3 for a device.

    Raises
    ------
    SpecsimError
        When there is no library, no Hopper GPU, or another type than 16 bits.
    """
    path = library()
    if path is None:
        raise SpecsimError(f"attention 'fa3': no {LIBRARY} here; expected its path in {VARIABLE}, or vLLM installed")
    if device.type != "cuda" or torch.cuda.get_device_capability(device)[0] != 9:
        raise SpecsimError(f"attention 'fa3' does not run on {device}; expected a GPU of compute capability 9")
    if dtype not in DTYPES:
        raise SpecsimError(f"attention 'fa3' does not take {dtype}; expected bfloat16 or float16")
    return loaded(path)
