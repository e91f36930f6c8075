from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.attention.packing import Work  # noqa: E402
from profiler.attention.pages import CacheShape, deal, pages_needed  # noqa: E402
from profiler.models.random_weights import MAX_POSITIONS, random_model, shape_of, shard  # noqa: E402
from profiler.models.shapes import LLAMA_70B, SMOLLM2_135M, TINY_LLAMA, named_shape  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.backend.pairs import CPU, loud  # noqa: E402
from tests.profiler.passes.test_packing import works  # noqa: E402

pytestmark = pytest.mark.torch
LLAMA = replace(TINY_LLAMA, hidden=32, ffn=48, vocab=97)
QWEN = replace(LLAMA, qkv_bias=True, tied=False)
MODELS = {name: (loud(shape=of), loud(shape=of), of) for name, of in (("llama", LLAMA), ("qwen", QWEN))}


def plain_logits(model, tokens):
    """Return the last position's logits of an ordinary forward pass over a whole path, with no cache."""
    with torch.inference_mode():
        return model(input_ids=torch.from_numpy(np.asarray(tokens))[None], use_cache=False).logits[0, -1]


def paths(work, text):
    """Yield for each query that wants logits the tokens from its row's first to itself; `text` (rows, most)."""
    for row in range(work.rows):
        context, chunk = int(work.context[row]), int(work.chunk[row])
        mine = np.flatnonzero(work.node_row == row).tolist()
        if chunk:
            yield text[row, : context + chunk]
        for node in mine:
            if work.node_cached[node]:
                continue
            up, at = [], node
            while at >= 0:
                up.append(text[row, context + chunk + mine.index(at)])
                at = int(work.node_parent[at])
            yield np.r_[text[row, : context + chunk], up[::-1]]


def before(work):
    """Return the passes that must have gone before: the context as a chunk, and the cached nodes behind it."""
    cached = np.flatnonzero(work.node_cached)
    place = np.cumsum(work.node_cached) - 1
    parent = work.node_parent[cached]
    parent = np.where(parent >= 0, place[parent], -1)
    none = np.zeros(work.rows, np.int64)
    return Work.of(none, work.context), Work.of(work.context, work.chunk, work.node_row[cached], parent)


def tokens_of(work, text):
    """Return the query tokens of a pass in their packed order."""
    picked = []
    for row in range(work.rows):
        first, chunk = int(work.context[row]), int(work.chunk[row])
        picked.append(text[row, first : first + chunk])
        mine = np.flatnonzero(work.node_row == row)
        asked = np.flatnonzero(~work.node_cached[mine])
        picked.append(text[row, first + chunk + asked])
    return np.concatenate(picked)


@pytest.mark.parametrize(("name", "kernel"), [("llama", "sdpa"), ("qwen", "sdpa"), ("llama", "flex")])
@settings(max_examples=12, deadline=None)
@given(work=works(rows=3, context=20, chunk=6, nodes=6), seed=st.integers(0, 99))
def test_a_packed_pass_is_decoding_each_path_alone(name, kernel, work, seed):
    """Contexts from 0, trees, chains, single nodes and none, some of them cached by the pass before."""
    paged, plain, shape = MODELS[name]
    rng = np.random.default_rng(seed)
    forward = Forward(paged, shape, pages=32, kernel=kernel)
    forward.cache.fill(seed)
    tables = deal(work, forward.cache.shape, rng)
    text = rng.integers(0, shape.vocab, (work.rows, int(work.key_tokens.max())))
    for earlier in before(work):
        if earlier.batched_tokens:
            forward.run(forward.inputs(earlier, tables, tokens_of(earlier, text)))
    found = forward.run(forward.inputs(work, tables, tokens_of(work, text), size=work.batched_tokens + 3))
    expected = torch.stack([plain_logits(plain, path) for path in paths(work, text)])
    torch.testing.assert_close(found, expected, atol=1e-9, rtol=1e-9)


def test_a_model_that_attends_otherwise_is_refused_in_one_line():
    from transformers import MistralConfig, MistralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1}

    def passed(window):
        model = MistralForCausalLM(MistralConfig(**sizes, **heads, sliding_window=window)).eval()
        forward, work = Forward(model, shape_of(model, "m"), pages=3), Work.of([3], [1])
        tables = deal(work, forward.cache.shape, np.random.default_rng(0))
        return forward.run(forward.inputs(work, tables, np.array([5])))

    assert passed(None).shape == (1, 50)
    assert refusal(passed, 16).startswith("MistralAttention attends with sliding_window=16, which is not supp")


def test_dealt_pages_belong_to_one_row_and_never_to_padding():
    work, shape, rng = Work.of([40, 0], [1, 17]), CacheShape(1, 2, 8, 8, 16), np.random.default_rng(3)
    tables = deal(work, shape, rng)
    held = tables.pages[tables.pages >= 0]
    assert len(set(held.tolist())) == pages_needed(work, 16).sum() == 5
    assert held.max() < 7
    assert "a pass needs 8 pages of KV cache; there are 7" in refusal(deal, Work.of([127], [1]), shape, rng)


@pytest.mark.parametrize("shape", [QWEN, SMOLLM2_135M])
def test_random_weights_have_the_shape_and_type_asked_for(shape):
    model = random_model(shape, device=CPU, dtype=torch.bfloat16)
    assert sum(weights.numel() for weights in model.parameters()) == shape.parameters
    assert {weights.dtype for weights in model.parameters()} == {torch.bfloat16}
    assert shape_of(model, shape.name) == replace(shape, max_model_len=shape.max_model_len or MAX_POSITIONS)
    assert model.model.rotary_emb.inv_freq.dtype == torch.float32
    assert torch.isfinite(model.model.rotary_emb.inv_freq).all()
    assert 0.019 < model.model.layers[0].mlp.up_proj.weight.float().std() < 0.021


def test_a_shard_computes_a_quarter_of_the_70b():
    part = shard(LLAMA_70B, 4)
    assert (part.heads, part.kv_heads, part.ffn, part.vocab, part.layers) == (16, 2, 7168, 32064, 80)
    assert part.weights_bytes == pytest.approx(LLAMA_70B.weights_bytes / 4, rel=0.001)
    assert shard(LLAMA_70B, 16).kv_heads == 1
    assert "tp 3: Llama-3.1-70B has 64 heads, 8 key heads" in refusal(shard, LLAMA_70B, 3)


def test_shapes_have_names_and_weights_that_do_not_fit_are_refused_before_they_are_drawn():
    said = refusal(random_model, LLAMA_70B, device=CPU, dtype=torch.float32)
    assert "282.2 GB of weights do not fit on cpu: too little memory" in said
    assert named_shape("smollm2-135m-skip3").layers == 27
    assert "expected -skipN with N from 1 to 1 layers" in refusal(named_shape, "tiny-llama-skip2")
