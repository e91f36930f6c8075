"""The sizes of the models in shipped profiles, from their published configurations."""

from __future__ import annotations

from dataclasses import dataclass, replace

from specsim.errors import SpecsimError, nearest


@dataclass(frozen=True, slots=True)
class TransformerShape:
    """A decoder-only transformer with gated MLP and RMSNorm.

    `weight_bytes` are those of a weight of the layers and `cache_bytes` those of a cached value: 2, or 1 in FP8.
    Embeddings, head and norms have 16 bits. `max_model_len` are the tokens of its context; None: not known.
    """

    name: str
    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    tied: bool = False
    qkv_bias: bool = False
    weight_bytes: int = 2
    cache_bytes: int = 2
    max_model_len: int | None = None

    @property
    def parameters(self) -> int:
        """Number of weights, embeddings and norms included."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        attention = self.hidden * qkv + self.heads * self.head_dim * self.hidden
        layer = attention + 3 * self.hidden * self.ffn + 2 * self.hidden + (qkv if self.qkv_bias else 0)
        embeddings = self.vocab * self.hidden * (1 if self.tied else 2)
        return self.layers * layer + embeddings + self.hidden

    @property
    def nonembedding_bytes(self) -> int:
        """Bytes of the layers' matrices, which every batched token multiplies, over all GPUs."""
        qkv = (self.heads + 2 * self.kv_heads) * self.head_dim
        products = self.hidden * (qkv + self.heads * self.head_dim + 3 * self.ffn)
        return self.weight_bytes * self.layers * products

    @property
    def weights_bytes(self) -> int:
        """Bytes of the weights, summed over GPUs."""
        layers = self.nonembedding_bytes
        return 2 * (self.parameters - layers // self.weight_bytes) + layers

    @property
    def kv_values_per_token(self) -> int:
        """Numbers that one token holds in the cache: keys and values of every layer, summed over GPUs."""
        return self.layers * self.kv_heads * self.head_dim * 2

    @property
    def kv_bytes_per_token(self) -> int:
        """Bytes that one token holds in the cache."""
        return self.kv_values_per_token * self.cache_bytes


def widths(shape: TransformerShape) -> dict[str, int]:
    """Return what heads are composed from, by the names of a configuration on the Hugging Face hub."""
    return {"num_hidden_layers": shape.layers, "hidden_size": shape.hidden, "vocab_size": shape.vocab}


LLAMA_70B = TransformerShape("Llama-3.1-70B", 80, 8192, 64, 8, 128, 28672, 128256, max_model_len=131072)
LLAMA_70B_FP8 = replace(LLAMA_70B, weight_bytes=1)
LLAMA_8B = TransformerShape("Llama-3.1-8B", 32, 4096, 32, 8, 128, 14336, 128256, max_model_len=131072)
LLAMA_1B = TransformerShape("Llama-3.2-1B", 16, 2048, 32, 8, 64, 8192, 128256, tied=True, max_model_len=131072)
QWEN_32B = TransformerShape("Qwen2.5-32B", 64, 5120, 40, 8, 128, 27648, 152064, qkv_bias=True, max_model_len=32768)
QWEN_15B = TransformerShape(
    "Qwen2.5-1.5B", 28, 1536, 12, 2, 128, 8960, 151936, tied=True, qkv_bias=True, max_model_len=32768
)
QWEN_05B = TransformerShape(
    "Qwen2.5-0.5B", 24, 896, 14, 2, 64, 4864, 151936, tied=True, qkv_bias=True, max_model_len=32768
)
QWEN3_32B = TransformerShape("Qwen3-32B", 64, 5120, 64, 8, 128, 25600, 151936, max_model_len=40960)
QWEN3_06B = TransformerShape("Qwen3-0.6B", 28, 1024, 16, 8, 128, 3072, 151936, tied=True, max_model_len=40960)
VICUNA_7B = TransformerShape("Vicuna-7B", 32, 4096, 32, 32, 128, 11008, 32000, max_model_len=4096)
LLAMA_160M = TransformerShape("Llama-160M", 12, 768, 12, 12, 64, 3072, 32000, max_model_len=2048)
LLAMA_68M = TransformerShape("Llama-68M", 2, 768, 12, 12, 64, 3072, 32000, max_model_len=2048)
CODELLAMA_34B = TransformerShape("CodeLlama-34B", 48, 8192, 64, 8, 128, 22016, 32000, max_model_len=16384)
SMOLLM2_135M = TransformerShape("SmolLM2-135M", 30, 576, 9, 3, 64, 1536, 49152, tied=True, max_model_len=8192)
TINY_LLAMA = TransformerShape("tiny-llama", 2, 64, 4, 2, 16, 128, 512, tied=True)

BY_NAME = {
    "llama-3.1-70b": LLAMA_70B,
    "llama-3.1-8b": LLAMA_8B,
    "llama-3.2-1b": LLAMA_1B,
    "qwen2.5-32b": QWEN_32B,
    "qwen2.5-1.5b": QWEN_15B,
    "qwen2.5-0.5b": QWEN_05B,
    "smollm2-135m": SMOLLM2_135M,
    "tiny-llama": TINY_LLAMA,
}


def named_shape(name: str) -> TransformerShape:
    """Return the shape of that name; ``NAME-skipN`` is the shape without N layers, for a model that drafts for itself.

    Raises
    ------
    SpecsimError
        When there is none.
    """
    base, _, skipped = name.partition("-skip")
    if base not in BY_NAME:
        raise SpecsimError(f"random weights {name!r}: unknown shape{nearest(base, BY_NAME)}")
    shape = BY_NAME[base]
    if not skipped:
        return shape
    if not skipped.isdigit() or not 0 < int(skipped) < shape.layers:
        raise SpecsimError(f"random weights {name!r}: expected -skipN with N from 1 to {shape.layers - 1} layers")
    return replace(shape, name=f"{shape.name} less {skipped} layers", layers=shape.layers - int(skipped))
