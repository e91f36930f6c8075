"""What fits a device beside a model's weights, and what running out of memory or a broken device looks like."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from profiler.latency.grids import CPU_QUICK, FULL  # noqa: E402
from profiler.latency.points import Point  # noqa: E402
from profiler.latency.sweep import Setting, pool_pages  # noqa: E402
from profiler.models.shapes import LLAMA_70B, QWEN_32B, TINY_LLAMA  # noqa: E402
from profiler.passes.memory import breaks_the_device, free_bytes, is_out_of_memory  # noqa: E402
from profiler.passes.pages import pages_needed  # noqa: E402
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


def test_what_earlier_work_left_in_torchs_cache_counts_as_free(monkeypatch):
    free = [10]
    monkeypatch.setattr("torch.cuda.empty_cache", lambda: free.append(30))
    monkeypatch.setattr("torch.cuda.mem_get_info", lambda device: (free[-1], 100))
    assert free_bytes(torch.device("cuda")) == 30


def test_too_little_memory_for_any_cache(monkeypatch):
    monkeypatch.setattr("profiler.latency.sweep.free_bytes", lambda device: 10**6)
    with pytest.raises(SpecsimError, match=r"Llama-3.1-70B: too little memory on cpu: its weights leave room for 0"):
        pool_pages([Point("decode", 1, 128, 1)], LLAMA_70B, SETTING)


def test_the_pool_is_no_larger_than_the_largest_point():
    points = [Point("decode", 1, 128, 1), Point("decode", 4, 16, 1)]
    assert pool_pages(points, TINY_LLAMA, SETTING) == 9 + 1


def test_every_point_of_the_suite_fits_an_h200_beside_its_weights(monkeypatch):
    """143,771 MiB, less what a context takes, hold the 32B in bfloat16 and the 2**18 tokens of its largest pass."""
    free = 143771 * 2**20 - 10**9 - QWEN_32B.weights_bytes
    monkeypatch.setattr("profiler.latency.sweep.free_bytes", lambda device: free)
    setting = Setting(torch.device("cuda"), torch.bfloat16, "flex", FULL, 1, None, 0)
    points = FULL.passes("target")
    pages = pool_pages(points, QWEN_32B, setting)
    assert pages > max(int(pages_needed(point.work(), 128).sum()) for point in points)
    assert free - pages * 128 * QWEN_32B.kv_bytes_per_token > 8e9
