"""The models of a sweep: which they are, their sizes, and both in memory with the points that fit beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from profiler.attention.pages import free_bytes, give_back, memory_for, pages_needed
from profiler.attention.planning import page_tokens
from profiler.latency.hardware import clocks_of, machine_facts
from profiler.latency.measure import Bench
from profiler.latency.points import ROLES, Grid, GridPoint
from profiler.latency.samples import SampleFile
from profiler.latency.timers import Effort, Timer
from profiler.models.random_weights import random_model, shape_of, shard
from profiler.models.shapes import TransformerShape, named_shape
from profiler.passes.checks import checked_error
from profiler.passes.paths import forward_of
from specsim.errors import SpecsimError, say

if TYPE_CHECKING:
    from transformers import PreTrainedModel

# A pass's other memory is subtracted too: with 0.94 most points of the full grid fit beside 32B weights in 141 GB.
MEMORY_SHARE = {"cpu": 0.5, "cuda": 0.94}
ACTIVATION_COPIES = 6


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to be profiled: a name to load, or a shape for random weights."""

    name: str
    random: bool

    @property
    def shape(self) -> TransformerShape:
        """The named shape of random weights."""
        return named_shape(self.name)


@dataclass(frozen=True, slots=True)
class Setting:
    """The settings of a sweep."""

    device: torch.device
    dtype: torch.dtype
    kernel: str
    grid: Grid
    tp: int
    link: str | None
    cache_bytes: int
    passes: str = "transformers"


def check_shards(subject: Subject, gpus: int) -> None:
    """Refuse a model that cannot be divided among `gpus`.

    Raises
    ------
    SpecsimError
        One line.
    """
    if subject.random:
        shard(subject.shape, gpus)
    elif gpus > 1:
        raise SpecsimError(f"tp {gpus}: {subject.name} cannot be sharded; expected --random-weights and a shape")


class LoadedModel(NamedTuple):
    """A model in memory, its own shape, and its shape over all GPUs."""

    model: PreTrainedModel
    part: TransformerShape
    whole: TransformerShape


def build(subject: Subject, gpus: int, setting: Setting) -> LoadedModel:
    """Return a model ready to run.

    Raises
    ------
    SpecsimError
        When the model is unknown or does not fit.
    """
    if subject.random:
        whole = subject.shape
        part = shard(whole, gpus)
        return LoadedModel(random_model(part, device=setting.device, dtype=setting.dtype), part, whole)
    from profiler.models.loading import load_model

    model = load_model(subject.name, device=str(setting.device), dtype=str(setting.dtype).removeprefix("torch."))
    whole = shape_of(model, Path(subject.name).name if Path(subject.name).exists() else subject.name)
    return LoadedModel(model, whole, whole)


def weights_bytes(subject: Subject, model: PreTrainedModel, whole: TransformerShape) -> int:
    """Return the bytes of a model's weights over all GPUs; of a loaded model as they are, whatever its layers."""
    if not subject.random:
        return sum(each.numel() * each.element_size() for each in model.parameters())
    return int(whole.parameters * model.dtype.itemsize)


def sizes(shape: TransformerShape, weights: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return a model's sizes for the profile, given the bytes that its weights add."""
    return {
        "name": shape.name,
        "kv_bytes_per_token": shape.kv_values_per_token * dtype.itemsize,
        "weights_bytes": weights,
    }


def shared_facts(
    target: str, draft: str, grid: Grid, kernel: str, passes: str, *, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Return what all samples of a pair on a device share: names, kernels, machine, versions, and points planned."""
    return {
        "target": target,
        "draft": draft,
        "tp": 1,
        "link": None,
        "device": device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "attention": kernel,
        "passes": passes,
        **machine_facts(device),
        "planned": {role: len(grid.passes(role)) for role in ROLES},
    }


class LoadedPair:
    """Models that are in memory at once, with their `benches`; `settle` decides which points fit beside them."""

    def __init__(self, subjects: dict[str, Subject], setting: Setting, timer: Timer, file: SampleFile) -> None:
        self._subjects = subjects
        self._setting = setting
        self._timer = timer
        self._file = file
        self._clocks = clocks_of(setting.device)
        self._loaded: dict[str, LoadedModel] = {}
        self.benches: dict[str, Bench] = {}

    def settle(self, points: Mapping[str, Sequence[GridPoint]]) -> dict[str, list[GridPoint]]:
        """Load the models of these points; return the points for which there is memory.

        Points that do not fit are left out, said in a line on standard error and in the file's facts.

        Raises
        ------
        SpecsimError
            When the models do not fit.
        """
        self._loaded = {role: self._built(role) for role in points}
        pages = pool_pages(points, {role: each.part for role, each in self._loaded.items()}, self._setting)
        held = page_tokens(self._setting.kernel, self._setting.device)
        kept = {}
        for role, every in points.items():
            kept[role] = [point for point in every if needed(point, held) <= pages[role]]
            if left_out := len(every) - len(kept[role]):
                self._lower(role, (pages[role] - 1) * held, left_out)
        self.benches = {role: self._bench(role, pages[role]) for role in points}
        return kept

    def release(self) -> None:
        """Free the models' memory; errors of a failed device are ignored."""
        self._loaded.clear()
        self.benches.clear()
        if self._setting.device.type == "cuda":
            torch._dynamo.reset()
        with suppress(RuntimeError):
            give_back(self._setting.device)

    def _built(self, role: str) -> LoadedModel:
        setting, subject = self._setting, self._subjects[role]
        loaded = build(subject, self._gpus(role), setting)
        model, part, whole = loaded
        weights = weights_bytes(subject, model, whole)
        facts = self._file.facts
        drafts_itself = subject.name.startswith(f"{self._subjects['target'].name}-skip")
        told = sizes(whole, 0 if role == "draft" and drafts_itself else weights, setting.dtype)
        if role == "target" and whole.max_model_len:
            told["max_model_len"] = whole.max_model_len
        facts.setdefault("models", {})[role] = told
        error = checked_error(
            setting.kernel, part.heads, part.kv_heads, part.head_dim, device=setting.device, dtype=setting.dtype
        )
        facts.setdefault("attention_error", {})[role] = error
        return loaded

    def _gpus(self, role: str) -> int:
        return self._setting.tp if role == "target" else 1

    def _lower(self, role: str, tokens: int, left_out: int) -> None:
        name = self._loaded[role].whole.name
        said = f"lower grid: {tokens} tokens of {name}'s cache fit in the memory; {left_out} {role} points are left out"
        say(f"note: {said}", error=True)
        facts = self._file.facts
        facts["lowered"] = {**facts.get("lowered", {}), role: [tokens, left_out]}

    def _bench(self, role: str, pages: int) -> Bench:
        setting, loaded = self._setting, self._loaded[role]
        with memory_for(f"the cache of {role} {loaded.whole.name}", setting.device):
            forward = forward_of(setting.passes, loaded.model, loaded.part, pages, setting.kernel)
            forward.cache.fill(seed=1)
        return Bench(
            role=role,
            forward=forward,
            whole=loaded.whole,
            timer=self._timer,
            clocks=self._clocks,
            effort=Effort(setting.grid.repeats, setting.grid.seconds),
            cache_bytes=setting.cache_bytes,
            link=setting.link,
            gpus=self._gpus(role),
        )


def needed(point: GridPoint, held: int) -> int:
    """Return the pages of `held` tokens that a cache must have for a point, the padding's included."""
    return int(pages_needed(point.work(), held).sum()) + 1


def pool_pages(
    points: Mapping[str, Sequence[GridPoint]], shapes: Mapping[str, TransformerShape], setting: Setting
) -> dict[str, int]:
    """Return the pages of each role's cache: as many as its largest point needs, or its part of the memory.

    Where memory is short, every cache has room for the same number of tokens, or for all that its points need.

    Raises
    ------
    SpecsimError
        When not even the smallest point of a role fits.
    """
    held = page_tokens(setting.kernel, setting.device)
    needs = {role: sorted(needed(point, held) for point in every) for role, every in points.items()}
    page_bytes = {role: held * shape.kv_values_per_token * setting.dtype.itemsize for role, shape in shapes.items()}
    widest = max(max(shape.vocab, 3 * shape.ffn) for shape in shapes.values())
    activations = ACTIVATION_COPIES * widest * setting.grid.max_batched_tokens * setting.dtype.itemsize // 2
    room = MEMORY_SHARE[setting.device.type] * free_bytes(setting.device) - activations
    pages: dict[str, int] = {}
    for role in sorted(needs, key=lambda role: needs[role][-1]):
        rest = sum(page_bytes[each] for each in needs if each not in pages)
        pages[role] = max(min(needs[role][-1], int(room // rest)), 0)
        room -= pages[role] * page_bytes[role]
        if pages[role] < needs[role][0]:
            raise SpecsimError(
                f"{shapes[role].name}: too little memory on {setting.device}: its weights leave room for "
                f"{pages[role]} pages of KV cache; expected {needs[role][0]} at least"
            )
    return pages
