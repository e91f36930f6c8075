"""One packed forward pass with few kernels, as engines run it: joined products and fused small operations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch

from profiler.attention.operations import Plain
from profiler.attention.pages import give_back
from profiler.attention.planning import operations_of
from profiler.models.shapes import TransformerShape
from profiler.passes.forward import Inputs, PackedForward
from specsim.errors import SpecsimError

if TYPE_CHECKING:
    from transformers import PreTrainedModel

MODEL_TYPES = ("llama", "qwen2")
ROTARY_TYPES = ("default", "llama3")


@dataclass(frozen=True, slots=True)
class Product:
    """A matrix (out, in) and its bias (out,), if it has one."""

    weight: torch.Tensor
    bias: torch.Tensor | None

    def __call__(self, given: torch.Tensor) -> torch.Tensor:
        """Return (T, out) of (T, in)."""
        return torch.nn.functional.linear(given, self.weight, self.bias)


@dataclass(frozen=True, slots=True)
class Layer:
    """A decoder layer: two norms (H,), and its products; `qkv` and `gate_up` are two or three matrices in one."""

    before_attention: torch.Tensor
    qkv: Product
    out: Product
    before_mlp: torch.Tensor
    gate_up: Product
    down: Product


@dataclass(frozen=True, slots=True)
class Weights:
    """All weights of a decoder; a tied head is the embedding itself."""

    embedding: torch.Tensor
    layers: tuple[Layer, ...]
    norm: torch.Tensor
    head: Product
    epsilon: float


def refusal(config: Any) -> str | None:
    """Return why a model of that configuration has no fused path, or None if it has one."""
    if config.model_type not in MODEL_TYPES:
        return f"a model of type {config.model_type!r}; expected {' or '.join(MODEL_TYPES)}"
    if config.hidden_act != "silu":
        return f"an MLP with {config.hidden_act!r}; expected 'silu'"
    if (rotary := config.rope_parameters["rope_type"]) not in ROTARY_TYPES:
        return f"rotary positions of type {rotary!r}; expected {' or '.join(ROTARY_TYPES)}"
    if any(kind != "full_attention" for kind in getattr(config, "layer_types", None) or ()):
        return "layers of a sliding window; expected full attention"
    return None


def check_fused(config: Any) -> None:
    """Refuse a model that the fused path would compute otherwise.

    Raises
    ------
    SpecsimError
        Naming what it has and what was expected.
    """
    if why := refusal(config):
        raise SpecsimError(f"passes 'fused' have no {why}, or --passes transformers")


def take_over(model: Any) -> Weights:
    """Return a model's weights; joined weights leave the model layer by layer, so that none are held twice.

    The model cannot run afterwards.

    Raises
    ------
    SpecsimError
        When it is of another family, or a product is not a plain matrix.
    """
    check_fused(model.config)
    decoder = model.model
    with torch.no_grad():
        layers = tuple(_layer(layer) for layer in decoder.layers)
        return Weights(
            embedding=decoder.embed_tokens.weight.detach(),
            layers=layers,
            norm=decoder.norm.weight.detach(),
            head=_product(model.lm_head),
            epsilon=float(model.config.rms_norm_eps),
        )


def _layer(layer: Any) -> Layer:
    attention, mlp = layer.self_attn, layer.mlp
    return Layer(
        before_attention=layer.input_layernorm.weight.detach(),
        qkv=_joined(attention, ("q_proj", "k_proj", "v_proj")),
        out=_product(attention.o_proj),
        before_mlp=layer.post_attention_layernorm.weight.detach(),
        gate_up=_joined(mlp, ("gate_proj", "up_proj")),
        down=_product(mlp.down_proj),
    )


def _product(module: Any) -> Product:
    if type(module) is not torch.nn.Linear:
        raise SpecsimError(
            f"passes 'fused' take plain matrices, not {type(module).__name__}; use --passes transformers"
        )
    return Product(module.weight.detach(), None if module.bias is None else module.bias.detach())


def _joined(owner: Any, names: tuple[str, ...]) -> Product:
    """Return the products of modules of one input as one; the modules leave their owner."""
    products = [_product(getattr(owner, name)) for name in names]
    weight = torch.cat([each.weight for each in products])
    biases = [each.bias for each in products if each.bias is not None]
    for name in names:
        setattr(owner, name, None)
    return Product(weight, torch.cat(biases) if biases else None)


def rotary_table(model: Any, positions: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Return cosine and sine of each position, (positions, head_dim / 2) each, by the model's own rotary module."""
    rotary = model.model.rotary_emb
    device = rotary.inv_freq.device
    with torch.no_grad():
        every = torch.arange(positions, device=device)[None]
        tables = rotary(torch.empty(0, dtype=dtype, device=device), every)
    half = tables[0].shape[-1] // 2
    cosine, sine = (each[0, :, :half].contiguous() for each in tables)
    return cosine, sine


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
        shape: TransformerShape,
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
        """Run a pass; return the logits (l, vocabulary) of the queries that `attention.packing.Packed` names."""
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
