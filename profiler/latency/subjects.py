"""The models of a sweep and its settings: what is built, and what the profile says of its sizes."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from profiler.latency.grids import Grid
from profiler.latency.hardware import ceilings, hardware
from profiler.latency.timers import Timer
from profiler.models.loading import versions
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


def sizes(shape: ModelShape, weights: int, dtype: torch.dtype) -> dict[str, Any]:
    """Return a model's sizes for the profile, given the bytes that its weights add."""
    return {
        "name": shape.name,
        "kv_bytes_per_token": shape.layers * shape.kv_heads * shape.head_dim * 2 * dtype.itemsize,
        "weights_bytes": weights,
    }


def shared_facts(
    target: str, draft: str, grid: Grid, kernel: str, passes: str, *, device: torch.device, dtype: torch.dtype
) -> dict[str, Any]:
    """Return what all samples of a pair on a device share: names, kernels, machine, versions, and points planned."""
    about = hardware(device)
    return {
        "target": target,
        "draft": draft,
        "tp": 1,
        "link": None,
        "device": device.type,
        "dtype": str(dtype).removeprefix("torch."),
        "attention": kernel,
        "passes": passes,
        "hardware": about.name,
        "driver": about.driver,
        "host": about.host,
        "memory_bytes": about.memory_bytes,
        **versions(),
        "planned": {role: len(grid.passes(role)) for role in ("target", "draft")},
    }


def ceiling_facts(timer: Timer, *, device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Return the measured ceilings of a device as facts."""
    found = ceilings(timer, device=device, dtype=dtype)
    return {**asdict(found), "knee_tokens": found.knee_tokens(dtype.itemsize)}
