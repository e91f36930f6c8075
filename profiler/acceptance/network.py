"""A causal language model split into body and head, and the texts that it generates, a random stream per sequence."""

from __future__ import annotations

import copy
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from specsim.errors import SpecsimError
from specsim.rng import STRIDE, stream_keys, uniforms

PIECE = 256
"""Positions whose logits over the whole vocabulary are in memory at once."""


class Read(NamedTuple):
    """The output of the body: hidden states (batch, tokens, size), and the cache with these tokens."""

    hidden: Tensor
    cache: Any


@dataclass(frozen=True, slots=True)
class Network:
    """A model by its parts.

    Attributes
    ----------
    body : token ids to hidden states. head : hidden states to logits.
    """

    body: nn.Module
    head: nn.Module

    @property
    def device(self) -> torch.device:
        """The device of the weights."""
        return next(self.body.parameters()).device

    @property
    def vocabulary(self) -> int:
        """Number of logits, padding included."""
        weight = self.head.weight
        assert isinstance(weight, Tensor)
        return len(weight)

    def read(self, ids: Tensor, cache: Any = None, **options: Any) -> Read:
        """Read ids (batch, tokens) after the cached ones; options go to the model (mask, position ids)."""
        answer = self.body(input_ids=ids, past_key_values=cache, use_cache=True, **options)
        return Read(answer.last_hidden_state, answer.past_key_values)

    def probabilities(self, hidden: Tensor, temperature: float, vocabulary: int) -> Tensor:
        """Return the distribution (n, vocabulary) behind hidden states (n, size), in float32 or finer.

        Parameters
        ----------
        temperature : logits are divided by it; at 0 (greedy) they are unchanged.
        vocabulary : number of logits used; those beyond are padding.
        """
        logits = self.head(hidden)[:, :vocabulary]
        logits = logits if logits.dtype == torch.float64 else logits.float()
        return torch.softmax(logits / (temperature or 1.0), dim=-1)


def network(model: PreTrainedModel, name: str) -> Network:
    """Return a model's parts.

    Raises
    ------
    SpecsimError
        When the head's logits are not the model's, because it scales or caps them.
    """
    whole: Any = model
    parts = Network(whole.base_model, whole.get_output_embeddings())
    ids = torch.arange(1, 5, device=parts.device).remainder(parts.vocabulary)[None]
    with torch.inference_mode():
        logits = whole(input_ids=ids).logits
        split = parts.head(parts.read(ids).hidden)
    if not torch.allclose(logits, split.to(logits.dtype), rtol=1e-3, atol=1e-3):
        raise SpecsimError(f"model {name!r} changes its logits behind its head, which a recording cannot follow")
    return parts


def without_layers(model: PreTrainedModel, skipped: Sequence[int]) -> PreTrainedModel:
    """Return the model without some of its decoder layers, with shared weights and a cache of its own.

    Raises
    ------
    SpecsimError
        When a layer does not exist, all layers would be skipped, or the model's layers cannot be found.
    """
    body = model.base_model
    layers = getattr(body, "layers", None)
    if not isinstance(layers, nn.ModuleList) or not all(
        hasattr(getattr(each, "self_attn", None), "layer_idx") for each in layers
    ):
        raise SpecsimError(f"{type(model).__name__}: its decoder layers cannot be told apart, so none can be skipped")
    wrong = [each for each in skipped if not 0 <= each < len(layers)]
    if wrong or not skipped or len(set(skipped)) >= len(layers):
        raise SpecsimError(f"skip-layers: {list(skipped)} are not some of the layers 0 to {len(layers) - 1}")
    kept = [index for index in range(len(layers)) if index not in set(skipped)]
    short, shallow = _copied(body), _copied(model)
    short.layers = nn.ModuleList(_copied(layers[old]) for old in kept)
    for number, layer in enumerate(short.layers):
        # Under its number a layer caches keys and values.
        layer.self_attn = _copied(layer.self_attn)
        layer.self_attn.layer_idx = number
    config = shallow.config = short.config = copy.deepcopy(model.config)
    config.num_hidden_layers = len(kept)
    if getattr(config, "layer_types", None):
        config.layer_types = [config.layer_types[index] for index in kept]
    setattr(shallow, model.base_model_prefix, short)
    found: PreTrainedModel = shallow
    return found


def _copied(module: nn.Module) -> Any:
    copied = copy.copy(module)
    copied._modules = dict(module._modules)
    return copied


class Written(NamedTuple):
    """A text of the target: tokens (T,), end of text included, and the hidden states (T, size) behind them."""

    tokens: Tensor
    hidden: Tensor


@dataclass(slots=True)
class _Sequence:
    """One unfinished sequence."""

    place: int
    key: np.uint64
    tokens: list[int] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)


def random_key(seed: int, purpose: str, category: str, sequence: int) -> np.uint64:
    """Return the key of a sequence's random stream for one purpose, which does not depend on the batch."""
    key: np.uint64 = stream_keys(seed, f"{purpose}, {category}", [sequence])[0]
    return key


@torch.inference_mode()
def generate(
    target: Network,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[np.uint64],
    *,
    tokens: int,
    temperature: float,
    vocabulary: int,
    stop: Collection[int],
) -> list[Written]:
    """Return at most `tokens` tokens for each prompt; all prompts are decoded together.

    Parameters
    ----------
    prompts : token ids, at least one each. keys : of each random stream; unused at temperature 0, which is greedy.
    vocabulary : ids that may be chosen; logits beyond are padding. stop : ids that end a text; the text includes them.
    """
    width = max(map(len, prompts))
    ids = torch.zeros((len(prompts), width), dtype=torch.long, device=target.device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    unfinished = [_Sequence(place, key) for place, key in enumerate(keys)]
    done: list[_Sequence] = []
    cache: Any = None
    while unfinished:
        position = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        hidden, cache = target.read(ids, cache, attention_mask=mask, position_ids=position)
        chosen = _choose(target, hidden[:, -1], unfinished, temperature, vocabulary)
        for row, each in enumerate(unfinished):
            each.tokens.append(int(chosen[row]))
            each.hidden.append(hidden[row, -1].clone())
        over = [len(each.tokens) >= tokens or each.tokens[-1] in stop for each in unfinished]
        done += [each for each, ended in zip(unfinished, over, strict=True) if ended]
        ids, mask = chosen[:, None], torch.nn.functional.pad(mask, (0, 1), value=1)
        if any(over):
            left = torch.tensor(
                [row for row, ended in enumerate(over) if not ended], dtype=torch.long, device=target.device
            )
            unfinished = [unfinished[int(row)] for row in left]
            ids, mask = ids[left], mask[left]
            cache.batch_select_indices(left)
    done.sort(key=lambda each: each.place)
    return [Written(torch.tensor(each.tokens, device=target.device), torch.stack(each.hidden)) for each in done]


def _choose(
    target: Network, hidden: Tensor, unfinished: Sequence[_Sequence], temperature: float, vocabulary: int
) -> Tensor:
    """Return the next token of each sequence, (sequences,): the likeliest, or drawn by inverting the cumulative sum."""
    if not temperature:
        chosen: Tensor = target.head(hidden)[:, :vocabulary].argmax(dim=-1)
        return chosen
    token = np.array([len(unfinished[0].tokens)], dtype=np.uint64)
    words = np.array([each.key for each in unfinished]) + STRIDE * token
    total = target.probabilities(hidden, temperature, vocabulary).double().cumsum(dim=-1)
    drawn = torch.from_numpy(uniforms(words)).to(total.device)[:, None] * total[:, -1:]
    return torch.searchsorted(total, drawn, right=True).squeeze(1).clamp(max=vocabulary - 1)
