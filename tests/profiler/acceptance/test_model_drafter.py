"""Recorded rows against a naive loop, one token at a time, and against transformers' own assisted generation."""

import numpy as np
import pytest

made = pytest.importorskip("tests.profiler.acceptance.made", reason="needs torch", exc_type=ImportError)
torch = made.torch

from transformers.generation import candidate_generator  # noqa: E402

from profiler.acceptance.drafters import ModelRecorder  # noqa: E402
from profiler.acceptance.network import network, random_key, without_layers  # noqa: E402

pytestmark = pytest.mark.torch
KEY = random_key(0, "draft", "chat", 0)
K = 4
TARGET, DRAFT, PROMPTS = made.llama(), made.llama(1, seed=7), made.prompt_ids()


def softmax(values: np.ndarray, temperature: float = 1.0) -> np.ndarray:
    weights = np.exp((values - values.max(axis=-1, keepdims=True)) / temperature)
    return weights / weights.sum(axis=-1, keepdims=True)


def drafter_of(target, draft, *, temperature=0.0, proposals=K, every=1, sampled=False) -> ModelRecorder:
    parts = network(draft, "draft"), network(target, "target")
    return ModelRecorder(*parts, made.WORDS, temperature, proposals, every, sampled)


def recorded(target, draft, prompt, text, **options):
    return drafter_of(target, draft, **options).rows(torch.tensor(prompt), text, KEY)


@pytest.mark.parametrize("temperature", [0.0, 0.7])
def test_rows_on_the_path_equal_a_loop_over_tokens(temperature):
    texts = made.written(TARGET, PROMPTS, temperature=temperature)
    for prompt, text in zip(PROMPTS, texts, strict=True):
        rows = recorded(TARGET, DRAFT, prompt, text, temperature=temperature)
        tokens = text.tokens.tolist()
        for position, token in enumerate(tokens):
            before = [*prompt, *tokens[:position]]
            q, p = (softmax(made.logits(of, before)[-1], temperature or 1.0) for of in (DRAFT, TARGET))
            best = np.argsort(-q)[:K]
            place = best.tolist().index(token) if token in best else K
            assert (rows.position[position], rows.path[position], rows.rank[position]) == (position, -1, place)
            assert np.allclose(rows.confidence[position], q[best], atol=1e-6)
            assert np.allclose(rows.target_probability[position], p[best], atol=1e-6)
            assert np.isclose(rows.overlap[position], np.minimum(p, q).sum(), atol=1e-6)


def test_rows_behind_wrong_turns_equal_plain_passes_over_the_wrong_text():
    for prompt, text in zip(PROMPTS, made.written(TARGET, PROMPTS), strict=True):
        rows, tokens = recorded(TARGET, DRAFT, prompt, text, every=3), text.tokens.tolist()
        expected = {}
        for position in range(3, len(tokens), 3):
            before = [*prompt, *tokens[: position - 1]]
            best = np.argsort(-made.logits(DRAFT, before)[-1])[:3]
            for path, wrong in enumerate(best.tolist(), 1):
                if wrong != tokens[position - 1]:
                    q = softmax(made.logits(DRAFT, [*before, wrong])[-1])
                    expected[path, position] = np.sort(q)[::-1][:K]
        off = np.flatnonzero(rows.path > 0)
        assert [(rows.path[n], rows.position[n]) for n in off] == sorted(expected)
        for n in off:
            assert np.allclose(rows.confidence[n], expected[rows.path[n], rows.position[n]], atol=1e-6)
        assert len(off) > 3
        assert (rows.rank[off] == K).all()


def test_a_long_text_taken_piece_by_piece_gives_the_same_rows(monkeypatch):
    (text,) = made.written(TARGET, PROMPTS[1:2])
    whole = recorded(TARGET, DRAFT, PROMPTS[1], text)
    monkeypatch.setattr("profiler.acceptance.drafters.PIECE", 5)
    pieces = recorded(TARGET, DRAFT, PROMPTS[1], text)
    for name, column in whole._asdict().items():
        assert np.allclose(column, getattr(pieces, name), equal_nan=True), name


@pytest.mark.parametrize("sampled", [False, True])
@pytest.mark.parametrize("tokens", [1, 5])
def test_a_text_of_a_few_tokens_has_rows_too(tokens, sampled):
    (text,) = made.written(TARGET, PROMPTS[1:2], tokens=tokens)
    rows = recorded(TARGET, DRAFT, PROMPTS[1], text, every=4, sampled=sampled, proposals=1)
    assert rows.position[rows.path < 0].tolist() == list(range(tokens))
    assert set(rows.position[rows.path > 0].tolist()) <= ({4} if tokens == 5 else set())


def test_assisted_generation_accepts_what_the_trace_says(monkeypatch):
    """Greedy chains: transformers' own speculative loop, its accepted runs noted, against runs of rank 0."""
    target, prompt = made.llama(3, seed=3), made.prompt_ids(2)[1]
    draft = without_layers(target, [2])
    rows = recorded(target, draft, prompt, made.written(target, [prompt], tokens=40)[0])
    right = rows.rank[rows.path < 0] == 0
    expected, position = [], 0
    while position < len(right):
        expected.append(int(np.argmin(np.append(right[position : position + 3], False))))
        position += expected[-1] + 1
    runs: list[int] = []
    kind = candidate_generator.AssistedCandidateGenerator
    before = kind.update_candidate_strategy
    noting = lambda self, *given: runs.append(int(given[-1])) or before(self, *given)  # noqa: E731
    monkeypatch.setattr(kind, "update_candidate_strategy", noting)
    draft.generation_config.num_assistant_tokens = 3
    draft.generation_config.num_assistant_tokens_schedule = "constant"
    draft.generation_config.assistant_confidence_threshold = 0.0
    target.generate(torch.tensor([prompt]), assistant_model=draft, max_new_tokens=len(right), do_sample=False)
    assert runs == expected
    assert 0 < sum(expected) < len(right) - 1


def test_sampled_proposals_follow_the_draft_and_are_kept_as_often_as_the_overlap():
    """Over some 1,500 positions; a proposal's own probability is on average the sum of the draft's squared."""
    prompt, drafter = PROMPTS[0], drafter_of(TARGET, DRAFT, temperature=1.0, proposals=1, every=99, sampled=True)
    kept, overlap, surplus, variance = [], [], [], []
    for index, text in enumerate(made.written(TARGET, [prompt] * 64, temperature=1.0, tokens=24)):
        rows = drafter.rows(torch.tensor(prompt), text, random_key(0, "draft", "chat", index))
        q = softmax(made.logits(DRAFT, [*prompt, *text.tokens.tolist()[:-1]])[len(prompt) - 1 :])
        kept.append(rows.rank == 0)
        overlap.append(rows.overlap)
        surplus.append(rows.confidence[:, 0] - (q**2).sum(axis=1))
        variance.append((q**3).sum(axis=1) - (q**2).sum(axis=1) ** 2)
    kept, overlap, surplus, variance = map(np.concatenate, (kept, overlap, surplus, variance))
    assert len(kept) > 1200
    assert abs(kept.mean() - overlap.mean()) < 4 * np.sqrt((overlap * (1 - overlap)).sum()) / len(kept)
    assert abs(surplus.mean()) < 4 * np.sqrt(variance.sum()) / len(kept)


def test_skipping_layers_shares_weights_and_keeps_a_cache_of_its_own():
    target, prompt = made.llama(4, seed=3), made.prompt_ids(2)[1]
    draft = without_layers(target, [1, 2])
    by_hand = made.llama(4, seed=3)
    by_hand.model.layers = torch.nn.ModuleList([by_hand.model.layers[0], by_hand.model.layers[3]])
    by_hand.model.layers[1].self_attn.layer_idx = 1
    by_hand.config.num_hidden_layers = 2
    assert np.allclose(made.logits(draft, prompt), made.logits(by_hand, prompt))
    assert draft.model.layers[1].mlp.gate_proj.weight is target.model.layers[3].mlp.gate_proj.weight
    assert target.config.num_hidden_layers == len(target.model.layers) == 4
    assert target.model.layers[3].self_attn.layer_idx == 3
    one, two = (of.generate(torch.tensor([prompt]), max_new_tokens=8, do_sample=False) for of in (draft, by_hand))
    assert one.tolist() == two.tolist()


def test_greedy_texts_equal_the_models_own_one_by_one_and_sampled_ones_do_not_depend_on_the_batch():
    for prompt, text in zip(PROMPTS, made.written(TARGET, PROMPTS), strict=True):
        alone = TARGET.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :]
        assert text.tokens.tolist() == alone.tolist()
    together, alone = (made.written(TARGET, some, temperature=1.0) for some in (PROMPTS, PROMPTS[:1]))
    assert together[0].tokens.tolist() == alone[0].tokens.tolist()
    assert torch.allclose(together[0].hidden, alone[0].hidden)


def test_a_text_ends_with_the_end_token_and_the_others_go_on():
    texts = made.written(TARGET, made.prompt_ids(12), temperature=2.0, tokens=40)
    lengths = [len(text.tokens) for text in texts]
    assert min(lengths) < max(lengths) == 40
    for text in texts:
        assert made.END not in text.tokens[:-1].tolist()
        assert len(text.tokens) == 40 or text.tokens[-1] == made.END


def test_sampled_first_tokens_follow_the_distribution_at_their_temperature():
    count, temperature = 4000, 0.5
    texts = made.written(TARGET, PROMPTS[:1] * count, temperature=temperature, tokens=1)
    seen = np.bincount([int(text.tokens[0]) for text in texts], minlength=made.WORDS) / count
    expected = softmax(made.logits(TARGET, PROMPTS[0])[-1], temperature)
    error = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(seen - expected) <= 4 * error + 1e-3).all()
    assert expected.max() < 0.95
