from dataclasses import replace
from functools import cache

import numpy as np
import pytest
from hypothesis import given, settings

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402
from transformers import AutoModelForCausalLM, LlamaConfig, MistralConfig, Qwen2Config  # noqa: E402

from profiler.attention import kernels  # noqa: E402
from profiler.attention.operations import Plain  # noqa: E402
from profiler.attention.pages import deal  # noqa: E402
from profiler.attention.planning import operations  # noqa: E402
from profiler.models.random_weights import shape_of  # noqa: E402
from profiler.models.shapes import TINY_LLAMA  # noqa: E402
from profiler.passes.checks import check_operations  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from profiler.passes.fused import Fused, take_over  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.passes.layouts import PASSES  # noqa: E402
from tests.profiler.passes.test_packing import works  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
QWEN = replace(TINY_LLAMA, hidden=32, ffn=48, vocab=97, qkv_bias=True, tied=False)
SIZES = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "vocab_size": 97}
SIZES |= {"num_attention_heads": 4, "num_key_value_heads": 2}
SIZES |= dict.fromkeys(("pad_token_id", "bos_token_id", "eos_token_id"))
LLAMA_3 = {"rope_type": "llama3", "rope_theta": 5e4, "original_max_position_embeddings": 64}
LLAMA_3 |= {"factor": 8.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0}
CONFIGS = {
    "llama 3": lambda: LlamaConfig(**SIZES, rope_parameters=dict(LLAMA_3), tie_word_embeddings=True),
    "llama with biases": lambda: LlamaConfig(**SIZES, attention_bias=True, mlp_bias=True, rms_norm_eps=1e-2),
    "llama of wide heads": lambda: LlamaConfig(**SIZES, head_dim=24),
    "qwen2": lambda: Qwen2Config(**SIZES, rope_parameters={"rope_type": "default", "rope_theta": 1e6}),
    "qwen2, tied": lambda: Qwen2Config(**SIZES, tie_word_embeddings=True),
}


def model_of(name):
    """Return a model whose attention, norms and biases all matter."""
    model = AutoModelForCausalLM.from_config(CONFIGS[name]()).to(torch.float64).eval()
    generator = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for key, weights in model.named_parameters():
            drawn = torch.randn(weights.shape, generator=generator, dtype=torch.float64)
            weights.copy_(1 + 0.3 * drawn if "norm" in key else 0.24 * drawn)
    return model


def logits_of(made, work, size=3):
    made.cache.fill(0)
    tables = deal(work, made.cache.shape, np.random.default_rng(0))
    tokens = np.random.default_rng(1).integers(0, 97, work.batched_tokens)
    return made.run(made.inputs(work, tables, tokens, work.batched_tokens + size))


@cache
def both(name, **options):
    shape = shape_of(model_of(name), name)
    return Forward(model_of(name), shape, 64, "sdpa"), Fused(model_of(name), shape, 64, **options)


@pytest.mark.parametrize(("name", "kernel"), [*((name, "split") for name in CONFIGS), ("llama 3", "sdpa")])
def test_logits_are_those_of_the_transformers_path(name, kernel):
    """In float64, but for norms and rotary tables: transformers has these in float32, and so the fused path."""
    plain, fused = both(name, kernel=kernel)
    for work in (PASSES[each] for each in ("chunks", "draft step of one leaf", "tree of 7", "trees beside a chunk")):
        expected, found = logits_of(plain, work), logits_of(fused, work)
        assert expected.shape == found.shape == (work.logit_tokens, 97)
        assert expected.std() > 0.1
        torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


@settings(max_examples=25, deadline=None)
@given(work=works(rows=3, context=20, chunk=6, nodes=6))
def test_logits_of_any_pass_are_those_of_the_transformers_path(work):
    expected, found = (logits_of(each, work) for each in both("llama 3", kernel="split"))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-5)


def test_logits_by_the_kernels_are_those_of_the_transformers_path():
    """On Triton's interpreter, attention to tails included; the kernels compute in float32."""
    pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")
    plain, fused = both("qwen2", kernel="split", operations=operations("triton"))
    fused.planner._merge = fused.operations.tail
    for work in (PASSES["chain"], PASSES["tree of 3"]):
        expected = logits_of(plain, work)
        torch.testing.assert_close(logits_of(fused, work), expected, atol=1e-4, rtol=1e-4)


def test_weights_are_taken_over_and_none_are_held_twice():
    model = model_of("qwen2, tied")
    held = {each.data_ptr() for each in model.parameters()}
    size = sum(each.numel() for each in model.parameters())
    weights = take_over(model)
    products = [each for layer in weights.layers for each in (layer.qkv, layer.out, layer.gate_up, layer.down)]
    mine = [weights.embedding, weights.norm, weights.head.weight, *(each.weight for each in products)]
    mine += [each.bias for each in products if each.bias is not None]
    mine += [each for layer in weights.layers for each in (layer.before_attention, layer.before_mlp)]
    own = {each.data_ptr(): each.numel() for each in mine}
    assert (sum(own.values()), weights.head.weight.data_ptr()) == (size, weights.embedding.data_ptr())
    left = {each.data_ptr() for each in model.parameters()}
    assert left < held
    assert left <= own.keys()


ENDS_A_CAPTURE = ("_local_scalar_dense", "item", "is_nonzero", "nonzero", "masked_select", "_unique2", "lift_fresh")


class WhatMayBeCaptured(TorchDispatchMode):
    """Refuses what ends a graph's capture: numbers asked of the device, results of unknown size, tensors of numbers."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        assert func.overloadpacket.__name__ not in ENDS_A_CAPTURE
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize(("name", "kernel"), [("chunks", "sdpa"), ("tree of 7", "split")])
def test_a_pass_is_one_that_a_graph_can_capture(name, kernel):
    """The host launches only: no number is asked of the device, and other pages are loaded in place."""
    work, rng = PASSES[name], np.random.default_rng(0)
    tokens, size = np.arange(work.batched_tokens), work.batched_tokens + 3
    for made in both("llama 3", kernel=kernel):
        ready, other = (made.inputs(work, deal(work, made.cache.shape, rng), tokens, size) for _ in range(2))
        with WhatMayBeCaptured():
            made.run(ready)
            ready.load(other)
        made.cache.fill(0)
        again = made.run(ready).clone()
        made.cache.fill(0)
        assert torch.equal(again, made.run(other))


def test_launching_kernels_asks_the_device_nothing(monkeypatch):
    pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")
    _, fused = both("llama 3", kernel="split", operations=operations("triton"))
    fused.planner._merge = fused.operations.tail
    launched, work = [], PASSES["tree of 7"]
    monkeypatch.setattr(kernels, "launch", lambda kernel, *_, **__: launched.append(kernel.__name__))
    tables = deal(work, fused.cache.shape, np.random.default_rng(0))
    ready = fused.inputs(work, tables, np.arange(work.batched_tokens))
    with WhatMayBeCaptured():
        fused.run(ready)
    layer = ["add_norm_kernel", "rotary_write_kernel", "tail_kernel", "add_norm_kernel", "silu_multiply_kernel"]
    assert launched == [*layer, *layer, "add_norm_kernel"]


def test_other_models_and_what_is_no_plain_matrix_are_refused_in_one_line():
    rotary = {"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}
    windows = {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1}
    for said, config in (
        ("a model of type 'mistral'; expected llama or qwen2", MistralConfig(**SIZES)),
        ("an MLP with 'gelu'; expected 'silu'", LlamaConfig(**SIZES, hidden_act="gelu")),
        ("rotary positions of type 'linear'; expected default", LlamaConfig(**SIZES, rope_parameters=rotary)),
        ("layers of a sliding window; expected full attention", Qwen2Config(**SIZES, **windows)),
    ):
        model = AutoModelForCausalLM.from_config(config)
        with pytest.raises(SpecsimError, match=rf"^passes 'fused' have no {said}.*, or --passes transformers$"):
            Fused(model, shape_of(model, "m"), 4)

    class Packed4(torch.nn.Linear):
        pass

    model = model_of("llama 3")
    model.model.layers[1].mlp.up_proj = Packed4(32, 48, dtype=torch.float64)
    assert "passes 'fused' take plain matrices, not Packed4; use --passes transformers" in refusal(take_over, model)


WRONG = {
    "add_norm": lambda out: (out[0] * 1.01, out[1]),
    "rotary_write": lambda out: out.flip(-1),
    "silu_multiply": lambda out: torch.where(torch.arange(out.shape[1]) == 3, torch.nan, out),
}


@pytest.mark.parametrize("operation", WRONG)
def test_a_wrong_operation_is_refused(operation):
    class Wrong(Plain):
        name = "wrong"

    def call(self, *given):
        return WRONG[operation](getattr(Plain, operation)(self, *given))

    setattr(Wrong, operation, call)
    with pytest.raises(SpecsimError, match=r"^the wrong operations of passes 'fused' are wrong by .* on cpu$"):
        check_operations(Wrong(), QWEN, device=CPU, dtype=torch.float32)
    setattr(Wrong, operation, lambda *_: 1 / 0)
    with pytest.raises(SpecsimError, match="operations of passes 'fused' do not run on cpu: division by zero"):
        check_operations(Wrong(), QWEN, device=CPU, dtype=torch.float32)
