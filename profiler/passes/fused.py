"""One packed forward pass with few kernels, as engines run it: joined products and fused small operations."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch

from profiler.models.shapes import ModelShape
from profiler.passes.forward import Inputs, PackedForward
from profiler.passes.fused_weights import Layer, rotary_table, take_over
from profiler.passes.memory import give_back
from profiler.passes.operations import Plain, operations_of

if TYPE_CHECKING:
    from transformers import PreTrainedModel


class Fused(PackedForward):
    """A Llama or Qwen2 decoder, its cache and its attention kernel; it takes over the model's weights.

    Raises
    ------
    SpecsimError
        When the model is of another family, or Triton is missing.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        shape: ModelShape,
        pages: int,
        kernel: str = "auto",
        operations: Plain | None = None,
    ) -> None:
        # The cache comes last, since joining a layer's weights needs memory.
        self._weights = take_over(model)
        give_back(self._weights.embedding.device)
        super().__init__(self._weights.embedding, shape, pages, kernel)
        self.operations = operations or operations_of(self.device)
        # No row is longer than the cache.
        self._rotary = rotary_table(model, self.cache.shape.slots, self.dtype)

    @torch.inference_mode()
    def run(self, inputs: Inputs) -> torch.Tensor:
        """Run a pass; return the logits (l, vocabulary) of the queries that `profiler.passes.packing.Packed` names."""
        weights, norm = self._weights, self.operations.add_norm
        hidden = torch.nn.functional.embedding(inputs.tokens[0], weights.embedding)
        residual: torch.Tensor | None = None
        for number, layer in enumerate(weights.layers):
            hidden, residual = norm(hidden, residual, layer.before_attention, weights.epsilon)
            hidden = layer.out(self._attended(number, layer, hidden, inputs))
            hidden, residual = norm(hidden, residual, layer.before_mlp, weights.epsilon)
            hidden = layer.down(self.operations.silu_multiply(layer.gate_up(hidden)))
        hidden, _ = norm(hidden, residual, weights.norm, weights.epsilon)
        return weights.head(hidden.index_select(0, inputs.logits))

    def _attended(self, number: int, layer: Layer, hidden: torch.Tensor, inputs: Inputs) -> torch.Tensor:
        """Return (T, heads * head_dim); the keys and values of the layer's pools now hold the pass's own."""
        pools = self.cache.keys[number], self.cache.values[number]
        query = self.operations.rotary_write(layer.qkv(hidden), inputs.positions[0], inputs.slots, self._rotary, pools)
        return inputs.plan(query, *pools, self.shape.head_dim**-0.5).flatten(1)
