"""Target and drafter, loaded and checked against each other; the layers to skip where the target drafts for itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from tqdm import tqdm
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from profiler.acceptance.drafters import LookupRecorder, ModelRecorder
from profiler.acceptance.network import Network, generate, network, without_layers
from profiler.acceptance.prompts import Prompt
from profiler.acceptance.record import Task
from profiler.acceptance.settings import RecordingSettings
from profiler.models.loading import load_model, load_tokenizer
from specsim.errors import SpecsimError


class RecordingPair(NamedTuple):
    """A pair to record: the target's network, the drafter, the tokenizer, the common ids, those that end a text.

    `positions` is the longest text, prompt included, that both models allow; 0 if they state none.
    """

    target: Network
    drafter: ModelRecorder | LookupRecorder
    tokenizer: PreTrainedTokenizerBase
    vocabulary: int
    stop: frozenset[int]
    positions: int


def load_pair(settings: RecordingSettings, device: str) -> RecordingPair:
    """Return a pair ready to record.

    Raises
    ------
    SpecsimError
        One line: a model that cannot be loaded, layers that do not exist, vocabularies that differ.
    """
    tokenizer = load_tokenizer(settings.target)
    if settings.draft:
        same_vocabulary(tokenizer, load_tokenizer(settings.draft), settings.target, settings.draft)
    model = load_model(settings.target, device=device, dtype=settings.dtype)
    target, stop = network(model, settings.target), stop_ids(model, tokenizer)
    given = settings.temperature, settings.proposals
    if settings.drafter == "lookup":
        lookup = LookupRecorder(target, target.vocabulary, *given, *settings.lookup, settings.every)
        return RecordingPair(target, lookup, tokenizer, target.vocabulary, stop, _positions(model))
    if settings.drafter == "skip":
        draft = without_layers(model, settings.skip_layers)
    else:
        draft = load_model(settings.draft, device=device, dtype=settings.dtype)
    drafts = network(draft, settings.draft or settings.target)
    vocabulary = min(target.vocabulary, drafts.vocabulary)
    drafter = ModelRecorder(drafts, target, vocabulary, *given, settings.every, settings.draft_sampling)
    positions = min(filter(None, (_positions(model), _positions(draft))), default=0)
    return RecordingPair(target, drafter, tokenizer, vocabulary, stop, positions)


def same_vocabulary(
    target: PreTrainedTokenizerBase, draft: PreTrainedTokenizerBase, target_name: str, draft_name: str
) -> None:
    """Raise SpecsimError, one line, unless every token has the same id in both tokenizers."""
    ours, theirs = target.get_vocab(), draft.get_vocab()
    if ours == theirs:
        return
    said = f"{len(ours)} tokens against {len(theirs)}"
    if len(ours) == len(theirs):
        token = next(token for token, number in sorted(ours.items()) if theirs.get(token) != number)
        said = f"token {token!r} is {ours[token]} against {theirs.get(token, 'none')}"
    raise SpecsimError(
        f"target {target_name!r} and draft {draft_name!r} have different vocabularies ({said}); "
        "a draft must share its target's"
    )


def tasks(prompts: Iterable[Prompt], encode: Callable[[str], tuple[int, ...]], limit: int, longest: int) -> list[Task]:
    """Return the first `limit` prompts of each category that have at most `longest` tokens; 0: no limit.

    Raises
    ------
    SpecsimError
        When none is left.
    """
    taken: dict[str, int] = {}
    found = []
    for category, sequence, text in prompts:
        if limit and taken.get(category, 0) >= limit:
            continue
        ids = encode(text)
        if 0 < len(ids) <= longest:
            taken[category] = taken.get(category, 0) + 1
            found.append(Task((category, sequence), ids))
    if not found:
        raise SpecsimError(
            f"no prompt is at most {longest} tokens long; expected a larger --longest-prompt, "
            "or fewer --tokens where the model's positions bind"
        )
    return found


def encoder(tokenizer: PreTrainedTokenizerBase) -> Callable[[str], tuple[int, ...]]:
    """Return a function from a user's message to token ids, with the chat template if there is one."""

    def encode(text: str) -> tuple[int, ...]:
        if not tokenizer.chat_template:
            return tuple(tokenizer(text)["input_ids"])
        message = [{"role": "user", "content": text}]
        said: Any = tokenizer.apply_chat_template(message, add_generation_prompt=True, return_dict=True)
        return tuple(said["input_ids"])

    return encode


def _positions(model: PreTrainedModel) -> int:
    found = getattr(model.config, "max_position_embeddings", None)
    return found if isinstance(found, int) else 0


def stop_ids(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> frozenset[int]:
    """Return the token ids that end a text."""
    ends = getattr(model.generation_config, "eos_token_id", None)
    listed = ends if isinstance(ends, list) else [ends]
    return frozenset(each for each in [*listed, tokenizer.eos_token_id] if isinstance(each, int))


SHORTLIST = 10
"""Layers that are tried, besides one for each layer that is sought."""


class LayerSearch:
    """Texts of a target, and how often it would choose the same tokens without some of its layers.

    Parameters
    ----------
    model : the target. tasks : prompts. tokens : greedy output tokens of a text. stop : ids that end a text.
    count : of layers to skip.

    Raises
    ------
    SpecsimError
        When more layers are to be skipped than may be: all but the last.
    """

    def __init__(
        self, model: PreTrainedModel, tasks: Sequence[Task], tokens: int, stop: frozenset[int], count: int
    ) -> None:
        self._model, self._count = model, count
        target = network(model, "target")
        prompts = [task.ids for task in tasks]
        keys = [np.uint64(0)] * len(prompts)
        self._layers = len(target.body.layers)
        if not 1 <= count < self._layers:
            raise SpecsimError(
                f"--find-layers: {count}; expected 1 to {self._layers - 1}, the model's layers but the last"
            )
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

    def best(self) -> list[tuple[tuple[int, ...], float]]:
        """Return the layers to skip after each greedy step, sorted, with their agreement."""
        count = self._count
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
