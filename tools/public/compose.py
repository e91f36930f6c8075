"""A forward pass's time as the sum of its operators' measured times."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from profiler.models.shapes import ModelShape
from tools.public import sources
from tools.public.operators import AllReduce, Attention, Gemm, Layer


@dataclass(frozen=True, slots=True)
class Alike:
    """`requests` alike: each with `context` cached tokens and `queries` new ones, a tree or a chunk."""

    requests: int
    context: int
    queries: int
    tree: bool = False

    @property
    def pairs(self) -> float:
        """Keys attended to, over all queries; a tree's nodes are counted as a chain's, its upper bound."""
        return self.requests * (self.queries * self.context + self.queries * (self.queries + 1) / 2)


@dataclass(frozen=True, slots=True)
class ComposedPass:
    """One forward pass: its kind, for error figures, and its requests."""

    kind: str
    groups: tuple[Alike, ...]

    @property
    def context_tokens(self) -> int:
        """Cached tokens, once per request."""
        return sum(group.requests * group.context for group in self.groups)

    @property
    def batched_tokens(self) -> int:
        """All query tokens."""
        return sum(group.requests * group.queries for group in self.groups)

    @property
    def attention_pairs(self) -> float:
        """Keys attended to, over all query tokens."""
        return sum(group.pairs for group in self.groups)

    @property
    def logit_rows(self) -> int:
        """Positions whose logits are needed: every tree node, and one for each other request."""
        return sum(group.requests * (group.queries if group.tree else 1) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU type: the names under which the datasets know it, and its memory."""

    name: str
    system: str
    layers: sources.Dataset
    memory_bytes: int = 80 * 2**30


A100 = Gpu("NVIDIA A100-SXM4-80GB", "a100_sxm", sources.LAYER_A100)
H100 = Gpu("NVIDIA H100-SXM5-80GB", "h100_sxm", sources.LAYER_H100)
MEASURED_HEAD_DIM = 128
ELEMENTWISE_MODEL, ELEMENTWISE_HIDDEN, ELEMENTWISE_FFN = "meta-llama/Llama-2-7b-hf", 4096, 11008


@dataclass(frozen=True, slots=True)
class Placement:
    """A model on `gpus` GPUs: the measured layer that has its exact shape, if any, and its attention heads.

    `heads` and `kv_heads` are those of the attention measurement taken for one GPU's share.
    """

    shape: ModelShape
    gpu: Gpu
    gpus: int
    heads: int
    kv_heads: int
    measured_as: str | None = None


class Composer:
    """Composes passes of one placed model; kernels only, no CPU time and no gaps between kernels."""

    def __init__(self, data: Path, placement: Placement) -> None:
        self.shape, self.gpus, self.heads = placement.shape, placement.gpus, placement.heads
        self.exact = placement.measured_as is not None
        gpu = placement.gpu
        model = placement.measured_as or ELEMENTWISE_MODEL
        self.gemm = Gemm.load(data, gpu.system)
        self.attention = Attention.load(data, gpu.system, placement.heads, placement.kv_heads)
        self.layer = Layer.load(data, gpu.layers, model, self.gpus if self.exact else 1)
        self.reduce = AllReduce.load(data, gpu.system, self.gpus) if self.gpus > 1 else None

    def seconds(self, work: ComposedPass) -> float:
        """Return the seconds of GPU time of one forward pass, logits included."""
        tokens = work.batched_tokens
        layer = self.weights(tokens) + self.elementwise(tokens) + self.attend(work.groups)
        once = self.gemm.seconds(work.logit_rows, -(-self.shape.vocab // self.gpus), self.shape.hidden)
        once += self.layer.seconds("emb", tokens if self.exact else self.equivalent(tokens))
        if self.reduce:
            layer += 2 * self.reduce.seconds(tokens * self.shape.hidden)
        return self.shape.layers * layer + once

    def weights(self, tokens: int) -> float:
        """Seconds of the four matrix products of a layer."""
        if self.exact:
            return sum(self.layer.seconds(name, tokens) for name in ("qkv", "out", "up", "down"))
        shape, gpus = self.shape, self.gpus
        width = shape.heads * shape.head_dim // gpus
        qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim // gpus
        ffn = shape.ffn // gpus
        products = ((qkv, shape.hidden), (shape.hidden, width), (2 * ffn, shape.hidden), (shape.hidden, ffn))
        return sum(self.gemm.seconds(tokens, n, k) for n, k in products)

    def elementwise(self, tokens: int) -> float:
        """Seconds of a layer's two norms, rotary embedding, activation and residual additions."""
        wide = tokens if self.exact else self.equivalent(tokens)
        ffn = tokens if self.exact else tokens * self.shape.ffn / self.gpus / ELEMENTWISE_FFN
        norms = 2 * self.layer.seconds("norm", wide)
        return norms + sum(self.layer.seconds(name, wide) for name in ("rope", "add")) + self.layer.seconds("act", ffn)

    def equivalent(self, tokens: int) -> float:
        """Tokens of the model measured for elementwise operators that hold as many values."""
        return tokens * self.shape.hidden / ELEMENTWISE_HIDDEN

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
