"""Count the kernels that the fused path of a pair compiles over the full grid, and compile each for a Hopper GPU.

A process of its own, since a process that has the interpreter has no compiler. Needs no GPU.
"""

import os
import re
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

os.environ.pop("TRITON_INTERPRET", None)
os.environ["TRITON_CACHE_DIR"] = tempfile.mkdtemp()
sys.path.insert(0, str(Path(__file__).parents[3]))

import numpy as np
import torch
import triton
from triton._C.libtriton import native_specialize_impl
from triton.backends import nvidia
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource
from triton.compiler.compiler import make_backend

from profiler.attention import kernels
from profiler.attention.packing import captured_size
from profiler.attention.pages import deal, pages_needed
from profiler.attention.split import SplitAttention
from profiler.latency.points import FULL
from profiler.models.random_weights import random_model
from profiler.models.shapes import LLAMA_1B, LLAMA_8B, QWEN_05B, QWEN_32B, TINY_LLAMA
from profiler.passes.checks import operations_error
from profiler.passes.fused import Fused

HOPPER = GPUTarget("cuda", 90, 32)
BACKEND = make_backend(HOPPER)
CPU = torch.device("cpu")
PAIR = {
    "target": replace(TINY_LLAMA, layers=1, hidden=64, ffn=96, vocab=64),
    "draft": replace(TINY_LLAMA, layers=1, hidden=32, heads=14, kv_heads=2, ffn=48, vocab=64, qkv_bias=True),
}


def specialised(kernel, given, sizes, warps):
    """Return what Triton compiles a launch by: types, alignment or values of its arguments, sizes and warps."""
    types = []
    for parameter, value in zip(kernel.params, given, strict=False):
        types.append(native_specialize_impl(type(BACKEND), value, False, not parameter.do_not_specialize, True))
    return kernel, tuple(types), tuple(sizes.items()), warps


def over_the_grid(paged):
    """Launch every pass of the full grid for both models; the products are computed, the kernels only named."""
    for role, shape in PAIR.items():
        model = random_model(shape, device=CPU, dtype=torch.bfloat16)
        points = FULL.passes(role)
        pages = max(int(pages_needed(point.work(), 16).sum()) for point in points) + 1
        fused = Fused(model, shape, pages, "split", kernels.AttentionKernels())
        fused.planner = SplitAttention("fa3", fused.cache.shape, paged, fused.operations.tail, device=CPU)
        for point in points:
            work = point.work()
            tables = deal(work, fused.cache.shape, np.random.default_rng(0))
            tokens = np.zeros(work.batched_tokens, np.int64)
            fused.run(fused.inputs(work, tables, tokens, captured_size(work.batched_tokens)))


def unattended(query, pools, span, scaling):
    """Stand in for FlashAttention-3, whose log-sum-exps are in float32."""
    return torch.empty_like(query), query.new_empty(query.shape[1::-1], dtype=torch.float32)


def spilled(kernel, types, sizes, warps):
    """Compile; return the bytes of its stack frame and local memory."""
    names = [each.name for each in kernel.params]
    signature = {name: kind for name, (kind, _) in zip(names, types, strict=False)}
    attributes = {(at,): BACKEND.parse_attr(mark) for at, (_, mark) in enumerate(types) if mark}
    signature |= {name: "constexpr" for name, _ in sizes}
    source = ASTSource(kernel, signature, dict(sizes), attributes)
    made = triton.compile(source, target=HOPPER, options={"num_warps": warps})
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(made.asm["cubin"])
        file.flush()
        tool = Path(nvidia.__file__).parent / "bin" / "cuobjdump"
        told = subprocess.run([tool, "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    return sum(int(size) for size in re.findall(r"(?:STACK|LOCAL):(\d+)", told))


def main():
    asked = set()
    kernels.launch = lambda kernel, grid, given, sizes, warps: asked.add(specialised(kernel, given, sizes, warps))
    over_the_grid(unattended)
    counted = len(asked)
    functions = len({kernel for kernel, *_ in asked})
    for shape in (LLAMA_8B, LLAMA_1B, QWEN_32B, QWEN_05B):
        operations_error(kernels.AttentionKernels(), shape, device=CPU, dtype=torch.bfloat16)
        tails(shape)
    lost = sum(spilled(*each) for each in asked)
    print(f"{len(asked)} compiled, sizes of real models included")
    print(f"{counted} kernels of {functions} functions; spilled bytes: {lost}")


def tails(shape):
    """Launch the tail kernel at a model's sizes."""
    none = torch.zeros(4, dtype=torch.int32)
    tensors = (none, none, none.long(), none, none, none, none)
    tail = kernels.Tail(*tensors, most_queries=1)
    pool = torch.zeros(32, shape.kv_heads, shape.head_dim, dtype=torch.bfloat16)
    query = torch.zeros(3, shape.heads, shape.head_dim, dtype=torch.bfloat16)
    kernels.AttentionKernels().tail(query, (pool, pool), tail, (query, torch.zeros(shape.heads, 3)), 0.1)


if __name__ == "__main__":
    main()
