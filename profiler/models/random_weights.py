"""Models of a known shape with random weights: latency does not depend on the values."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch

from profiler.attention.pages import free_bytes, is_out_of_memory
from profiler.models.shapes import TransformerShape
from specsim.errors import SpecsimError, first_line

if TYPE_CHECKING:
    from transformers import PreTrainedModel

SPREAD = 0.02
MAX_POSITIONS = 131072


def shard(shape: TransformerShape, gpus: int) -> TransformerShape:
    """Return the shape that one of `gpus` GPUs computes: heads, MLP width and vocabulary are divided among them.

    Raises
    ------
    SpecsimError
        When the heads or the MLP cannot be divided.
    """
    if gpus < 1 or shape.heads % gpus or shape.ffn % gpus or (shape.kv_heads % gpus and gpus % shape.kv_heads):
        raise SpecsimError(
            f"tp {gpus}: {shape.name} has {shape.heads} heads, {shape.kv_heads} key heads and an MLP of {shape.ffn}; "
            f"expected a divisor of them"
        )
    return replace(
        shape,
        heads=shape.heads // gpus,
        kv_heads=max(shape.kv_heads // gpus, 1),
        ffn=shape.ffn // gpus,
        vocab=-(-shape.vocab // gpus),
    )


def shape_of(model: PreTrainedModel, name: str) -> TransformerShape:
    """Return the shape of a loaded model.

    Raises
    ------
    SpecsimError
        When it is no decoder-only transformer with gated MLP.
    """
    config: Any = model.config
    try:
        heads = config.num_attention_heads
        return TransformerShape(
            name=name,
            layers=config.num_hidden_layers,
            hidden=config.hidden_size,
            heads=heads,
            kv_heads=getattr(config, "num_key_value_heads", None) or heads,
            head_dim=getattr(config, "head_dim", None) or config.hidden_size // heads,
            ffn=config.intermediate_size,
            vocab=config.vocab_size,
            tied=bool(config.tie_word_embeddings),
            qkv_bias=config.model_type == "qwen2",
            max_model_len=getattr(config, "max_position_embeddings", None),
        )
    except AttributeError as error:
        raise SpecsimError(f"model {name!r}: cannot be profiled: {first_line(error)}") from None


def random_model(
    shape: TransformerShape, *, device: torch.device, dtype: torch.dtype, seed: int = 0
) -> PreTrainedModel:
    """Return a model of that shape in evaluation mode; its weights are drawn on the device, in `dtype`.

    Raises
    ------
    SpecsimError
        When it does not fit.
    """
    size = shape.parameters * dtype.itemsize
    refusal = SpecsimError(f"{shape.name}: {size / 1e9:.1f} GB of weights do not fit on {device}: too little memory")
    if size > free_bytes(device):
        raise refusal
    try:
        with torch.device("meta"):
            model = _empty(shape, dtype)
        model.to_empty(device=device)
        model.tie_weights()
        _draw(model, seed)
    except (MemoryError, RuntimeError) as error:
        if not is_out_of_memory(error):
            raise
        raise refusal from None
    rotary: Any = model.model.rotary_emb
    model.model.rotary_emb = type(rotary)(config=model.config).to(device)
    model.eval()
    return model


def _empty(shape: TransformerShape, dtype: torch.dtype) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    before = torch.get_default_dtype()
    kind, config = (Qwen2ForCausalLM, Qwen2Config) if shape.qkv_bias else (LlamaForCausalLM, LlamaConfig)
    settings = config(
        vocab_size=shape.vocab,
        hidden_size=shape.hidden,
        intermediate_size=shape.ffn,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.kv_heads,
        head_dim=shape.head_dim,
        max_position_embeddings=shape.max_model_len or MAX_POSITIONS,
        tie_word_embeddings=shape.tied,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
    )
    try:
        torch.set_default_dtype(dtype)
        return kind(settings)
    finally:
        torch.set_default_dtype(before)


def _draw(model: torch.nn.Module, seed: int) -> None:
    """Draw the weights: norms are 1 and others small, so that activations stay finite in 16 bits."""
    generator = torch.Generator(device=next(model.parameters()).device).manual_seed(seed)
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if "norm" in name:
                weights.fill_(1.0)
            else:
                weights.normal_(0.0, SPREAD, generator=generator)
