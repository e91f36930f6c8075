"""A forward pass's time as the sum of its operators' measured times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from profiler.compose.passes import Alike, ComposedPass
from profiler.models.shapes import VICUNA_7B, TransformerShape
from tools.public import sources
from tools.public.operators import AllReduce, Attention, ElementwiseLayer, Gemm


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU type: its engine's kernels, its elementwise kernels, and its memory."""

    name: str
    kernels: sources.Kernels
    elementwise: sources.Dataset
    memory_bytes: int = 80 * 2**30


A100 = Gpu("NVIDIA A100-SXM4-80GB", sources.Kernels.of_vllm("a100", "0.14.0"), sources.LAYER_A100)
H100 = Gpu("NVIDIA H100-SXM5-80GB", sources.Kernels.of_vllm("h100", "0.24.0"), sources.LAYER_H100)
H200_KERNELS = sources.Kernels.of_vllm("h200", "0.24.0", sources.OWN_FOLDER)
H200 = Gpu("NVIDIA H200", H200_KERNELS, sources.LAYER_H100, 141 * 2**30)
MEASURED_HEAD_DIM = 128
ELEMENTWISE = VICUNA_7B
"""The shape whose elementwise kernels are measured on every GPU type: Llama-2-7B's."""
ELEMENTWISE_MODEL = "meta-llama/Llama-2-7b-hf"
GEMM_DTYPES = {1: "fp8", 2: "bfloat16"}
"""Type of a layer's products by the bytes of a weight, and of the cache by those of a value."""


@dataclass(frozen=True, slots=True)
class Placement:
    """A model on `gpus` GPUs; `heads` and `kv_heads` are those of the attention measured for one GPU's share."""

    shape: TransformerShape
    gpu: Gpu
    gpus: int
    heads: int
    kv_heads: int


class Composer:
    """Composes passes of one placed model; kernels only, no CPU time and no gaps between kernels."""

    def __init__(self, data: Path, placement: Placement) -> None:
        self.shape, self.gpus, self.heads = placement.shape, placement.gpus, placement.heads
        gpu, kernels = placement.gpu, placement.gpu.kernels
        cache = GEMM_DTYPES[self.shape.cache_bytes]
        self.gemm = Gemm.load(data, kernels.gemm, GEMM_DTYPES[self.shape.weight_bytes])
        self.head = Gemm.load(data, kernels.gemm, GEMM_DTYPES[2])
        self.attention = Attention.load(data, kernels, placement.heads, placement.kv_heads, cache)
        self.layer = ElementwiseLayer.load(data, gpu.elementwise, ELEMENTWISE_MODEL, 1)
        self.reduce = AllReduce.load(data, kernels.all_reduce, self.gpus) if self.gpus > 1 else None

    def seconds(self, work: ComposedPass) -> float:
        """Return the seconds of GPU time of one forward pass, logits included."""
        tokens = work.batched_tokens
        layer = self.weights(tokens) + self.elementwise(tokens) + self.attend(work.groups)
        once = self.head.seconds(work.logit_rows, -(-self.shape.vocab // self.gpus), self.shape.hidden)
        once += self.layer.seconds("emb", tokens * self.shape.hidden / ELEMENTWISE.hidden)
        if self.reduce:
            layer += 2 * self.reduce.seconds(tokens * self.shape.hidden)
        return self.shape.layers * layer + once

    def weights(self, tokens: int) -> float:
        """Seconds of the four matrix products of a layer."""
        shape, gpus = self.shape, self.gpus
        width = shape.heads * shape.head_dim // gpus
        qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim // gpus
        ffn = shape.ffn // gpus
        products = ((qkv, shape.hidden), (shape.hidden, width), (2 * ffn, shape.hidden), (shape.hidden, ffn))
        return sum(self.gemm.seconds(tokens, n, k) for n, k in products)

    def elementwise(self, tokens: int) -> float:
        """Seconds of a layer's two norms, rotary embedding and activation, each at as many values as measured.

        The residual additions have no kernel of their own: engines fuse them into the norms.
        """
        shape, model = self.shape, ELEMENTWISE
        rotated = (shape.heads + shape.kv_heads) * shape.head_dim / self.gpus
        shares = {
            "norm": shape.hidden / model.hidden,
            "rope": rotated / ((model.heads + model.kv_heads) * model.head_dim),
            "act": shape.ffn / self.gpus / model.ffn,
        }
        norm, rope, act = (self.layer.seconds(name, tokens * share) for name, share in shares.items())
        return 2 * norm + rope + act

    @property
    def head_share(self) -> float:
        """Query heads of one GPU's share, in heads of 128 dimensions, over those of the measurement."""
        return self.shape.heads * self.shape.head_dim / MEASURED_HEAD_DIM / self.gpus / self.heads

    def attend(self, groups: Iterable[Alike]) -> float:
        """Seconds of a layer's attention: each group's in turn.

        A decode or tree group reads its cache once (measured) and multiplies at a prompt's rate: the slower
        of both, since no public table measures trees.
        """
        total = 0.0
        for group in groups:
            if group.queries > 1 and not group.tree:
                total += group.requests * self.attention.chunk(group.queries, group.context) * self.head_share
                continue
            reading = self.attention.decode(group.requests, group.context)
            products = group.pairs * self.attention.pair_s * self.head_share
            total += max(reading, products) if group.tree else reading
        return total
