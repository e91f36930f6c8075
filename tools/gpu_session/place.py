"""Where checks run: a device with its timer and the sizes that suit it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from profiler.attention.packing import Work
from profiler.attention.pages import deal, pages_needed
from profiler.attention.planning import page_tokens
from profiler.latency.hardware import Clocks
from profiler.latency.samples import Timing
from profiler.latency.timers import Effort, Timer
from profiler.models.random_weights import random_model
from profiler.models.shapes import TransformerShape
from profiler.passes.forward import Inputs, PackedForward
from profiler.passes.paths import forward_of

HEAD_TOKENS = 512
"""Vocabulary of the models of a few layers, so that their heads weigh nothing."""


@dataclass(frozen=True, slots=True)
class Place:
    """A device, the shape of the pair's target, and of each pass the most runs and seconds."""

    device: torch.device
    dtype: torch.dtype
    timer: Timer
    clocks: Clocks
    shape: TransformerShape
    kernel: str
    effort: Effort

    @property
    def on_gpu(self) -> bool:
        """Whether graphs are captured here."""
        return self.timer.captured is not None

    def timed(self, run: Any, rotate: Any = lambda _: None, timer: Timer | None = None) -> Timing:
        """Time work as a sweep times passes: a replayed graph where there are graphs."""
        chosen = timer or self.timer
        return (chosen.captured or chosen.launched)(run, rotate, self.effort)

    def forward(self, passes: str, layers: int, works: list[Work], vocab: int = HEAD_TOKENS) -> PackedForward:
        """Return a model of the target's shape with so many layers and such a head, with room for these passes."""
        shape = replace(self.shape, layers=layers, vocab=vocab)
        held = page_tokens(self.kernel, self.device)
        pages = max(int(pages_needed(work, held).sum()) for work in works) + 1
        model = random_model(shape, device=self.device, dtype=self.dtype)
        made = forward_of(passes, model, shape, pages, self.kernel)
        made.cache.fill(seed=1)
        return made

    def inputs(self, forward: PackedForward, work: Work) -> Inputs:
        """Return the inputs of a pass over pages dealt at random."""
        rng = np.random.default_rng(0)
        tables = deal(work, forward.cache.shape, rng)
        return forward.inputs(work, tables, rng.integers(0, HEAD_TOKENS, work.batched_tokens))
