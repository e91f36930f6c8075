"""Operators that the library leaves out of a model, prices otherwise than they run, or has in another engine's."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from profiler.compose.library import ComposedPlacement

if TYPE_CHECKING:
    from profiler.compose.models import Model

ELEMENT_BYTES, FLOAT_BYTES = 2, 4
JOINT, MARKOV = "joint_gemm", "markov_gemm"
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
HOPPER = ("h100_sxm", "h200_sxm")
LENT = {
    BLACKWELL: {
        ("vllm", "Moe", "w4a8_mxfp4_mxfp8"): "sglang",
        ("vllm", "CustomAllReduce", "half"): "trtllm",
        ("trtllm", "Moe", "fp8_block"): "sglang",
        ("trtllm", "Gemm", "nvfp4"): "vllm",
    },
    HOPPER: {("sglang", "Moe", "w4a16_mxfp4"): "vllm"},
}
"""Of GPUs: engine, kind of operator and mode, and the engine whose table has the kernel.

On Blackwell those of experts are TensorRT-LLM's own kernels, which FlashInfer gives to the others. Of products they are
CuteDSL's, among which TensorRT-LLM chooses; its own table has others, which take up to twice as long. vLLM's all-reduce
is TensorRT-LLM's, by FlashInfer, with the norm behind it. On Hopper vLLM and SGLang multiply MXFP4 experts with
OpenAI's Triton kernels; SGLang's own table has one that takes as long as their weights in 16 bits.
"""
OF_DENSE = ("CustomAllReduce", "Gemm")
"""Kinds that are lent to dense models alone.

Published NVFP4 files of mixtures of experts keep other products in 16 bits, and served points of such models do not
bear fused all-reduces out.
"""
SAID = {"Moe": "experts", "Overlap": "experts", "Gemm": "products", "CustomAllReduce": "all-reduces"}


def completed(spec: dict[str, Any], model: Model, place: ComposedPlacement) -> dict[str, Any]:
    """Return the operators with those that the library leaves out.

    Of decodes: normalising queries and keys, rotating them, writing the cache, each an element-wise kernel of its
    own. The library has these in prompts. There it takes 26 us for the norm, which is priced as in decodes instead.
    TensorRT-LLM rotates and writes within the attention that was measured. A norm over all heads (MiniMax-M2) sums
    squares in a further kernel and over the GPUs. Products in NVFP4 of dense models have their activations
    quantised before; tables of experts are with that.
    Of a head: a 16-bit projection of the joined states, its wider first product, and those of its Markov head.
    """
    normed = any(each.get("use_qk_norm") for operator in spec["context_ops"] for each in operator.values())
    for phase, kind in (("generation", "GenerationAttention"), ("context", "ContextAttention")):
        operators = spec[f"{phase}_ops"]
        operators[:] = [_whole(each) if place.engine == "vllm" else each for each in operators]
        for attention in [each[kind] for each in operators if kind in each]:
            operators += _beside(attention, phase, normed, phase == "context" or place.engine == "trtllm")
            if phase == "context":
                attention["use_qk_norm"] = False
        if not model.experts[0]:
            products = [each["Gemm"] for each in operators if "Gemm" in each]
            operators += [_quantised(each) for each in products if each["quant_mode"] == "nvfp4"]
        if model.config.get("qk_norm_type") == "per_layer" and place.tp > 1:
            operators += _norm_over_gpus(phase, operators)
        if model.joined:
            logits = next(each for each in spec["generation_ops"] if name_of(each).endswith("logits_gemm"))
            operators += _of_head(phase, operators, model, logits["Gemm"])
    return spec


def _whole(operator: dict[str, Any]) -> dict[str, Any]:
    """Return attention of DeepSeek by vLLM's tables of whole modules, which have FP8 products in blocks alone.

    Without a mode of the table the library would fall back to a KV head for each head: seven times the cache.
    """
    found: dict[str, Any] = operator.get("Fallback", {}).get("primary", operator)
    kind, values = next(iter(found.items()))
    if not kind.startswith(("MlaModule", "Dsv4")):
        return operator
    return {kind: values | {"gemm_quant_mode": "fp8_block"}} if values["gemm_quant_mode"] == "fp8" else {kind: values}


def _beside(attention: dict[str, Any], phase: str, normed: bool, fused: bool) -> list[dict[str, Any]]:
    """Return the element-wise kernels beside an attention; `fused`: rotation and write are within it."""
    row = 2 * ELEMENT_BYTES * attention["head_size"]
    heads, cached = row * attention["n"], row * attention["n_kv"]
    moved = {} if fused else {"rope": heads + cached, "cache_write": 2 * cached}
    found = []
    for name, each in (moved | ({"qk_norm": heads + cached} if normed else {})).items():
        sizes = {"bytes_per_token": float(each), "scale_factor": attention["scale_factor"]}
        found.append({"Elementwise": {"name": f"{phase}_{name}", "scale_num_tokens": 1, "seq_split": 1, **sizes}})
    return found


def _of_head(phase: str, operators: Sequence[Any], model: Model, logits: dict[str, Any]) -> list[dict[str, Any]]:
    """Widen a head's first product, and return its projection and its Markov products, one a token of the block."""
    for operator in operators if model.wide else ():
        if name_of(operator) == f"{phase}_qkv_gemm":
            operator["Gemm"]["k"] *= 2
    hidden = model.whole("hidden_size")
    found = [{"Gemm": logits | {"name": f"{phase}_{JOINT}", "n": hidden, "k": model.joined * hidden}}]
    if model.markov_rank:
        again = {"name": f"{phase}_{MARKOV}", "k": model.markov_rank, "scale_factor": float(model.block)}
        found.append({"Gemm": logits | again})
    return found


def _quantised(product: dict[str, Any]) -> dict[str, Any]:
    """Return the kernel that reads 16-bit activations of a product and writes them in 4 bits."""
    sizes = {"scale_factor": product["scale_factor"], "bytes_per_token": 2.5 * product["k"]}
    return {"Elementwise": {"name": f"{product['name']}_quant", "scale_num_tokens": 1, "seq_split": 1, **sizes}}


def _norm_over_gpus(phase: str, operators: Sequence[Any]) -> list[dict[str, Any]]:
    """Return what a norm over the heads of all GPUs takes beside one over those of a GPU: a sum, and its all-reduce.

    The squares of queries and of keys are two 32-bit numbers a token (vLLM's pull request 31493).
    """
    norm = next(each["Elementwise"] for each in operators if name_of(each) == f"{phase}_qk_norm")
    total = next(each["CustomAllReduce"] for each in operators if "CustomAllReduce" in each)
    reduced = {"scale_factor": norm["scale_factor"], "hidden_size": 2 * FLOAT_BYTES // ELEMENT_BYTES}
    return [
        {"Elementwise": norm | {"name": f"{phase}_norm_sum", "bytes_per_token": norm["bytes_per_token"] / 2}},
        {"CustomAllReduce": total | {"name": f"{phase}_norm_ar", **reduced}},
    ]


def name_of(operator: dict[str, Any]) -> str:
    """Return the library's name of an operator."""
    return str(next(iter(operator.values()))["name"])


def lender_of(operator: dict[str, Any], place: ComposedPlacement, dense: bool) -> str | None:
    """Return the engine that lends an operator, None if its own has it. Experts lend what runs at the same time."""
    kind, values = next(iter(operator.items()))
    beside = next((each for each in values.get("group_a", ()) if "Moe" in each), None)
    if beside is not None:
        return lender_of(beside, place, dense)
    if (kind in OF_DENSE and not dense) or (kind == "CustomAllReduce" and place.tp == 1):
        return None
    lent = next((each for gpus, each in LENT.items() if place.gpu in gpus), {})
    return lent.get((place.engine, kind, str(values.get("quant_mode", values.get("quant")))))


def lending(place: ComposedPlacement, kind: str, engine: str) -> ComposedPlacement:
    """Return where the engine that lends runs the same model. Cache, and products beside all-reduces, play no part."""
    precision = "bf16" if kind == "CustomAllReduce" else place.precision
    return place._replace(engine=engine, cache="bf16", precision=precision)
