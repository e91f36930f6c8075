"""The models of a sweep and its settings: what is built, and what the profile says of its sizes."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from profiler.latency.grids import Grid
from profiler.models.random_weights import random_model, shape_of, shard
from profiler.models.shapes import ModelShape, named_shape
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(frozen=True, slots=True)
class Subject:
    """A model to be profiled: a name to load, or a shape for random weights."""

    name: str
    random: bool

    @property
    def shape(self) -> ModelShape:
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


def build(subject: Subject, gpus: int, setting: Setting) -> tuple[PreTrainedModel, ModelShape, ModelShape]:
    """Return a model ready to run, its own shape, and its shape over all GPUs.

    Raises
    ------
    SpecsimError
        When the model is unknown, does not fit, or is loaded and to be sharded.
    """
    if subject.random:
        whole = subject.shape
        part = shard(whole, gpus)
        return random_model(part, device=setting.device, dtype=setting.dtype), part, whole
    check_shards(subject, gpus)
    from profiler.models.loading import load_model

    model = load_model(subject.name, device=str(setting.device), dtype=str(setting.dtype).removeprefix("torch."))
    whole = shape_of(model, Path(subject.name).name if Path(subject.name).exists() else subject.name)
    return model, whole, whole


def weights_bytes(subject: Subject, model: PreTrainedModel, whole: ModelShape) -> int:
    """Return the bytes of a model's weights over all GPUs; of a loaded model as they are, whatever its layers."""
    if not subject.random:
        return sum(each.numel() * each.element_size() for each in model.parameters())
    return int(whole.parameters * model.dtype.itemsize)


def sizes(
    shape: ModelShape, weights: int, subjects: dict[str, Subject], role: str, dtype: torch.dtype
) -> dict[str, Any]:
    """Return a model's sizes for the profile; a draft made of the target's layers adds no weights."""
    shared = role == "draft" and subjects["draft"].name.startswith(f"{subjects['target'].name}-skip")
    return {
        "name": shape.name,
        "kv_bytes_per_token": shape.layers * shape.kv_heads * shape.head_dim * 2 * dtype.itemsize,
        "weights_bytes": 0 if shared else weights,
        **({"max_model_len": shape.max_model_len} if role == "target" and shape.max_model_len else {}),
    }
