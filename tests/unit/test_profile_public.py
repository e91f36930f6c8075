from pathlib import Path

import pytest

from profiler.compose.passes import Alike, ComposedPass, passes
from profiler.models import shapes
from specsim.files.yaml_file import shipped
from tests.data import real_file
from tools.public.__main__ import main
from tools.public.compose import A100, H100, H200, Composer, Placement
from tools.public.grid import FITTED, HELD_OUT, MAX_BATCHED_TOKENS
from tools.public.operators import Attention, Gemm

PERF = real_file("perf")
DATA = None if PERF is None else PERF.parent
needs_data = pytest.mark.skipif(DATA is None, reason="$SPECSIM_DATA is unset or lacks perf/")


def test_parameters_are_those_of_the_published_weights():
    models = shapes.LLAMA_70B, shapes.QWEN_32B, shapes.VICUNA_7B, shapes.LLAMA_68M
    assert [model.parameters for model in models] == [70_553_706_496, 32_763_876_352, 6_738_415_616, 68_030_208]


def test_held_out_passes_share_no_size_with_the_fitted():
    fitted = {(work.kind, work.groups) for work in passes(FITTED, 2**18, MAX_BATCHED_TOKENS)}
    held_out = passes(HELD_OUT, 2**18, MAX_BATCHED_TOKENS)
    assert {work.kind for work in held_out} == {"decode", "verify", "prefill", "mixed"}
    assert not any((work.kind, work.groups) in fitted for work in held_out)
    assert not set(FITTED.requests) & set(HELD_OUT.requests)
    assert not set(FITTED.chunks) & set(HELD_OUT.chunks)


@needs_data
def test_committed_profiles_are_what_the_script_writes(tmp_path):
    assert main(["--data", str(DATA), "--out", str(tmp_path)]) == 0
    written = sorted(tmp_path.iterdir())
    assert len(written) == 14
    for path in written:
        assert path.read_bytes() == (shipped("conf") / "profile" / path.name).read_bytes(), path.name


@needs_data
def test_composed_decode_reads_the_weights_about_once():
    """A bound from first principles: no faster than A100 memory (2.039 TB/s), no slower than 60% of it."""
    composer = Composer(DATA, Placement(shapes.LLAMA_8B, A100, 1, 32, 8))
    seconds = composer.seconds(ComposedPass("decode", (Alike(1, 512, 1),)))
    read = (shapes.LLAMA_8B.weights_bytes - shapes.LLAMA_8B.vocab * 4096 * 2) / 2.039e12
    assert read < seconds < read / 0.6


@needs_data
def test_table_command_writes_the_tables_of_the_docs(tmp_path):
    out = shipped("conf") / "profile"
    docs = (out.parent.parent / "docs" / "profiles.md").read_text(encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(docs.replace("| 30.8 |", "| 1.0 |").replace("| 187.9 |", "| 1.0 |"))
    assert main(["--data", str(DATA), "--out", str(out), "--tables", str(page)]) == 0
    assert page.read_text() == docs
    page.write_text("no tables")
    assert main(["--data", str(DATA), "--out", str(out), "--tables", str(page)]) == 2
    assert page.read_text() == "no tables"


def test_missing_data_is_one_line(tmp_path, capsys):
    assert main(["--data", str(tmp_path), "--out", str(tmp_path / "out")]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "perf/vidur" in message


PEAK_BYTES_PER_S = {A100.name: 2.039e12, H100.name: 3.35e12, H200.name: 4.8e12}
ELSEWHERE = Path("/nowhere")


@needs_data
def test_sizes_that_no_captured_pass_has_are_left_out():
    """At 129 tokens FP8 kernels take half as long again as at 128 and 160; a pass of 129 is padded to 136."""
    products = Gemm.load(DATA, H100.kernels.gemm, "fp8")
    assert 129 not in products.m
    assert {1, 2, 4, 8, 16, 128, 160, 8192} <= set(products.m)
    below, at, above = (products.seconds(tokens, 8192, 7168) for tokens in (128, 129, 160))
    assert below <= at <= above


HEADS = ((32, 8), (16, 4), (16, 2), (8, 1), (8, 8))
MEASURED = [*((gpu, *heads) for gpu in (A100, H100, H200) for heads in HEADS), (A100, 32, 32)]


@pytest.mark.parametrize(("gpu", "heads", "kv_heads"), MEASURED)
def test_decoding_reads_the_cache_no_faster_than_memory(gpu, heads, kv_heads):
    """64 requests of 4,096 tokens: the table before these read GQA's at up to twice the peak.

    The H200's tables are part of the repository; a data folder holds the others.
    """
    if gpu is not H200 and DATA is None:
        pytest.skip("$SPECSIM_DATA is unset or lacks perf/")
    attention = Attention.load(DATA or ELSEWHERE, gpu.kernels, heads, kv_heads, "bfloat16")
    read_bytes = 64 * 4096 * kv_heads * 128 * 2 * 2
    assert 0.5 < read_bytes / attention.decode(64, 4095) / PEAK_BYTES_PER_S[gpu.name] < 1


def test_heads_that_were_not_measured_are_named():
    with pytest.raises(ValueError, match="7/7 heads"):
        Attention.load(ELSEWHERE, H200.kernels, 7, 7, "bfloat16")
