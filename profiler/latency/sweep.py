"""A sweep over target and draft: each point is measured once and stored at once; the time left is shown."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from profiler.latency.grids import Grid
from profiler.latency.hardware import Clocks
from profiler.latency.measure import Bench, modes_of
from profiler.latency.points import Point
from profiler.latency.samples import SampleFile
from profiler.latency.timers import Effort, Timer
from profiler.models.random_weights import random_model, shape_of, shard
from profiler.models.shapes import ModelShape, named_shape
from profiler.passes.attention import page_tokens
from profiler.passes.attention_check import checked_error
from profiler.passes.memory import free_bytes, give_back, memory_for
from profiler.passes.pages import pages_needed
from profiler.passes.paths import forward_of
from specsim.errors import SpecsimError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

ROLES = ("target", "draft")
# A pass's other memory is subtracted too: with 0.94 every point of the full grid fits beside 32B weights in 141 GB.
MEMORY_SHARE = {"cpu": 0.5, "cuda": 0.94}
ACTIVATION_COPIES = 6


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


@dataclass(frozen=True, slots=True)
class Left:
    """A point, and the modes in which it has not been measured."""

    point: Point
    modes: tuple[str, ...]


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


def pool_pages(points: Sequence[Point], shape: ModelShape, setting: Setting) -> int:
    """Return the pages of the cache: as many as the largest point needs, or as fit the memory.

    Raises
    ------
    SpecsimError
        When not even one request of the smallest point fits.
    """
    held = page_tokens(setting.kernel, setting.device)
    wanted = max(int(pages_needed(point.work(), held).sum()) for point in points) + 1
    page_bytes = held * shape.layers * shape.kv_heads * shape.head_dim * 2 * setting.dtype.itemsize
    widest = max(shape.vocab, 3 * shape.ffn) * setting.grid.max_batched_tokens * setting.dtype.itemsize
    share = MEMORY_SHARE[setting.device.type] * free_bytes(setting.device)
    room = int((share - ACTIVATION_COPIES * widest // 2) // page_bytes)
    least = min(int(pages_needed(point.work(), held).sum()) for point in points) + 1
    if room < least:
        raise SpecsimError(
            f"{shape.name}: too little memory on {setting.device}: its weights leave room for {max(room, 0)} pages "
            f"of KV cache; expected {least} at least"
        )
    return min(wanted, room)


def left_to_do(role: str, grid: Grid, timer: Timer, done: SampleFile) -> list[Left]:
    """Return the points of a role that are not in the samples."""
    names = done.names
    lacking = (
        (point, tuple(mode for mode in modes_of(timer, point) if (role, point.key, mode) not in names))
        for point in grid.passes(role)
    )
    return [Left(point, modes) for point, modes in lacking if modes]


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
    }


@dataclass(frozen=True, slots=True)
class Sweep:
    """A sweep; after `deadline` (of `clock`) it begins no further point."""

    subjects: dict[str, Subject]
    setting: Setting
    timer: Timer
    file: SampleFile
    deadline: float = float("inf")
    clock: Callable[[], float] = time.monotonic

    def run(self) -> bool:
        """Measure the missing points, at least one; return whether none is left."""
        started = False
        for role in ROLES:
            work = left_to_do(role, self.setting.grid, self.timer, self.file)
            if not work:
                continue
            if started and self.clock() > self.deadline:
                return False
            started = True
            try:
                finished = self._measure(role, work)
            finally:
                self.file.write()
                release(self.setting.device)
            if not finished:
                return False
        return True

    def _measure(self, role: str, work: list[Left]) -> bool:
        bench = self._bench(role, [left.point for left in work])
        for done, left in enumerate(_shown(work, f"{role} {bench.whole.name}"), start=1):
            try:
                for sample in bench.samples(left.point, left.modes):
                    self.file.add(sample)
            except RuntimeError as error:
                told = f"{role} {left.point.key}: {first_line(error)}; what was measured is kept in {self.file.path}"
                raise SpecsimError(told) from error
            if self.clock() > self.deadline and done < len(work):
                return False
        return True

    def _bench(self, role: str, points: Sequence[Point]) -> Bench:
        setting = self.setting
        gpus = setting.tp if role == "target" else 1
        subject = self.subjects[role]
        model, part, whole = build(subject, gpus, setting)
        weights = weights_bytes(subject, model, whole)
        self.file.facts.setdefault("models", {})[role] = sizes(whole, weights, self.subjects, role, setting.dtype)
        error = checked_error(
            setting.kernel, part.heads, part.kv_heads, part.head_dim, device=setting.device, dtype=setting.dtype
        )
        self.file.facts.setdefault("attention_error", {})[role] = error
        with memory_for(f"the cache of {role} {whole.name}", setting.device):
            forward = forward_of(setting.passes, model, part, pool_pages(points, part, setting), setting.kernel)
            forward.cache.fill(seed=1)
        return Bench(
            role=role,
            forward=forward,
            whole=whole,
            timer=self.timer,
            clocks=Clocks(setting.device),
            effort=Effort(setting.grid.repeats, setting.grid.seconds),
            cache_bytes=setting.cache_bytes,
            link=setting.link,
            gpus=gpus,
        )


def release(device: torch.device) -> None:
    """Free a model's memory before the next is built; errors of a failed device are ignored."""
    if device.type == "cuda":
        torch._dynamo.reset()
    with suppress(RuntimeError):
        give_back(device)


def _shown(work: list[Left], label: str) -> Iterator[Left]:
    from tqdm import tqdm

    yield from tqdm(work, desc=label, unit="point", disable=None)
