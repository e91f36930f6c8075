"""The memory of a GPU that engines leave to caches: each by its own rule, with constants that were logged."""

from __future__ import annotations

from typing import TYPE_CHECKING

from specsim.latency.model import MEMORY_SHARE

if TYPE_CHECKING:
    from profiler.compose.operators import Operators

GIB = 2**30
SEEN_GIB = {
    "a100_sxm": 79.25,
    "h100_sxm": 79.19,
    "h200_sxm": 139.81,
    "b200_sxm": 178.35,
    "rtx_pro_6000_server": 94.97,
}
"""Memory of a GPU as CUDA tells it; of others the library's, of the catalogue.

H100: llm-d-planner's report; B200: pytorch/ao's pull request 4002; RTX PRO 6000: antirez/ds4's issue 563; A100, H200:
PyTorch's messages ("a total capacity of").
"""
ACTIVATIONS_GIB = {
    "LlamaForCausalLM": 1.89,
    "Qwen3ForCausalLM": 2.21,
    "Qwen3MoeForCausalLM": 2.68,
    "GptOssForCausalLM": 2.87,
    "MixtralForCausalLM": 1.21,
    "DeepseekV3ForCausalLM": 1.93,
}
"""Of a pass of 8,192 tokens and 1,024 requests, on each GPU however many.

They are those of llm-d-incubation/llm-d-planner: vLLM 0.19.0's logs on H100s (docs/accuracy, vllm_constants.py).
"""
OTHER_ACTIVATIONS_GIB = {False: 2.0, True: 2.5}
"""Its constants of other models, without experts and with them."""
NON_TORCH_GIB = {False: 0.27, True: 2.1}
"""Its constants of memory that PyTorch does not hold, on one GPU and under tensor parallelism (NCCL's buffers)."""
SMALL_BATCHES = {"a100_sxm": 0.25, "l40s": 0.25}
"""GPUs on which vLLM's passes have a quarter of the tokens and requests (docs/engines.md)."""
SGLANG = ((60.0, 4096, (32, 160)), (160.0, 8192, (256, 512)), (float("inf"), 16384, (512, 512)))
"""SGLang's defaults by the GiB of a GPU: tokens of a chunk, requests of the largest graph below TP4 and from it on."""
DRAFTS_GIB = {False: 6.0, True: 2.0, None: 0.0}
"""SGLang's reserve for a draft model, for a head, and where nothing drafts."""


def left_bytes(target: Operators, weights: float, head: bool | None) -> float:
    """Return the bytes of a GPU that an engine gives its caches, beside `weights` bytes there; negative if none.

    vLLM takes 0.9 of all memory, SGLang what its defaults leave of the memory before weights are loaded (its
    server_args.py), TensorRT-LLM 0.9 of what weights and activations leave (its _util.py).
    """
    place, model = target.place, target.model
    total = SEEN_GIB.get(place.gpu, target.memory_bytes / GIB)
    non_torch = NON_TORCH_GIB[place.tp > 1]
    if place.engine == "sglang":
        free = (total - non_torch) * (1 - _reserved(total, place.tp, place.gpus, head) / total)
        return free * GIB - weights
    activations = ACTIVATIONS_GIB.get(model.config["architectures"][0], OTHER_ACTIVATIONS_GIB[model.experts[0] > 0])
    if place.engine == "trtllm":
        return MEMORY_SHARE * ((total - activations - non_torch) * GIB - weights)
    activations *= SMALL_BATCHES.get(place.gpu, 1.0)
    return (MEMORY_SHARE * total - activations - non_torch) * GIB - weights


def _reserved(total: float, tp: int, gpus: int, head: bool | None) -> float:
    """Return the GiB that SGLang keeps: metadata, activations, graphs, collectives, and drafts."""
    chunk, graphs = next((tokens, most) for below, tokens, most in SGLANG if total < below)
    return 0.5 + (1.5 * chunk + 2 * graphs[tp >= 4]) / 1024 + gpus / 8 + DRAFTS_GIB[head]
