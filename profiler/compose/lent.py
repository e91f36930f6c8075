"""Operators whose kernel is in another engine's table than that of the engine which runs it."""

from __future__ import annotations

from typing import Any

from profiler.compose.library import Placement

BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
LENT = {
    ("vllm", "Moe", "w4a8_mxfp4_mxfp8"): "sglang",
    ("vllm", "CustomAllReduce", "half"): "trtllm",
    ("trtllm", "Moe", "fp8_block"): "sglang",
    ("trtllm", "Gemm", "nvfp4"): "vllm",
}
"""Of Blackwell GPUs: engine, kind of operator and mode, and the engine whose table has the kernel.

Of experts these are TensorRT-LLM's own kernels, which FlashInfer gives to the others. Of products they are CuteDSL's,
among which TensorRT-LLM chooses; its own table has others, which take up to twice as long. vLLM's all-reduce is
TensorRT-LLM's, by FlashInfer, with the norm behind it.
"""
OF_DENSE = ("CustomAllReduce", "Gemm")
"""Kinds that are lent to dense models alone.

Published NVFP4 files of mixtures of experts keep other products in 16 bits, and served points of such models do not
bear fused all-reduces out.
"""
SAID = {"Moe": "experts", "Overlap": "experts", "Gemm": "products", "CustomAllReduce": "all-reduces"}


def lender_of(operator: dict[str, Any], place: Placement, dense: bool) -> str | None:
    """Return the engine that lends an operator, None if its own has it. Experts lend what runs at the same time."""
    kind, values = next(iter(operator.items()))
    beside = next((each for each in values.get("group_a", ()) if "Moe" in each), None)
    if beside is not None:
        return lender_of(beside, place, dense)
    if place.gpu not in BLACKWELL or (kind in OF_DENSE and not dense) or (kind == "CustomAllReduce" and place.tp == 1):
        return None
    return LENT.get((place.engine, kind, str(values.get("quant_mode", values.get("quant")))))


def lending(place: Placement, kind: str, engine: str) -> Placement:
    """Return where the engine that lends runs the same model. Cache, and products beside all-reduces, play no part."""
    precision = "bf16" if kind == "CustomAllReduce" else place.precision
    return place._replace(engine=engine, cache="bf16", precision=precision)
