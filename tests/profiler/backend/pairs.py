"""Tiny pairs in float64 whose texts can be decoded plainly, and simulations that they can serve."""

from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
import torch

from profiler.acceptance.network import without_layers
from profiler.backend.rows import pages_for
from profiler.backend.served import LookupMatch, Models
from profiler.models.random_weights import random_model, shape_of
from profiler.models.shapes import TINY_LLAMA, TransformerShape
from profiler.passes.forward import Forward
from specsim.simulation import Simulation

VOCABULARY = 11
"""More than the four tokens that an acceptance trace proposes behind a node."""
SHAPE = replace(TINY_LLAMA, name="tiny", layers=2, hidden=16, heads=2, kv_heads=1, head_dim=8, ffn=24, vocab=VOCABULARY)
CPU = torch.device("cpu")
DRAFTERS = ("separate", "layers_skipped", "lookup")
ITSELF = "itself"
"""A draft model with the target's weights: its likeliest token is always right."""
LOUD, NOISE = 12.0, 0.4


def loud(noise: float = 0.0, dtype: torch.dtype = torch.float64, shape: TransformerShape = SHAPE) -> Any:
    """Return a model whose attention matters; with noise a relative of it, which often says the same.

    With weights of 0.02 a wrong mask would hardly show.
    """
    model, other = (random_model(shape, device=CPU, dtype=dtype, seed=seed) for seed in (0, 1))
    with torch.no_grad():
        for (name, weights), its in zip(model.named_parameters(), other.parameters(), strict=True):
            if "norm" not in name:
                weights.add_(noise * its).mul_(LOUD)
    return model


@cache
def prompt(row: int, tokens: int) -> np.ndarray:
    """Return the prompt of a row, one of a few texts cut to its length."""
    return np.random.default_rng(row % 3).integers(0, VOCABULARY, 2000)[:tokens]


_plain = cache(loud)


@cache
def plain_greedy(row: int, tokens: int, count: int) -> tuple[int, ...]:
    """Return what an ordinary model, without any cache, says behind a prompt."""
    text, model = prompt(row, tokens).tolist(), _plain()
    with torch.inference_mode():
        for _ in range(count):
            text.append(int(model(input_ids=torch.tensor([text]), use_cache=False).logits[0, -1].argmax()))
    return tuple(text[tokens:])


@cache
def _models(drafter: str, shape: TransformerShape) -> tuple[Any, Any]:
    target = loud(shape=shape)
    if drafter == "layers_skipped":
        return target, without_layers(target, [0])
    noise = {"separate": NOISE, ITSELF: 0.0}.get(drafter)
    return target, None if noise is None else loud(noise, shape=shape)


def pair(simulation: Simulation, drafter: str, kernel: str = "sdpa", shape: TransformerShape = SHAPE) -> Models:
    """Return a pair whose caches are as small as the simulation's pool allows."""
    target, draft = _models(drafter, shape)
    memory = simulation.memory
    pages = [pages_for(memory, size, 16) for size in (memory.target_token_bytes, memory.draft_token_bytes)]
    most = int((simulation.requests.prompt_tokens + simulation.requests.max_tokens + 64).sum())
    pages = [min(each, 2 * most + 1) for each in pages]
    served: Any = LookupMatch(1, 3)
    if draft is not None:
        served = Forward(draft, shape_of(draft, "draft"), pages[1], kernel)
    models = Models(Forward(target, shape, pages[0], kernel), served, VOCABULARY)
    for each in (models.target, models.draft):
        if isinstance(each, Forward):
            each.cache.fill(seed=1)  # Memory that was never written may hold no numbers.
    return models
