"""The readers of vLLM's kernel tables, held against rows of the tables and against the memory's peak."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.unit.test_profile_public import DATA, needs_data
from tools.public.compose import A100, H100, H200, Gpu
from tools.public.operators import Attention, Gemm

PEAK_BYTES_PER_S = {A100.name: 2.039e12, H100.name: 3.35e12, H200.name: 4.8e12}
ELSEWHERE = Path("/nowhere")


def data_of(gpu: Gpu) -> Path:
    """The H200's tables are part of the repository; a data folder holds the others."""
    return ELSEWHERE if gpu is H200 else DATA or ELSEWHERE


@needs_data
def test_sizes_that_no_captured_pass_has_are_left_out() -> None:
    """At 129 tokens FP8 kernels take half as long again as at 128 and 160; a pass of 129 is padded to 136."""
    assert DATA is not None
    products = Gemm.load(DATA, H100.kernels.gemm, "fp8")
    assert 129 not in products.m
    assert {1, 2, 4, 8, 16, 128, 160, 8192} <= set(products.m)
    below, at, above = (products.seconds(tokens, 8192, 7168) for tokens in (128, 129, 160))
    assert below <= at <= above


@pytest.mark.parametrize(
    ("gpu", "heads", "kv_heads"),
    [
        (gpu, *heads)
        for gpu in (A100, H100, H200)
        for heads in ((32, 8), (16, 4), (16, 2), (8, 1), (8, 8), (32, 32))
        if gpu is A100 or heads != (32, 32)
    ],
)
def test_decoding_reads_the_cache_no_faster_than_memory(gpu: Gpu, heads: int, kv_heads: int) -> None:
    """64 requests of 4,096 tokens: the table before these read GQA's at up to twice the peak."""
    if gpu is not H200 and DATA is None:
        pytest.skip("$SPECSIM_DATA is unset or lacks perf/")
    attention = Attention.load(data_of(gpu), gpu.kernels, heads, kv_heads, "bfloat16")
    read_bytes = 64 * 4096 * kv_heads * 128 * 2 * 2
    assert 0.5 < read_bytes / attention.decode(64, 4095) / PEAK_BYTES_PER_S[gpu.name] < 1


def test_heads_that_were_not_measured_are_named() -> None:
    with pytest.raises(ValueError, match="7/7 heads"):
        Attention.load(ELSEWHERE, H200.kernels, 7, 7, "bfloat16")
