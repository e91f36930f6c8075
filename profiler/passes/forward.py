"""One packed forward pass of a transformers model over a paged cache."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from profiler.attention.packing import Ints, PackedRoom, Work, pack
from profiler.attention.pages import CacheShape, PagedCache, PageTables, copy_tensors
from profiler.attention.planning import PAGED, Plan, page_tokens, planner, register
from profiler.models.shapes import TransformerShape
from profiler.passes.graphs import Replays

if TYPE_CHECKING:
    from transformers import PreTrainedModel


@dataclass(eq=False)
class Inputs:
    """The inputs of one pass, on the device: tokens and positions (1, size), slots (size,), logit rows, a plan.

    Their sizes depend only on the `Work`, so that another pass of the same work can be loaded in place.
    """

    tokens: torch.Tensor
    positions: torch.Tensor
    slots: torch.Tensor
    logits: torch.Tensor
    plan: Plan

    def load(self, other: Inputs) -> None:
        """Take over another pass of equal sizes."""
        copy_tensors(self, other)
        self.plan.load(other.plan)


class PackedForward(ABC):
    """A cache, an attention kernel, and the inputs of passes over them, for the weights beside `weight`.

    `replays`, if set, runs the passes that `prepared` finds to come again.
    """

    def __init__(self, weight: torch.Tensor, shape: TransformerShape, pages: int, kernel: str) -> None:
        self.device, self.dtype = weight.device, weight.dtype
        self.shape = shape
        held = page_tokens(kernel, self.device)
        cache = CacheShape(shape.layers, shape.kv_heads, shape.head_dim, pages, held)
        self.cache = PagedCache(cache, device=self.device, dtype=self.dtype)
        self.planner = planner(kernel, cache, shape.heads, device=self.device, dtype=self.dtype)
        self.replays: Replays | None = None

    def inputs(
        self, work: Work, tables: PageTables, tokens: Ints, size: int | None = None, room: PackedRoom | None = None
    ) -> Inputs:
        """Return the inputs of a pass of (T,) tokens, padded to `size`; padding tokens write to the page of no row.

        With `room` their sizes are its own, and logit rows are padded too; see `profiler.attention.planning.Planner`.
        """
        packed = pack(work)
        padded = len(packed.row) if size is None else size
        logits = len(packed.logits) if room is None else room.logits
        return Inputs(
            self._placed(tokens, padded, 0)[None],
            self._placed(packed.position, padded, 0)[None],
            self._placed(tables.query_slots(packed), padded, self.cache.shape.padding_slot),
            self._placed(packed.logits[:logits], logits, 0),
            self.planner.plan(work, packed, tables, padded, room),
        )

    def _placed(self, values: Ints, size: int, padding: int) -> torch.Tensor:
        return torch.from_numpy(np.pad(values, (0, size - len(values)), constant_values=padding)).to(self.device)

    def prepared(self, work: Work, tables: PageTables, tokens: Ints) -> Callable[[], torch.Tensor]:
        """Return what lays the inputs of a pass of (T,) tokens out and runs it; its logits hold until the next pass."""
        replayed = None if self.replays is None else self.replays.prepared(work, tables, tokens)
        return replayed or (lambda: self.run(self.inputs(work, tables, tokens)))

    @abstractmethod
    def run(self, inputs: Inputs) -> torch.Tensor:
        """Run a pass; return the logits (l, vocabulary) of the queries that `attention.packing.Packed` names."""


class Forward(PackedForward):
    """A transformers model as it is, its cache and its attention kernel."""

    def __init__(self, model: PreTrainedModel, shape: TransformerShape, pages: int, kernel: str = "auto") -> None:
        super().__init__(next(model.parameters()), shape, pages, kernel)
        register()
        model.config._attn_implementation = PAGED
        self.model = model

    @torch.inference_mode()
    def run(self, inputs: Inputs) -> torch.Tensor:
        """Run a pass; see `PackedForward`."""
        self.cache.slots = inputs.slots
        cache: Any = self.cache
        out: torch.Tensor = self.model(
            input_ids=inputs.tokens,
            position_ids=inputs.positions,
            past_key_values=cache,
            logits_to_keep=inputs.logits,
            plan=inputs.plan,
        ).logits
        return out[0]
