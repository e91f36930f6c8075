"""Checks of the attention kernels that are installed: their errors against float64, and their seconds."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch

from profiler.latency.points import Point
from profiler.passes.attention import KERNELS, page_tokens, planner
from profiler.passes.checks import TOLERANCE, work_error
from profiler.passes.memory import breaks_the_device
from profiler.passes.packing import Work, pack
from profiler.passes.pages import CacheShape, deal, pages_needed
from specsim.errors import SpecsimError, first_line
from tools.gpu_session.place import Place
from tools.gpu_session.rows import Row

TREES = (3, 8, 16, 32, 64)
# Of a 32-head layer: eight passes as a server runs them, the last four of which are trees.
ON_GPU = (
    Point("decode", 1, 4096, 1),
    Point("decode", 64, 1024, 1),
    Point("decode", 256, 1024, 1),
    Point("prefill", 1, 2048, 2048),
    Point("verify", 1, 4096, 64),
    Point("verify", 8, 1024, 64),
    Point("verify", 64, 1024, 8),
    Point("verify", 128, 1024, 16),
)
ON_CPU = (
    Point("decode", 1, 64, 1),
    Point("decode", 4, 32, 1),
    Point("decode", 8, 16, 1),
    Point("prefill", 1, 16, 32),
    Point("verify", 1, 64, 16),
    Point("verify", 2, 32, 16),
    Point("verify", 4, 32, 4),
    Point("verify", 8, 16, 4),
)


def error_works() -> dict[str, Work]:
    """Return the passes over which kernels are compared: rows of unequal context, trees of several sizes."""
    chain = [-1, 0, 1, 2, 3, 4]
    works = {
        "decode": Work.of([70, 17, 200], [1, 1, 1]),
        "prefill": Work.of([0, 33], [40, 64]),
        "chain of 7": Work.of([70], [1], [0] * 6, chain),
    }
    for nodes in TREES:
        rng = np.random.default_rng(nodes)
        parent = [int(rng.integers(max(node - 4, -1), node)) if node else -1 for node in range(nodes - 1)]
        works[f"tree of {nodes}"] = Work.of([60, 20], [1, 1], [0] * (nodes - 1), parent)
    return works


def attention_errors(place: Place) -> Iterator[Row]:
    """Yield each kernel's largest relative error of a query's head, flagged where it exceeds its type's rounding."""
    shape = place.shape
    for kernel in KERNELS[1:]:
        for case, work in error_works().items():
            try:
                error = work_error(
                    kernel, work, shape.heads, shape.kv_heads, shape.head_dim, device=place.device, dtype=place.dtype
                )
            except Exception as problem:  # Compilers may raise anything; a kernel that is not there is a row too.
                if breaks_the_device(problem):
                    raise
                yield Row("attention_errors", kernel, "error", note=f"{case}: {first_line(problem)}")
                break
            note = "" if error <= TOLERANCE[place.dtype] else "FLAGGED: beyond rounding"
            yield Row("attention_errors", f"{kernel}, {case}", "error", error, note=note)


def attention_seconds(place: Place) -> Iterator[Row]:
    """Yield the microseconds of one layer's attention, by kernel and pass."""
    for kernel in KERNELS[1:]:
        for point in ON_GPU if place.on_gpu else ON_CPU:
            try:
                seconds = _attention_s(place, kernel, point)
            except Exception as problem:  # As above.
                if breaks_the_device(problem):
                    raise
                yield Row("attention_seconds", f"{kernel}, {point.key}", "time", note=first_line(problem))
                if isinstance(problem, SpecsimError):
                    break  # The kernel is not here.
                continue
            yield Row("attention_seconds", f"{kernel}, {point.key}", "time", 1e6 * seconds, "us")


@torch.inference_mode()
def _attention_s(place: Place, kernel: str, point: Point) -> float:
    shape, work = place.shape, point.work()
    held = page_tokens(kernel, place.device)
    cache = CacheShape(1, shape.kv_heads, shape.head_dim, int(pages_needed(work, held).sum()) + 1, held)
    tables = deal(work, cache, np.random.default_rng(0))
    generator = torch.Generator(device=place.device).manual_seed(0)
    draw = {"generator": generator, "device": place.device, "dtype": place.dtype}
    keys, values = (torch.randn(cache.slots, shape.kv_heads, shape.head_dim, **draw) for _ in range(2))
    query = torch.randn(work.batched_tokens, shape.heads, shape.head_dim, **draw)
    made = planner(kernel, cache, shape.heads, device=place.device, dtype=place.dtype)
    plan = made.plan(work, pack(work), tables, work.batched_tokens)
    return place.timed(lambda: plan(query, keys, values, shape.head_dim**-0.5)).median_s
