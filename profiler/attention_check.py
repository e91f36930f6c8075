"""A kernel held against plain attention on the device it is to run on, before anything is timed with it."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import torch

from profiler.attention import KERNELS, best_kernel, page_tokens, planner
from profiler.attention_sdpa import Sdpa
from profiler.packing import Work, pack
from profiler.pages import CacheShape, deal
from specsim.errors import SpecsimError, first_line

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 1e-2, torch.bfloat16: 3e-2}
PAGES = 24


def kernel_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return the norm of the kernel's difference over the norm of SDPA's, for trees, a chain, a chunk and a decode.

    `place` are the device and dtype.
    """
    device, dtype = place["device"], place["dtype"]
    shape = CacheShape(1, kv_heads, head_dim, PAGES, page_tokens(kernel, device))
    work = Work.of(
        [70, 0, 17, 200],
        [1, 40, 1, 1],
        [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2],
        [-1, 0, -1, 2, -1, 4, 5, 4, 5, -1, 9],
    )
    packed = pack(work)
    rng = np.random.default_rng(0)
    tables = deal(work, shape, rng)
    generator = torch.Generator(device=device).manual_seed(0)
    draw = {"generator": generator, "device": device, "dtype": dtype}
    keys, values = (torch.randn(shape.slots, kv_heads, head_dim, **draw) for _ in range(2))
    size = work.batched_tokens
    query = torch.randn(size, heads, head_dim, **draw)
    scaling = head_dim**-0.5
    plan = planner(kernel, shape, heads, device=device, dtype=dtype).plan(work, packed, tables, size)
    precise = Sdpa(heads // kv_heads, device=device, dtype=torch.float64).plan(work, packed, tables, size)
    expected = precise(query.double(), keys.double(), values.double(), scaling)
    found = plan(query, keys, values, scaling).double()
    return float((found - expected).norm() / expected.norm())


def checked_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return `kernel_error`.

    Raises
    ------
    SpecsimError
        When the kernel cannot run here, or errs by more than its type explains.
    """
    try:
        error = kernel_error(kernel, heads, kv_heads, head_dim, **place)
    except SpecsimError:
        raise
    except Exception as problem:  # A compiler's errors are of many kinds; a user is owed one line.
        raise SpecsimError(f"attention {kernel!r} does not run on {place['device']}: {first_line(problem)}") from None
    if not error <= TOLERANCE[place["dtype"]]:
        raise SpecsimError(f"attention {kernel!r} is wrong by {error:.2g} of the result on {place['device']}")
    return error


def working_kernel(kernel: str, **place: Any) -> str:
    """Return the kernel to use: the one asked for, or with ``auto`` the best one that gives right results here.

    A better one that is passed over is named on standard error.

    Raises
    ------
    SpecsimError
        When the kernel asked for does not work, or none does.
    """
    if kernel != "auto":
        checked_error(kernel, 8, 2, 64, **place)
        return kernel
    for name in KERNELS[KERNELS.index(best_kernel(place["device"])) :]:
        try:
            checked_error(name, 8, 2, 64, **place)
        except SpecsimError as problem:
            sys.stderr.write(f"note: {problem}\n")
        else:
            return name
    raise SpecsimError(f"no attention kernel works on {place['device']}; expected PyTorch's own at least")
