import json
import re
from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from profiler.compose import library
from profiler.compose.command import HEADING
from profiler.compose.completed import name_of
from profiler.compose.fit import FITTED, HELD_OUT, composed, fitted_forms
from profiler.compose.library import ENGINES, ComposedPlacement
from profiler.compose.memory import left_bytes
from profiler.compose.models import Model, head_of, model_of
from profiler.compose.operators import Operators
from profiler.compose.passes import Alike, ComposedPass, passes, reaching
from profiler.compose.profile import ENGINE_NAMES, _provenance, _weights_bytes, compose_profile
from profiler.text import yaml_text
from specsim.cli import main
from specsim.latency.drafter import DecoderHead, without_drafter
from specsim.latency.profile import load_profile, profile_from_mapping
from specsim.pass_shape import PassShape
from tests.made import refusal

pytest.importorskip("aiconfigurator_core")

H100 = ComposedPlacement("h100_sxm", "vllm", 1, 1, None, "auto")
OWN = {"architectures": ["LlamaForCausalLM"], "num_hidden_layers": 32, "hidden_size": 4096, "num_attention_heads": 32}
OWN |= {"num_key_value_heads": 8, "intermediate_size": 14336, "vocab_size": 128256, "max_position_embeddings": 8192}
EXPERTS = OWN | {"architectures": ["Qwen3MoeForCausalLM"], "moe_intermediate_size": 768}
EXPERTS |= {"num_experts": 128, "num_experts_per_tok": 8}
LATENT = EXPERTS | {"architectures": ["DeepseekV3ForCausalLM"], "kv_lora_rank": 512}
LATENT |= {"q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}


def config(base=OWN, **changed):
    """Return the text of a model's file, without the fields that are None."""
    return json.dumps({key: value for key, value in (base | changed).items() if value is not None})


@cache
def operators(name, place=H100):
    return Operators(model_of(name), place)


@cache
def mapping_of(target, gpu="h100_sxm", **settings):
    return compose_profile(target, gpu=gpu, **settings)


def profile_of(target, **settings):
    return profile_from_mapping(mapping_of(target, **settings), "composed")


def decoded(requests, context):
    return ComposedPass("decode", (Alike(requests, context, 1),))


def verified(requests, context, queries):
    return ComposedPass("verify", (Alike(requests, context, queries, tree=True),))


def test_sizes_of_a_dense_model():
    """A layer of Llama-3.1-8B: 4096 x 6144 + 4096 x 4096 + 3 x 4096 x 14336 weights; a cached token 2 x 8 x 128."""
    llama = operators("Llama-3.1-8B")
    assert llama.layer_bytes == llama.active_bytes == 2 * 32 * (4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336)
    assert llama.cache_bytes == 32 * 2 * 8 * 128 * 2
    profile = profile_of("Llama-3.1-8B")
    assert profile.target.weights_bytes == llama.layer_bytes + 2 * 2 * 128256 * 4096
    assert profile.target.max_model_len == 131072
    # EAGLE-3: a layer, its first product twice as wide, three states joined, 32,000 tokens of its own.
    layer = 4096 * 6144 * 2 + 4096 * 4096 + 3 * 4096 * 14336
    assert profile.draft.weights_bytes == 2 * (layer + 3 * 4096 * 4096 + 32000 * 4096)
    assert (profile.draft.one_pass, profile.draft.max_depth) == (False, 8)
    weights = profile.target.weights_bytes + profile.draft.weights_bytes
    assert profile.usable_kv_bytes == int((0.9 * 79.19 - 1.89 - 0.27) * 2**30 - weights)


def test_the_cache_is_as_large_as_engines_log():
    """GiB of a GPU: vLLM's (llm-d-planner, issue 33155), SGLang's but its share (21348), TensorRT-LLM's rule."""
    sglang, trtllm = (H100._replace(engine=each, tp=4) for each in ("sglang", "trtllm"))
    for model, place, gib in (
        ("Qwen3-30B-A3B", H100, 11.45),
        ("gpt-oss-120b", H100, 0.9 * 79.19 - 64.38 - 2.87 - 0.27),
        ("Qwen3-235B-A22B-FP8", sglang, 16.46 - (16 / 79.19 - 0.07) * 77.09),
        ("Qwen3-235B-A22B-FP8", trtllm, 0.9 * (79.19 - 55.11 - 2.68 - 2.1)),
    ):
        found = operators(model, place)
        weights = (_weights_bytes(found) + found.padding_bytes) / place.tp
        assert left_bytes(found, weights, head=True) / 2**30 == pytest.approx(gib, abs=0.15)


def test_without_a_draft_model_on_one_gpu_the_others_cache_more():
    """Of Qwen2.5-32B on four GPUs, the draft on fewer: a scheduler that never drafts has what the target leaves."""
    profile = profile_of("Qwen2.5-32B", draft="Qwen2.5-0.5B", tp=4)
    alone = int(4 * ((0.9 * 79.19 - 1.89 - 2.1) * 2**30 - profile.target.weights_bytes / 4))
    assert without_drafter(profile).usable_kv_bytes == alone, "activations, and what collectives keep"
    assert without_drafter(profile).usable_kv_bytes > 1.1 * (profile.usable_kv_bytes + profile.draft.weights_bytes)
    headed = profile_of("Llama-3.1-8B", engine="sglang")
    more = without_drafter(headed).usable_kv_bytes - headed.usable_kv_bytes - headed.draft.weights_bytes
    assert more == pytest.approx(2 * (79.19 - 0.27) / 79.19 * 2**30), "nothing is kept for a draft either"


def test_four_bits_have_scales():
    """Sizes of the published files: 12.8 GiB (OpenAI's model card), and Kimi-K2.5's with its images' tower."""
    for name, gpu, billions in (("gpt-oss-20b", "h100_sxm", 13.7), ("Kimi-K2.5", "b300_sxm", 595.0)):
        assert _weights_bytes(operators(name, H100._replace(gpu=gpu))) == pytest.approx(1e9 * billions, rel=5e-3)


def test_sizes_of_a_mixture_of_experts_with_sliding_windows():
    """gpt-oss-20b: 24 layers of 32 experts of 3 x 2880 x 2880 weights of 4.25 bits, 4 of them a token.

    Of their 8 x 64 keys and values 12 layers hold at most 128 tokens; a request has 4,096.
    """
    found = operators("gpt-oss-20b")
    assert found.layer_bytes - found.active_bytes == 24 * 28 * 3 * 2880 * 2880 * 4.25 / 8
    assert found.windowed
    assert found.cache_bytes == 2 * 2 * 8 * 64 * 12 * (4096 + 128) / 4096


def test_a_draft_on_one_gpu_leaves_what_fits_there():
    """Qwen3-0.6B has 16 heads, and runs on one of 32 GPUs: of its 114,688 bytes a token this one has all."""
    profile = profile_of("Qwen3-32B", tp=32, draft="Qwen3-0.6B")
    target, draft, found = profile.target, profile.draft, operators("Qwen3-32B", H100._replace(tp=32))
    left = left_bytes(found, target.weights_bytes / 32 + draft.weights_bytes, head=False)
    assert draft.kv_bytes_per_token == 114688
    assert profile.usable_kv_tokens == int(left / (target.kv_bytes_per_token / 32 + 114688))


def test_eight_bits_halve_weights_and_cache():
    whole, half = operators("Llama-3.1-8B"), operators("Llama-3.1-8B", H100._replace(precision="fp8", cache="fp8"))
    assert half.layer_bytes == whole.layer_bytes / 2
    assert half.cache_bytes == whole.cache_bytes / 2
    assert half.products(1, False) < 0.7 * whole.products(1, False)


def test_a_pipeline_takes_a_micro_batch_through_all_stages():
    """Four requests on two stages: a step is a pass of two on tensor parallelism alone, and the transfer between."""
    places = H100, H100._replace(tp=4), H100._replace(tp=4, pp=2)
    alone, one, two = (operators("Llama-3.1-70B", place) for place in places)
    assert alone.layer_bytes == one.layer_bytes == two.layer_bytes
    assert alone.cache_bytes == one.cache_bytes == two.cache_bytes
    names = [name_of(each) for each in two._listed[0]]
    sent = 1e-3 * two._priced([names.index("generation_p2p")], 2, False)[0]
    assert two.products(2, False) - one.products(2, False) == pytest.approx(sent)
    whole, staged = (profile_of("Llama-3.1-70B", tp=4, pp=stages) for stages in (1, 2))
    assert (staged.gpus, staged.memory_bytes) == (8, 2 * whole.memory_bytes)
    half = whole.target.chosen.seconds(PassShape.decode(1000, 2)) + sent
    assert staged.target.chosen.seconds(PassShape.decode(2000, 4)) == pytest.approx(half, rel=0.02)


@pytest.mark.parametrize(
    ("model", "gpu", "engine", "precision", "lender", "kind"),
    [
        ("gpt-oss-20b", "b200_sxm", "vllm", "mxfp4_mxfp8", "sglang", "_moe"),
        ("gpt-oss-20b", "h100_sxm", "sglang", "mxfp4", "vllm", "_moe"),
        ("Llama-3.1-8B", "b200_sxm", "trtllm", "nvfp4", "vllm", "_gemm"),
    ],
)
def test_a_kernel_in_another_engine_s_table_is_read_there_and_said(model, gpu, engine, precision, lender, kind):
    place = ComposedPlacement(gpu, engine, 8, 1, precision, "bf16")
    found, other = operators(model, place), operators(model, place._replace(engine=lender))
    names = [[name_of(each) for each in of._listed[0]] for of in (found, other)]
    theirs = [other._priced([names[1].index(names[0][i])], 16, False)[0] for i in found._lent[0]]
    assert all(names[0][i].endswith(kind) for i in found._lent[0])
    assert found._products(16, False)[-len(theirs) :].tolist() == theirs
    assert f"of {ENGINE_NAMES[lender]} {other.version}" in _provenance(found)["versions"]


def test_no_product_takes_longer_than_that_of_a_padded_pass():
    """vLLM's FP8 table on a B200 takes 26 us for a first product of 4 tokens and 13 for 16; an engine pads."""
    found = operators("Llama-3.1-70B", ComposedPlacement("b200_sxm", "vllm", 4, 1, "fp8", "auto"))
    by_size = np.array([found._products(size, False) for size in (4, 8, 16, 32, 64, 128, 256, 512)])
    assert (by_size[0] > 1.5 * by_size[2]).any()
    assert found.products(4, False) == pytest.approx(1e-3 * by_size.min(axis=0).sum(), rel=1e-9)
    assert found.products(4, False) <= found.products(16, False)


def test_tensorrt_llm_fuses_rotation_and_write_into_attention_and_norms_into_the_all_reduce():
    one, two = (operators("Llama-3.1-8B", ComposedPlacement("h100_sxm", "trtllm", n, 1, None, "auto")) for n in (1, 2))
    for found in (one, two):
        assert not {"generation_rope", "generation_cache_write"} & {name_of(each) for each in found._listed[0]}
    priced = [{name_of(each._listed[0][i]) for i in each._rest[0]} for each in (one, two)]
    assert priced[0] - priced[1] == {"generation_add_norm_1", "generation_add_norm_2"}


def test_the_first_layers_of_deepseek_are_dense():
    """61 layers of 256 experts of 3 x 7168 x 2048 weights of a byte, but 3 of them 3 x 7168 x 18432 and no expert."""
    placed = ComposedPlacement("h200_sxm", "sglang", 8, 1, None, "auto")
    found, every = operators("DeepSeek-V3", placed), model_of("DeepSeek-V3")
    every.config["first_k_dense_replace"] = 0
    assert Operators(every, placed).layer_bytes - found.layer_bytes == 9 * 7168 * (256 * 2048 + 2048 - 18432)
    assert found.layer_bytes - found.active_bytes == 58 * 248 * 3 * 7168 * 2048


def test_latent_attention_of_vllm_is_read_from_its_table_of_it():
    """A decode of 64 x 4,096 reads 61 layers of 64 x 4,096 x 576 values on each GPU: 3.8 ms at the memory's peak.

    Attention with a KV head for each of 16 heads would read 16 x 256 values, 27 ms.
    """
    places = (ComposedPlacement("h200_sxm", each, 8, 1, None, "auto") for each in ENGINES[:2])
    vllm, sglang = (operators("DeepSeek-V3", place) for place in places)
    assert "MlaModuleGeneration" in vllm.kinds
    assert 61 * 64 * 4096 * 576 * 2 / vllm.bytes_per_s < vllm.decode(64, 4096) < 1.5 * sglang.decode(64, 4096)


def test_kimi_is_the_text_model_within_its_configuration():
    """61 layers, one dense; 384 experts of 3 x 7168 x 2048 weights in 4 bits, 8 a token; 512 + 64 cached, of 8 bits."""
    found = operators("nvidia/Kimi-K2.6-NVFP4", ComposedPlacement("gb200", "vllm", 4, 1, None, "auto"))
    assert found.model.whole("num_hidden_layers") == 61
    assert found.precision == "products nvfp4, experts nvfp4, cache fp8"
    per_weight = float(library.sdk().common.MoEQuantMode.nvfp4.value.memory)
    assert 0.5 <= per_weight <= 0.5625
    idle = 60 * 376 * 3 * 7168 * 2048 * per_weight
    assert found.layer_bytes - found.active_bytes == pytest.approx(idle, rel=1e-12)
    assert found.cache_bytes == 4 * 61 * (512 + 64)


V4 = {
    "DeepSeek-V4-Pro": ComposedPlacement("b300_sxm", "vllm", 8, 8, None, "auto"),
    "DeepSeek-V4-Flash": ComposedPlacement("b200_sxm", "sglang", 8, 8, None, "auto"),
}


def test_sizes_of_sparse_attention():
    """V4-Flash: 20 layers of HCA, 21 of CSA, 2 of a window alone; in each 256 experts, 6 of them a token.

    A request of 4,096 tokens has in each layer 128 entries of 512 bytes, and one for 128 (HCA) or 4 (CSA) tokens. CSA's
    indexer has 64 bytes an entry. Beside them stands what is not compressed yet, two 32-bit numbers a value: 128
    tokens of HCA; 8 of CSA, and of its indexer. All of it lies on each GPU. Experts have 4.25 bits a weight.
    """
    found = operators("DeepSeek-V4-Flash", V4["DeepSeek-V4-Flash"])
    of_hca = 32 * 512 + 2 * 128 * 512 * 4
    of_csa = 1024 * (512 + 64) + 2 * 8 * (512 + 128) * 4
    held = 43 * 128 * 512 + 20 * of_hca + 21 * of_csa
    assert found.cache_bytes == -(-8 * held // 4096)
    assert found.layer_bytes - found.active_bytes == pytest.approx(43 * 250 * 3 * 4096 * 2048 * 4.25 / 8, rel=1e-12)


def test_attention_of_v4_is_read_from_the_engine_s_own_table():
    """Of vLLM in FP8 blocks, beside products with one scale; SGLang's experts are FlashInfer's."""
    pro, flash = (operators(name, place) for name, place in V4.items())
    modes = {each["Dsv4Generation"]["gemm_quant_mode"] for each in pro._listed[0] if "Dsv4Generation" in each}
    assert (modes, pro.unblocked, pro.lender) == ({"fp8_block"}, True, None)
    assert flash.precision == "products fp8_block, experts w4a8_mxfp4_mxfp8_trtllm, cache fp8"
    seconds = composed(pro, decoded(64, 512))
    assert seconds == pytest.approx(1e-3 * pro._engine.predict_decode_latency(64, 512), rel=0.1)


def test_a_verification_by_sparse_attention_reads_what_each_query_chooses():
    """CSA of V4-Pro chooses 1,024 entries of 4 tokens: further queries behind 16,384 cost decodes behind 4,096."""
    found = operators("DeepSeek-V4-Pro", V4["DeepSeek-V4-Pro"])
    beside = found.products(64, False) + found.logits(64)
    short, long = (composed(found, verified(16, context, 4)) - beside for context in (1024, 16384))
    assert short == pytest.approx(found.decode(64, 1024), rel=1e-9)
    assert (chosen := found.decode(64, 4096) - found.decode(16, 4096)) > 0
    assert long == pytest.approx(found.decode(16, 16384) + chosen, rel=1e-9)


def test_a_markov_head_is_read_once_a_token_of_the_block():
    """DSpark on Llama-3.1-8B: five layers, five states joined, two matrices of 128,256 x 256; a block of 7."""
    mapping = mapping_of("Llama-3.1-8B", drafter="dspark")
    layer = 4096 * 6144 + 4096 * 4096 + 3 * 4096 * 14336
    assert mapping["draft"]["weights_bytes"] == 2 * (5 * layer + 5 * 4096 * 4096 + 2 * 128256 * 256)
    assert mapping["draft"]["block_tokens"] == 7
    head = DecoderHead("dspark", 5, False, True, 5, 7, None, 256)
    found = Operators(head_of(model_of("Llama-3.1-8B"), head), H100)
    plain = Operators(head_of(model_of("Llama-3.1-8B"), replace(head, markov_rank=0)), H100)
    assert found.markov(1) > 7 * 2 * 128256 * 256 / found.bytes_per_s > plain.markov(1) == 0.0
    again = composed(found, verified(8, 512, 7)) - composed(plain, verified(8, 512, 7))
    assert again == pytest.approx(found.markov(8), rel=1e-9)


def test_a_decode_is_the_library_s_own_with_the_kernels_that_it_leaves_out_and_a_verification_reads_as_much():
    """Rotation moves 2 x 2 x (40 x 128) bytes a token, its write 2 x 2 x (2 x 8 x 128); each kernel 3 us more."""
    llama = operators("Llama-3.1-8B")
    library_s = 1e-3 * llama._engine.predict_decode_latency(512, 512)
    assert composed(llama, decoded(512, 512)) == pytest.approx(library_s, rel=1e-9)
    rows = llama._engine.evaluate_generation_ops(range(len(llama._listed[0])), batch_size=8, s=513, x=8)
    added = [ms for name, ms, *_ in rows if name in ("generation_rope", "generation_cache_write")]
    moved = 32 * 8 * (4 * 40 * 128 + 4 * 2 * 8 * 128) / (0.8 * 3.35e12)
    assert sum(added) == pytest.approx(1e3 * (moved + 2 * 32 * 3e-6), rel=1e-6)
    seconds = composed(llama, verified(16, 4096, 4))
    assert seconds == pytest.approx(llama.products(64, False) + llama.logits(64) + llama.decode(16, 4096), rel=1e-9)
    assert seconds < composed(llama, decoded(64, 4096))


def test_a_verification_by_latent_attention_reads_each_context_once_and_projects_every_query():
    found = operators("DeepSeek-V3", ComposedPlacement("h200_sxm", "sglang", 8, 8, None, "auto"))
    own = composed(found, verified(16, 16384, 4)) - found.products(64, False) - found.logits(64)
    assert (projected := found.decode(64, 128) - found.decode(16, 128)) > 0
    assert 0.6 * found.decode(64, 16384) > own == pytest.approx(found.decode(16, 16384) + projected, rel=0.2)


def test_a_mixture_of_experts_pays_most_for_a_verification_at_middling_batches():
    """shared/data says of 4 tokens instead of 1: 1.75 at batch 16 and 1.12 at 64, and of a dense model 1.02 at 16."""
    moe, dense = operators("Qwen3-30B-A3B"), operators("Llama-3.1-8B")

    def dearer(of, requests):
        return composed(of, verified(requests, 1024, 4)) / composed(of, decoded(requests, 1024))

    assert dearer(moe, 16) > 1.5 > 1.3 > dearer(moe, 64)
    assert dearer(dense, 16) < 1.1


@pytest.mark.parametrize("name", ["Llama-3.1-8B", "gpt-oss-20b"])
def test_the_written_form_predicts_passes_that_it_was_not_fitted_to(name):
    mapping, profile, found = mapping_of(name), profile_of(name), operators(name)
    work = [each for each in passes(HELD_OUT, 100_000, 2048) if each.kind != "mixed"][::5]
    shapes = [
        PassShape(each.context_tokens, each.batched_tokens, each.attention_pairs, 0, each.logit_rows, each.requests)
        for each in work
    ]
    predicted_s = np.array([profile.target.chosen.seconds(shape) for shape in shapes])
    off = predicted_s / [composed(found, each) for each in work] - 1
    stated = mapping["target"]["held_out_error"][mapping["form"]]
    assert np.median(np.abs(off)) < 0.05
    assert np.max(np.abs(off)) <= max(each["worst"] for each in stated.values()) + 0.01


def test_a_grid_reaches_the_context_that_is_measured():
    """DeepSeek-V4 with SGLang: a million tokens. The last steps are doublings of those of every model."""
    longer = reaching(FITTED, 2**20 // 2**17)
    assert longer.contexts == (*FITTED.contexts, 2**18, 2**19, 2**20)
    assert longer.behind == (*FITTED.behind, 2**17, 2**18, 2**19)
    assert reaching(FITTED, 1) == reaching(FITTED, 0) == FITTED
    found = Operators(model_of("DeepSeek-V4-Flash"), ComposedPlacement("b200_sxm", "sglang", 8, 1, None, "auto"))
    asked, decode = [], found.decode
    found.decode = lambda requests, context: asked.append(context) or decode(requests, context)  # type: ignore
    fitted_forms(found, 0.0, 2**24)
    assert max(asked) == 2**20


def test_heads_by_their_own_shape():
    target = model_of("Qwen3-30B-A3B")
    mtp = head_of(target, DecoderHead("mtp", 2, False, False, 1, 8))
    eagle = head_of(target, DecoderHead("eagle3", 3, True, False, 1, 8, 32000))
    assert (mtp.experts, eagle.experts) == ((128, 8), (0, 0))
    assert (mtp.whole("vocab_size"), eagle.whole("vocab_size")) == (151936, 32000)


@pytest.mark.parametrize("named", ["LlamaForCausalLMEagle3", "LlamaForCausalLM", "Eagle3Speculator"])
def test_a_head_has_the_sizes_of_its_own_configuration(named, tmp_path):
    """EAGLE-3 of gpt-oss: NVIDIA's file is flat, with a width of 17,280, speculators' nests its layer's sizes."""
    layer = {"hidden_size": 2880, "num_hidden_layers": 1, "num_attention_heads": 64, "num_key_value_heads": 8}
    layer |= {"head_dim": 64, "intermediate_size": 17280, "vocab_size": 201088}
    given = {"architectures": [named], "draft_vocab_size": 32000, "block_size": 16}
    given |= {"transformer_layer_config": layer} if named == "Eagle3Speculator" else layer
    gpt = {"target": "gpt-oss-20b", "gpu": "h100_sxm", "draft": str(file := tmp_path / "config.json")}
    file.write_text(json.dumps(given))
    held = 2880 * (2 * (4096 + 2 * 512) + 4096 + 3 * 17280 + 3 * 2880 + 32000)
    assert compose_profile(**gpt)["draft"]["weights_bytes"] == 2 * held
    told = refusal(compose_profile, **gpt | {"target": "Llama-3.1-8B"})
    assert "a head of hidden_size 2,880, and Llama-3.1-8B has 4,096; expected its head" in told
    for kind, drafts in (("DFlash", 15), ("DSpark", 16)):
        file.write_text(json.dumps(given | {"architectures": [f"{kind}DraftModel"]}))
        assert compose_profile(**gpt)["draft"]["block_tokens"] == drafts
    file.write_text(json.dumps(given | {"quantization_config": {"quant_method": "fp8"}}))
    assert "quantised heads are not composed" in refusal(compose_profile, **gpt)


def test_a_configuration_by_path_is_the_shipped_one_and_says_its_precision(tmp_path):
    file = tmp_path / "Llama-3.1-8B" / "config.json"
    file.parent.mkdir()
    file.write_text(config())
    own, shipped = (mapping_of(each) for each in (str(file), "meta-llama/Llama-3.1-8B-Instruct"))
    assert own["target"]["forms"] == shipped["target"]["forms"]
    assert (own["target"]["name"], own["target"]["max_model_len"]) == ("Llama-3.1-8B", 8192)
    quantised = {"quantization": {"quant_algo": "FP8", "kv_cache_quant_algo": "FP8"}}
    file.with_name("hf_quant_config.json").write_text(json.dumps(quantised))
    assert operators(str(file.parent)).precision == "products fp8_static, cache fp8"
    whole = H100._replace(cache="bf16")
    assert operators(str(file.parent), whole).precision == "products fp8_static, cache bfloat16"


def test_a_file_without_kv_heads_has_as_many_as_heads_and_names_the_model(tmp_path):
    file = tmp_path / "own-7b.json"
    for given in (config(num_key_value_heads=None), json.dumps(OWN | {"num_key_value_heads": None})):
        file.write_text(given)
        found = model_of(str(file))
        assert (found.name, found.config["num_key_value_heads"], found.heads) == ("own-7b", 32, (32, 32, 128))


def test_a_head_on_latent_attention_has_heads_of_its_own():
    """Kimi-K2.5's EAGLE-3: 64 heads of 128 beside a state of 7,168, 8 of them on each of 8 GPUs."""
    draft = compose_profile("Kimi-K2-Instruct", gpu="b200_sxm", tp=8, precision="nvfp4", drafter="eagle3")["draft"]
    assert (draft["name"], draft["kv_bytes_per_token"]) == ("eagle3 head", 2 * 2 * 64 * 128)


def test_a_model_of_the_same_sizes_keeps_its_own_context():
    """`max_position_embeddings` of the models' files on Hugging Face."""
    stated = {"Qwen/Qwen3-30B-A3B-Instruct-2507": 262144, "DeepSeek-V3.1": 163840, "Qwen3-30B-A3B": 40960}
    assert {name: model_of(name).whole("max_position_embeddings") for name in stated} == stated


def test_no_model_is_looked_for_outside(monkeypatch):
    """Mixtral's file is in the library, its name not among those that the library reads without a network."""
    monkeypatch.setattr(library.sdk().utils, "_download_hf_json", lambda *_: pytest.fail("asked a network"))
    assert model_of("mistralai/Mixtral-8x7B-v0.1").experts == (8, 2)
    assert "no configuration of this model ships" in refusal(model_of, "mistralai/Mixtral-9x9B")


def test_the_command_writes_a_profile_that_serves(tmp_path, capsys):
    out = tmp_path / "mine.yaml"
    words = ["--target", "gpt-oss-20b", "--gpu", "h100_sxm", "--out", str(out)]
    assert main(["profile", "compose", *words]) == 0
    said, err = capsys.readouterr()
    assert ("vLLM 0.24.0 on h100_sxm" in said, err) == (True, "")
    assert "suggests engine=vllm_0_18, acceptance=gpt_oss_20b_eagle3\n  held-out error of form=table" in said
    profile = load_profile(out)
    assert (profile.name, profile.draft.name) == ("mine", "eagle3 head")
    assert profile.provenance[0]["licence"] == "Apache-2.0"
    assert yaml_text(mapping_of("gpt-oss-20b") | {"name": "mine"}, HEADING) == out.read_text()
    run = [f"profile={out}", "trace=azure_code", "requests=20", "rps=4", f"out={tmp_path / 'runs'}"]
    assert main(["run", *run]) == 0


@pytest.mark.parametrize(
    ("name", "place", "said"),
    [
        ("Qwen3-235B-A22B-FP8", ComposedPlacement("h200_sxm", "vllm", 4, 1, None, "auto"), "fp8, experts fp8_block"),
        ("Llama-3.1-8B", H100._replace(engine="trtllm", precision="fp8"), "fp8_static"),
        ("Llama-3.1-8B", H100._replace(precision="fp8"), "fp8"),
        ("gpt-oss-120b", H100._replace(gpu="b200_sxm", engine="trtllm"), "bfloat16, experts w4a8_mxfp4_mxfp8"),
    ],
)
def test_a_precision_is_that_of_the_engine_s_kernels(name, place, said):
    """vLLM's table of FP8 blocks is not used; TensorRT-LLM: scales in files, MXFP8 activations on Blackwell."""
    assert operators(name, place).precision == f"products {said}, cache bfloat16"


def test_the_engine_file_is_of_the_kernels_version_and_the_acceptance_of_the_pair_or_of_one_near_it():
    """A100s have kernels of TensorRT-LLM 1.0 and vLLM 0.14, H100s of 1.3 and 0.24."""
    places = [(engine, gpu) for engine in ("trtllm", "vllm") for gpu in ("a100_sxm", "h100_sxm")]
    files = [mapping_of("Llama-3.1-8B", gpu, engine=engine)["suggests"]["engine"] for engine, gpu in places]
    assert files == ["trtllm_1_0", "trtllm_1_2", "vllm_0_15", "vllm_0_18"]
    for brought, *targets in (
        ("qwen3_8b_eagle3", {"target": "Qwen3-8B"}),
        ("llama8b_eagle3", {"target": "Qwen2.5-1.5B"}),  # none of the pair is public
        ("gpt_oss_20b_eagle3", {"target": "gpt-oss-120b"}),  # as the shipped profiles of these models
        ("qwen3_235b_2507_eagle3", *({"target": f"Qwen3-235B-A22B{month}", "tp": 8} for month in ("", "-2507"))),
        ("qwen3_32b_eagle3", {"target": "Qwen3-32B-FP8"}),
        ("qwen3_8b_eagle3", {"target": "Qwen3-1.7B"}),  # of its family the nearest in size
        ("deepseek_v3_mtp", {"target": "DeepSeek-R1", "gpu": "h200_sxm", "tp": 8, "drafter": "mtp"}),
        ("gpt_oss_20b_p_eagle", {"target": "Qwen2.5-1.5B", "drafter": "p_eagle"}),
    ):
        for settings in targets:
            assert mapping_of(**settings)["suggests"] == {"engine": "vllm_0_18", "acceptance": brought}


NEAR = "  MISMATCHED PAIR: acceptance={} is of {} with eagle3 head, the run is of {} with eagle3 head"
SLOWER = (
    "  a decode of 8 requests takes {} ms, {} ms with --precision fp8_block and {} ms with --engine trtllm: these are"
)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("Mixtral-8x7B --tp 8", NEAR.format("llama8b_eagle3", "Llama-3.1-8B", "Mixtral-8x7B")),
        ("Qwen3-235B-A22B --tp 8", NEAR.format("qwen3_235b_2507_eagle3", "Qwen3-235B-A22B-2507", "Qwen3-235B-A22B")),
        ("Qwen3-235B-A22B-2507 --tp 8", None),
        ("Qwen3-30B-A3B --precision fp8", SLOWER.format(25.8, 8.1, 7.4)),
        ("DeepSeek-V3 --tp 8 --engine sglang --gpu h200_sxm", "takes 1074.0 ms, 585.6 ms with --engine vllm: these"),
    ],
)
def test_the_command_says_whose_acceptance_it_brings_and_where_others_are_far_faster(words, said, tmp_path, capsys):
    words = f"profile compose --gpu h100_sxm --target {words} --out {tmp_path / 'mine.yaml'}"
    assert main(words.split()) == 0
    told = capsys.readouterr().out
    assert said in told if said else not re.search("MISMATCHED|no measurement", told)


def test_the_models_are_listed(capsys):
    with pytest.raises(SystemExit) as stop:
        main(["profile", "compose", "--list"])
    names = capsys.readouterr().out.splitlines()
    assert stop.value.code == 0
    assert {"openai/gpt-oss-120b", "mistralai/Mixtral-8x7B-v0.1", "llama-3.3-70b"} <= set(names)
    assert not [name for name in names if "Llama-4" in name]  # not composed yet


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("--gpu h100", "--gpu h100: unknown; did you mean 'h100_sxm'?"),
        ("--drafter mtp", "--drafter mtp: the configuration of Llama-3.1-8B has no MTP module; expected one of eagle"),
        ("--target Lama-3.1-8B", "Lama-3.1-8B: no configuration of this model ships; did you mean 'Llama-3.1-8B'?"),
        ("--target Llama-4-Scout", "did you mean 'meta-llama/Llama-4-Scout-17B-16E-Instruct'?; expected another ("),
        ("--target Llama-5-8B-Next", "Llama-5-8B-Next: no configuration of this model ships; expected another ("),
        ("--tp 3", "--tp 3: does not divide the 32 heads and 8 KV heads of Llama-3.1-8B; expected one of 1, 2, 4, 8,"),
        ("--precision mxfp4", "--precision mxfp4: is of experts alone, and Llama-3.1-8B has none"),
        ("--ep 2", "--ep 2: does not divide a dense model (Llama-3.1-8B)"),
        ("--target Llama-3.1-70B", "Llama-3.1-70B does not fit on 1 x h100_sxm: weights of 134.0 GiB a GPU and"),
        ("--precision nvfp4", "h100_sxm has those of vllm in its own precision, bf16, fp8, fp8_block; sg"),
        ("--target Qwen3.5-27B", "Qwen3_5ForConditionalGeneration is not composed yet; expected one of Llama"),
        ("--drafter lookup", "--drafter lookup: is no head; expected one of eagle, eagle3, mtp"),
        ("--target DeepSeek-V4-Pro --drafter eagle3", "--drafter eagle3: is not composed on DeepSeek-V4-Pro; expected"),
        ("--drafter mtp --draft Llama-3.2-1B", "--draft and --drafter are both given; expected one of them"),
        ("--pp 33", "--pp 33: more stages than the 32 layers of Llama-3.1-8B"),
        ("--target none.json", "none.json: cannot be read: No such file or directory"),
        (f"--target {'x' * 300}", ": no configuration of this model ships"),
        ("--draft Qwen3-0.6B", "--draft Qwen3-0.6B: a vocabulary of 151,936 tokens, and Llama-3.1-8B has 128,256;"),
        ("--draft Llama-3.1-70B", "Llama-3.1-8B with Llama-3.1-70B does not fit on 1 x h100_sxm"),
        ("--draft Llama-3.1-70B --pp 2", "GiB too little for a cache of 1,024 tokens on the draft's GPU"),
        ("--target MiniMax-M2.5 --tp 8", "h100_sxm has them with --ep 8"),
    ],
)
def test_what_cannot_be_composed_is_one_line(words, said, refused):
    given = ["--target", "Llama-3.1-8B", "--gpu", "h100_sxm", "--out", "new/mine.yaml", *words.split()]
    (told,) = refused("profile", "compose", *given).splitlines()
    assert said in told


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (config(architectures=None), "config.json: has no architectures; expected a Hugging Face config.json"),
        (config(hidden_size=None), "config.json: has no hidden_size; expected a Hugging Face config.json"),
        (config(num_hidden_layers="32"), "'32' is no whole number of at least 1 in num_hidden_layers"),
        (config(num_experts=8, num_experts_per_tok=2), "has experts; expected a config.json of LlamaForCausalLM"),
        (config(architectures=["KimiK25ForConditionalGeneration"]), "has no text_config"),
        (config(EXPERTS, num_experts=None), "has no number of experts; expected a config.json of Qwen3MoeForCausalLM"),
        (config(EXPERTS, mlp_only_layers=[0]), "expected experts in every layer"),
        (config(LATENT, first_k_dense_replace=99), "first_k_dense_replace 99: expected fewer than its layers"),
        (config(LATENT, kv_lora_rank=256), "kv_lora_rank 256 has no kernels; expected 512, DeepSeek-V3's"),
        ("{", "config.json: cannot be read"),
        ("[1]", "config.json: is no mapping"),
        ("[" * 100_000, "config.json: cannot be read"),
    ],
    ids=lambda value: value[-40:],
)
def test_a_file_that_is_none_and_a_wrong_field_are_one_line(content, said, tmp_path):
    file = tmp_path / "config.json"
    file.write_text(content)
    assert said in refusal(model_of, str(file))


def test_a_cache_for_less_than_a_request_is_no_fit(tmp_path):
    """162 layers leave less than a GiB: fewer tokens than the passes of the smallest grid hold."""
    file = tmp_path / "config.json"
    file.write_text(config(num_hidden_layers=162))
    said = refusal(compose_profile, str(file), gpu="h100_sxm")
    assert re.search(r"what vLLM keeps beside them leave 0\.\d GiB too little for a cache of 1,024 tokens", said)
    file.write_text(config(num_hidden_layers=161))
    assert compose_profile(str(file), gpu="h100_sxm")["usable_kv_bytes"] > 0


@pytest.mark.parametrize(("kind", "stated", "size"), [("int", 32, 32), ("float", 16, 128)])
def test_the_group_of_a_scale_is_the_configuration_s(kind, stated, size):
    weights = {"type": kind, "num_bits": 4, "group_size": stated}
    quantised = {"config_groups": {"group_0": {"weights": weights}}}
    assert Model("own", OWN | {"quantization_config": quantised}, "own").int4_group == size
    assert Model("own", OWN | {"quantization_config": None}, "own").int4_group == 128


def test_a_norm_over_all_heads_is_summed_over_the_gpus():
    """MiniMax-M2's: in a layer two numbers of 32 bits a token go round, and no GPU alone needs that."""
    one, two = (operators("MiniMax-M2.5", ComposedPlacement("b200_sxm", "vllm", n, 1, "nvfp4", "auto")) for n in (1, 2))
    names = [{name_of(each) for each in found._listed[0]} for found in (one, two)]
    assert names[1] - names[0] == {"generation_norm_sum", "generation_norm_ar"}
    assert (two.exponent, operators("gpt-oss-20b").exponent) == ("1.01", "1.2")


def test_dspark_of_v4_is_three_of_its_layers_with_a_window():
    mapping = compose_profile("DeepSeek-V4-Flash", gpu="b200_sxm", tp=8, ep=8, engine="sglang", drafter="dspark")
    assert (mapping["draft"]["block_tokens"], mapping["draft"]["kv_bytes_per_token"]) == (5, 8 * 3 * 128 * 512 / 4096)
    head = DecoderHead("dspark", 3, False, True, 3, 5, None, 256)
    assert head_of(model_of("DeepSeek-V4-Flash"), head).experts == (256, 6)
    assert profile_from_mapping(mapping, "composed").unfit is None


def test_rows_of_other_engines_are_not_read(monkeypatch):
    asked = []
    databases = library.sdk().databases
    get = databases.get_database
    monkeypatch.setattr(databases, "get_database", lambda *words, **more: asked.append(more) or get(*words, **more))
    operators("Llama-3.2-1B")
    assert asked == [{"shared_layer": False}]
