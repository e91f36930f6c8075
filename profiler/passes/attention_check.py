"""Comparison of an attention kernel with plain attention, on its device, before anything is timed with it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from profiler.passes.attention import KERNELS, SPLIT, best_kernel, page_tokens, planner
from profiler.passes.attention_sdpa import Sdpa
from profiler.passes.graphs import capture
from profiler.passes.memory import memory_for
from profiler.passes.packing import Work, pack
from profiler.passes.pages import CacheShape, deal
from specsim.errors import SpecsimError, first_line, say

# A right kernel errs by a few roundings of its type: at most 0.4%, 0.05% and 1e-6 of a query's head on the CPU, by SDPA
# or FlexAttention. From four heads on, one visible node too many or too few is at least 3%.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 1.5e-2}
PAGES = 24


def kernel_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return the largest relative error of a query's head against SDPA, over trees, a chain, a chunk and a decode.

    A kernel that passes without a tree take another way through is compared over such a pass too.
    """
    works = [checked_work(), causal_work()] if kernel in SPLIT else [checked_work()]
    return max(work_error(kernel, work, heads, kv_heads, head_dim, **place) for work in works)


def work_error(kernel: str, work: Work, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return the largest relative error over one pass.

    As in a sweep, the plan takes over other pages before it runs, and on CUDA runs as a captured graph. `place` holds
    the device and dtype, and in tests a stand-in ``cuda`` for ``torch.cuda``.
    """
    device, dtype = place["device"], place["dtype"]
    shape = CacheShape(1, kv_heads, head_dim, PAGES, page_tokens(kernel, device))
    packed, size, scaling = pack(work), work.batched_tokens, head_dim**-0.5
    rng = np.random.default_rng(0)
    before, tables = deal(work, shape, rng), deal(work, shape, rng)
    generator = torch.Generator(device=device).manual_seed(0)
    draw = {"generator": generator, "device": device, "dtype": dtype}
    keys, values = (torch.randn(shape.slots, kv_heads, head_dim, **draw) for _ in range(2))
    query = torch.randn(size, heads, head_dim, **draw)
    made = planner(kernel, shape, heads, device=device, dtype=dtype)
    plan, other = (made.plan(work, packed, each, size) for each in (before, tables))
    cuda = place.get("cuda", torch.cuda if device.type == "cuda" else None)
    found = _swapped(lambda: plan(query, keys, values, scaling), lambda: plan.load(other), cuda)
    precise = Sdpa(heads // kv_heads, device=device, dtype=torch.float64).plan(work, packed, tables, size)
    expected = precise(query.double(), keys.double(), values.double(), scaling)
    return float(((found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)).max())


def checked_work() -> Work:
    """Return the pass of the comparison: a tree and a chunk, a decode, trees of siblings, a single node."""
    return Work.of(
        [70, 0, 17, 200],
        [1, 40, 1, 1],
        [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2],
        [-1, 0, -1, 2, -1, 4, 5, 4, 5, -1, 9],
    )


def causal_work() -> Work:
    """Return the comparison's pass without a tree: decodes, chunks, a chain, a draft step behind two cached tokens."""
    return Work.of(
        [70, 0, 17, 200],
        [1, 40, 3, 0],
        [0, 0, 3, 3, 3],
        [-1, 0, -1, 2, 3],
        [False, False, True, True, False],
    )


@torch.inference_mode()
def _swapped(run: Callable[[], torch.Tensor], swap: Callable[[], object], cuda: Any) -> torch.Tensor:
    """Return the result of a pass after it has taken over other pages; with `cuda` it is a replay of a graph."""
    if cuda is None:
        swap()
        return run()
    graph, result = capture(run, run, cuda)
    try:
        swap()
        graph.replay()
        cuda.synchronize()
        kept: torch.Tensor = result.clone()
        return kept
    finally:
        graph.reset()


def checked_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return `kernel_error`, if it is small enough.

    Raises
    ------
    SpecsimError
        When the kernel cannot run here, or its error exceeds the rounding of its type.
    """
    try:
        with memory_for(f"attention {kernel!r}", place["device"]):
            error = kernel_error(kernel, heads, kv_heads, head_dim, **place)
    except SpecsimError:
        raise
    except Exception as problem:  # Compilers may raise anything; the user gets one line.
        raise SpecsimError(f"attention {kernel!r} does not run on {place['device']}: {first_line(problem)}") from None
    if not error <= TOLERANCE[place["dtype"]]:
        raise SpecsimError(f"attention {kernel!r} is wrong by {error:.2g} of a query's result on {place['device']}")
    return error


def working_kernel(kernel: str, **place: Any) -> str:
    """Return the kernel to use: the one named, or with ``auto`` the fastest that gives right results here.

    A faster kernel that fails is named on standard error. On CUDA ``auto`` takes only fused kernels. SDPA gathers every
    key in every layer first, which takes other times, so it must be named.

    Raises
    ------
    SpecsimError
        When the named kernel does not work, or none does.
    """
    device = place["device"]
    if kernel != "auto":
        checked_error(kernel, 8, 2, 64, **place)
        return kernel
    for name in KERNELS[KERNELS.index(best_kernel(device)) :]:
        if name == "sdpa" and device.type == "cuda":
            break
        try:
            checked_error(name, 8, 2, 64, **place)
        except SpecsimError as problem:
            say(f"note: {problem}", error=True)
        else:
            return name
    raise SpecsimError(f"no fused attention works on {device}; expected one that does, or --attention sdpa asked for")
