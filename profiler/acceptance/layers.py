"""Search for the layers to skip: greedy, among the layers that change their input least."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel

from profiler.acceptance.network import Network, generate, network, without_layers
from profiler.acceptance.record import Task
from specsim.errors import SpecsimError

SHORTLIST = 10
"""Layers that are tried, besides one for each layer that is sought."""


def check_count(model: PreTrainedModel, count: int) -> None:
    """Refuse a search for more layers than may be skipped: all but the last.

    Raises
    ------
    SpecsimError
        One line.
    """
    most = len(network(model, "target").body.layers) - 1
    if not 1 <= count <= most:
        raise SpecsimError(f"--find-layers: {count}; expected 1 to {most}, the model's layers but the last")


class LayerSearch:
    """Texts of a target, and how often it would choose the same tokens without some of its layers.

    Parameters
    ----------
    model : the target. tasks : prompts. tokens : greedy output tokens of a text. stop : ids that end a text.
    """

    def __init__(self, model: PreTrainedModel, tasks: Sequence[Task], tokens: int, stop: frozenset[int]) -> None:
        self._model = model
        target = network(model, "target")
        prompts = [task.ids for task in tasks]
        keys = [np.uint64(0)] * len(prompts)
        self._layers = len(target.body.layers)
        self._texts: list[tuple[Tensor, Tensor]] = []
        written = generate(
            target, prompts, keys, tokens=tokens, temperature=0.0, vocabulary=target.vocabulary, stop=stop
        )
        for prompt, each in zip(prompts, written, strict=True):
            self._texts.append((torch.tensor(prompt, device=target.device), each.tokens))

    @torch.inference_mode()
    def agreement(self, skipped: Sequence[int]) -> float:
        """Return the share of the target's tokens that are the shortened model's likeliest."""
        draft: Network = network(without_layers(self._model, skipped), "draft")
        right = total = 0
        for prompt, tokens in self._texts:
            hidden = draft.read(torch.cat((prompt, tokens[:-1]))[None]).hidden[0, len(prompt) - 1 :]
            right += int((draft.head(hidden).argmax(dim=-1) == tokens).sum())
            total += len(tokens)
        return right / total

    def best(self, count: int) -> list[tuple[tuple[int, ...], float]]:
        """Return the layers to skip after each of `count` greedy steps, sorted, with their agreement."""
        steps: list[tuple[tuple[int, ...], float]] = []
        candidates = self.shortlist(SHORTLIST + count)
        chosen: tuple[int, ...] = ()
        for step in range(count):
            tried = [
                (self.agreement((*chosen, layer)), layer)
                for layer in tqdm(candidates, desc=f"layer {step + 1} of {count}", leave=False)
            ]
            agreement, layer = max(tried)
            chosen = (*chosen, layer)
            candidates.remove(layer)
            steps.append((tuple(sorted(chosen)), agreement))
        return steps

    @torch.inference_mode()
    def shortlist(self, count: int) -> list[int]:
        """Return the layers with the highest cosine similarity of input and output, without the last layer.

        That is the lowest block influence (Men et al. 2024, "ShortGPT", Eq. 1) over the texts.
        """
        alike = torch.zeros(self._layers - 1, dtype=torch.float64)
        for prompt, tokens in self._texts:
            states = self._model.base_model(torch.cat((prompt, tokens))[None], output_hidden_states=True).hidden_states
            for layer in range(self._layers - 1):
                alike[layer] += torch.cosine_similarity(states[layer], states[layer + 1], dim=-1).mean().cpu()
        return sorted(alike.argsort(descending=True)[:count].tolist())
