"""What fits a device beside a model's weights, and what running out of memory or a broken device looks like."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from profiler.attention.pages import breaks_the_device, is_out_of_memory  # noqa: E402
from profiler.latency.models import Setting, needed, pool_pages  # noqa: E402
from profiler.latency.points import CPU_QUICK, FULL, GridPoint  # noqa: E402
from profiler.models.shapes import LLAMA_70B, QWEN_05B, QWEN_32B  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402

pytestmark = pytest.mark.torch
SETTING = Setting(torch.device("cpu"), torch.float32, "sdpa", CPU_QUICK, 1, None, 0)


def test_only_memory_that_ran_out_is_called_so():
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert breaks_the_device(RuntimeError("Triton Error [CUDA]: invalid argument"))
    assert not breaks_the_device(RuntimeError("CUDA error: out of memory"))
    assert not breaks_the_device(ValueError("CUDA error: none"))
    assert not breaks_the_device(RuntimeError("CUDA error: operation not permitted when stream is capturing"))


def test_too_little_memory_for_any_cache(monkeypatch):
    monkeypatch.setattr("profiler.latency.models.free_bytes", lambda device: 10**6)
    with pytest.raises(SpecsimError, match=r"Llama-3.1-70B: too little memory on cpu: its weights leave room for 0"):
        pool_pages({"target": [GridPoint("decode", 1, 128, 1)]}, {"target": LLAMA_70B}, SETTING)


def test_both_models_of_the_largest_pair_share_an_h200(monkeypatch):
    """143,771 MiB hold the 32B and the 0.5B in bfloat16, and all but the largest points."""
    free = 143771 * 2**20 - 10**9 - QWEN_32B.weights_bytes - QWEN_05B.weights_bytes
    monkeypatch.setattr("profiler.latency.models.free_bytes", lambda device: free)
    setting = Setting(torch.device("cuda"), torch.bfloat16, "flex", FULL, 1, None, 0)
    shapes = {"target": QWEN_32B, "draft": QWEN_05B}
    pages = pool_pages({role: FULL.passes(role) for role in shapes}, shapes, setting)
    held = sum(pages[role] * 128 * shape.kv_bytes_per_token for role, shape in shapes.items())
    assert free - held > 6e9
    over = {role: [each for each in FULL.passes(role) if needed(each, 128) > pages[role]] for role in pages}
    assert {point.requests * point.context for every in over.values() for point in every} <= {2**18}
    assert sum(map(len, over.values())) <= 2
