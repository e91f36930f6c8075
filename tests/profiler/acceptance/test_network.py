"""Batched writing equals writing alone, and sampling follows the model's distribution."""

from __future__ import annotations

import numpy as np
import pytest

made = pytest.importorskip("tests.profiler.acceptance.made", reason="needs torch", exc_type=ImportError)
torch = made.torch

pytestmark = pytest.mark.torch


def test_greedy_texts_equal_the_models_own_generation_one_by_one() -> None:
    model, prompts = made.llama(), made.prompt_ids()
    texts = made.written(model, prompts)
    for prompt, text in zip(prompts, texts, strict=True):
        alone = model.generate(torch.tensor([prompt]), max_new_tokens=24, do_sample=False)[0, len(prompt) :]
        assert text.tokens.tolist() == alone.tolist()


def test_a_text_does_not_depend_on_who_is_in_the_batch() -> None:
    model, prompts = made.llama(), made.prompt_ids()
    together = made.written(model, prompts, temperature=1.0)
    alone = made.written(model, prompts[:1], temperature=1.0)
    assert together[0].tokens.tolist() == alone[0].tokens.tolist()
    assert torch.allclose(together[0].hidden, alone[0].hidden)


def test_a_text_ends_with_the_end_token_and_the_others_go_on() -> None:
    model, prompts = made.llama(), made.prompt_ids(12)
    texts = made.written(model, prompts, temperature=2.0, tokens=40)
    lengths = [len(text.tokens) for text in texts]
    assert min(lengths) < 40
    assert max(lengths) == 40
    for text in texts:
        assert made.END not in text.tokens[:-1].tolist()
        assert len(text.tokens) == 40 or text.tokens[-1] == made.END


def test_sampled_first_tokens_follow_the_distribution_at_their_temperature() -> None:
    model, prompt, count, temperature = made.llama(), made.prompt_ids(1)[0], 4000, 0.5
    texts = made.written(model, [prompt] * count, temperature=temperature, tokens=1)
    seen = np.bincount([int(text.tokens[0]) for text in texts], minlength=made.WORDS) / count
    scaled = made.logits(model, prompt)[-1] / temperature
    expected = np.exp(scaled - scaled.max())
    expected /= expected.sum()
    error = np.sqrt(expected * (1 - expected) / count)
    assert (np.abs(seen - expected) <= 4 * error + 1e-3).all()
    assert expected.max() < 0.95
