"""The profiles that ship, and their parts."""

from __future__ import annotations

from dataclasses import dataclass, replace

from profiler.models import shapes
from tools.public.compose import A100, H100, H200, Placement
from tools.public.sources import UNPUBLISHED


@dataclass(frozen=True, slots=True)
class Recipe:
    """A composed profile: two placed models, the engine whose CPU time the target is given, and notes.

    `engine` is the measured model and its tensor parallelism in the CPU overhead table; `splitwise` the
    hardware whose whole passes of the same architecture are the independent check, where there are any;
    `acceptance` the shipped one of this very pair, where there is one.
    """

    name: str
    description: str
    target: Placement
    draft: Placement
    engine: tuple[str, int]
    notes: tuple[str, ...] = ()
    splitwise: str | None = None
    acceptance: str | None = None


@dataclass(frozen=True, slots=True)
class Artifact:
    """AdaServe's own table: its key in the artifact's settings, and what the paper says of the draft."""

    name: str
    description: str
    settings: str
    gpus: int
    target: shapes.TransformerShape
    draft: Placement
    draft_floor_s: float
    acceptance: str


DRAFT_ENGINE = ("microsoft/phi-2", 1)
ENGINE_70B = ("meta-llama/Llama-2-70b-hf", 4)
ENGINE_7B = ("meta-llama/Llama-2-7b-hf", 1)
ENGINE_34B = ("codellama/CodeLlama-34b-Instruct-hf", 2)

DRAFT_HEADS = "draft attention: 64-wide heads are taken as half as many of 128, the width measured"
A100_HOST = "CPU time per pass: measured on an A100 host, taken over"
H100_ELEMENTWISE = "elementwise kernels: measured on an H100, taken over"
FP8 = (
    "target: FP8 weights and activations in the layers' products, 16-bit embeddings, head and cache; the kernels that "
    "quantise activations are fused into those before them"
)
MHA = "target decode attention, 32/32 heads: TensorRT-LLM's, since the engine's table ends at 8 KV heads"

LLAMA_1B_A100 = Placement(shapes.LLAMA_1B, A100, 1, 16, 4)
LLAMA_1B_H100 = Placement(shapes.LLAMA_1B, H100, 1, 16, 4)
LLAMA_1B_H200 = Placement(shapes.LLAMA_1B, H200, 1, 16, 4)
QWEN_05B_A100 = Placement(shapes.QWEN_05B, A100, 1, 8, 1)
VICUNA_A100 = Placement(shapes.VICUNA_7B, A100, 1, 32, 32)

RECIPES = (
    Recipe(
        "llama70b_1b_4xa100",
        "Llama-3.1-70B (TP4) + Llama-3.2-1B on 4 x A100-80GB",
        Placement(shapes.LLAMA_70B, A100, 4, 16, 2),
        LLAMA_1B_A100,
        ENGINE_70B,
        (DRAFT_HEADS,),
        "a100-80gb",
        "llama70b_1b",
    ),
    Recipe(
        "llama70b_1b_4xh100",
        "Llama-3.1-70B (TP4) + Llama-3.2-1B on 4 x H100-80GB",
        Placement(shapes.LLAMA_70B, H100, 4, 16, 2),
        LLAMA_1B_H100,
        ENGINE_70B,
        (DRAFT_HEADS, A100_HOST),
        "h100-80gb-pcap",
        "llama70b_1b",
    ),
    Recipe(
        "llama70b_1b_4xh200",
        "Llama-3.1-70B (TP4) + Llama-3.2-1B on 4 x H200",
        Placement(shapes.LLAMA_70B, H200, 4, 16, 2),
        LLAMA_1B_H200,
        ENGINE_70B,
        (DRAFT_HEADS, A100_HOST, H100_ELEMENTWISE),
        acceptance="llama70b_1b",
    ),
    Recipe(
        "llama70b_fp8_1b_4xh100",
        "Llama-3.1-70B in FP8 (TP4) + Llama-3.2-1B in 16 bits on 4 x H100-80GB",
        Placement(shapes.LLAMA_70B_FP8, H100, 4, 16, 2),
        LLAMA_1B_H100,
        ENGINE_70B,
        (FP8, DRAFT_HEADS, A100_HOST),
        acceptance="llama70b_1b",
    ),
    Recipe(
        "qwen32b_05b_2xa100",
        "Qwen2.5-32B (TP2) + Qwen2.5-0.5B on 2 x A100-80GB",
        Placement(shapes.QWEN_32B, A100, 2, 16, 4),
        QWEN_05B_A100,
        ENGINE_34B,
        (
            "target attention: 20 query and 4 KV heads per GPU read off 16/4, products scaled by 20/16",
            f"{DRAFT_HEADS}: 7/1 read off 8/1, products scaled by 7/8",
        ),
        acceptance="qwen32b_05b",
    ),
    Recipe(
        "qwen3_32b_06b_2xh100",
        "Qwen3-32B (TP2) + Qwen3-0.6B on 2 x H100-80GB",
        Placement(shapes.QWEN3_32B, H100, 2, 32, 4),
        Placement(shapes.QWEN3_06B, H100, 1, 16, 8),
        ENGINE_34B,
        ("the norms of queries and keys are left out: no public table has them", A100_HOST),
    ),
    Recipe(
        "qwen1_5b_05b_h100",
        "Qwen2.5-Coder-1.5B + Qwen2.5-Coder-0.5B on 1 x H100-80GB",
        Placement(replace(shapes.QWEN_15B, name="Qwen2.5-Coder-1.5B"), H100, 1, 16, 2),
        Placement(replace(shapes.QWEN_05B, name="Qwen2.5-Coder-0.5B"), H100, 1, 8, 1),
        DRAFT_ENGINE,
        (
            "target attention: 12 query and 2 KV heads read off 16/2, products scaled by 12/16",
            f"{DRAFT_HEADS}: 7/1 read off 8/1, products scaled by 7/8",
            "the Coder models have the sizes of the others",
            A100_HOST,
        ),
        acceptance="qwen1_5b_05b_t07",
    ),
    Recipe(
        "llama8b_1b_a100",
        "Llama-3.1-8B + Llama-3.2-1B on 1 x A100-80GB",
        Placement(shapes.LLAMA_8B, A100, 1, 32, 8),
        LLAMA_1B_A100,
        ENGINE_7B,
        (DRAFT_HEADS,),
    ),
    Recipe(
        "llama8b_1b_h100",
        "Llama-3.1-8B + Llama-3.2-1B on 1 x H100-80GB",
        Placement(shapes.LLAMA_8B, H100, 1, 32, 8),
        LLAMA_1B_H100,
        ENGINE_7B,
        (DRAFT_HEADS, A100_HOST),
    ),
    Recipe(
        "llama8b_1b_h200",
        "Llama-3.1-8B + Llama-3.2-1B on 1 x H200",
        Placement(shapes.LLAMA_8B, H200, 1, 32, 8),
        LLAMA_1B_H200,
        ENGINE_7B,
        (DRAFT_HEADS, A100_HOST, H100_ELEMENTWISE),
    ),
    Recipe(
        "vicuna7b_160m_a100",
        "Vicuna-7B + Llama-160M on 1 x A100-80GB",
        VICUNA_A100,
        Placement(shapes.LLAMA_160M, A100, 1, 8, 8),
        ENGINE_7B,
        (MHA, f"{DRAFT_HEADS}: 6/6 read off 8/8, products scaled by 6/8"),
    ),
    Recipe(
        "vicuna7b_68m_a100",
        "Vicuna-7B + Llama-68M on 1 x A100-80GB",
        VICUNA_A100,
        Placement(shapes.LLAMA_68M, A100, 1, 8, 8),
        ENGINE_7B,
        (MHA, f"{DRAFT_HEADS}: 6/6 read off 8/8, products scaled by 6/8"),
    ),
)
ARTIFACTS = (
    Artifact(
        "adaserve_artifact_llama70b",
        "AdaServe's artifact: its own table for Llama-3.1-70B + 1B on 8 x A100-40GB",
        "llama",
        8,
        shapes.LLAMA_70B,
        LLAMA_1B_A100,
        0.005,
        "llama70b_1b",
    ),
    Artifact(
        "adaserve_artifact_qwen32b",
        "AdaServe's artifact: its own table for Qwen2.5-32B + 0.5B on 4 x A100-40GB",
        "qwen",
        4,
        shapes.QWEN_32B,
        QWEN_05B_A100,
        0.004,
        "qwen32b_05b",
    ),
)
ASSUMPTIONS = (
    "GPU time is the sum of measured kernels: CUDA graphs, no gaps between kernels, nothing overlapped",
    "kernels of vLLM: GEMMs, attention, and its captured all-reduce; NCCL's from 8 MiB on",
    "a GEMM between measured sizes is interpolated in log n, log k, log m; beyond them in proportion",
    "elementwise kernels: those of Llama-2-7B at as many values per GPU; residual additions are fused into the norms",
    "tree attention, not measured: max(reading the cache once, all pairs at a 4,096-token prompt's rate)",
    "a chunk behind a cached context: the whole prompt's attention less the context's own",
    "logits: of every tree node, else of one position per request",
    "overhead_s: median CPU time per pass at batch 8, the smallest measured; of a draft sampling and inputs (Phi-2)",
    "the draft runs on one of the target's GPUs while the others wait",
    UNPUBLISHED,
    "16-bit weights and cache unless stated; nothing is kept for activations beyond the 0.1 of memory left unused",
)
