"""The mapping that becomes a profile's YAML: compose, fit, judge, and say what went in."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from profiler.compose.passes import Alike, ComposedPass, passes, sampled
from profiler.latency.fit import FittedForm, errors_by_kind, fit_linear, fit_roofline, fitted_keys
from profiler.models.shapes import TransformerShape, widths
from specsim.latency.model import MEMORY_SHARE, PROFILE_VERSION
from specsim.latency.profile import profile_from_mapping
from tools.public import sources
from tools.public.checks import splitwise_check
from tools.public.compose import Composer, Placement
from tools.public.grid import FITTED, HELD_OUT, MAX_BATCHED_TOKENS, MAX_CONTEXT_TOKENS
from tools.public.operators import MOST_GQA_HEADS
from tools.public.recipes import ASSUMPTIONS, DRAFT_ENGINE, Artifact, Recipe

MS = 1e-3
ARTIFACT_GPU = "NVIDIA A100-SXM4-40GB"
ARTIFACT_MEMORY_BYTES = 40 * 2**30
ENGINE = "vllm_0_15"
"""The engine of today whose kernels composed profiles are made of."""
ENGINE_STEPS = ("schedule", "sampler_e2e", "prepare_inputs_e2e", "process_model_outputs")
DRAFT_STEPS = ("sampler_e2e", "prepare_inputs_e2e")
V1_BUDGETS = {"A100": 156, "H100": 582}
"""Tokens of a verification by GPU: AdaServe v1 (arXiv 2025), Table 1. The paper counts the H100's sparse products."""


def composed_profile(data: Path, recipe: Recipe) -> dict[str, Any]:
    """Return the keys of a composed profile, in the order of its file."""
    memory = recipe.target.gpu.memory_bytes * recipe.target.gpus
    weights = recipe.target.shape.weights_bytes + recipe.draft.shape.weights_bytes
    per_token = recipe.target.shape.kv_bytes_per_token + recipe.draft.shape.kv_bytes_per_token
    capacity = (int(MEMORY_SHARE * memory) - weights) // per_token
    overhead = engine_seconds(data, *recipe.engine, ENGINE_STEPS)
    draft_overhead = engine_seconds(data, *DRAFT_ENGINE, DRAFT_STEPS)
    mapping: dict[str, Any] = {
        "name": recipe.name,
        "profile_version": PROFILE_VERSION,
        "description": recipe.description,
        **suggested(recipe.acceptance, recipe.target.gpu.name, {}, ENGINE),
        "hardware": recipe.target.gpu.name,
        "gpus": recipe.target.gpus,
        "memory_bytes": memory,
        "form": "roofline",
        "target": composed_model(data, recipe.target, overhead, capacity, "target"),
        "draft": composed_model(data, recipe.draft, draft_overhead, capacity, "draft"),
    }
    if recipe.splitwise:
        profile = profile_from_mapping(mapping, recipe.name)
        mapping["checks"] = splitwise_check(data, profile.target, recipe.splitwise)
    mapping["provenance"] = provenance(data, used_by(recipe))
    mapping["assumptions"] = [*recipe.notes, *ASSUMPTIONS]
    return mapping


def suggested(acceptance: str | None, gpu: str, constants: dict[str, int], engine: str | None = None) -> dict[str, Any]:
    """Return the key of what goes with a profile: its pair's acceptance, an engine, AdaServe's `constants` by key."""
    of_pair: dict[str, Any] = {} if acceptance is None else {"acceptance": acceptance}
    of_pair |= {} if engine is None else {"engine": engine}
    of_pair |= {"adaserve": constants} if constants else {}
    for name, budget in V1_BUDGETS.items():
        if name in gpu:
            of_pair |= {"adaserve_v1": {"verify_tokens": budget}}
    return {"suggests": of_pair} if of_pair else {}


def composed_model(data: Path, placement: Placement, overhead_s: float, capacity: int, role: str) -> dict[str, Any]:
    """Return the keys of one model: sizes, fitted forms, their errors and the range behind them."""
    composer = Composer(data, placement)
    fitted_on = sampled(composer.seconds, passes(FITTED, min(capacity, MAX_CONTEXT_TOKENS), MAX_BATCHED_TOKENS))
    held_out = sampled(composer.seconds, passes(HELD_OUT, min(capacity, MAX_CONTEXT_TOKENS), MAX_BATCHED_TOKENS))
    fits: dict[str, FittedForm] = {"roofline": fit_roofline(fitted_on), "linear": fit_linear(fitted_on)}
    errors = {}
    for name, fitted in fits.items():
        seconds = held_out.seconds + overhead_s
        relative = np.abs(held_out.predicted_by(fitted.form) - held_out.seconds) / seconds
        errors[name] = errors_by_kind(held_out.kinds, relative)
    return {**sizes(placement.shape, overhead_s, role), **fitted_keys(fits, errors, fitted_on)}


def sizes(shape: TransformerShape, overhead_s: float, role: str) -> dict[str, Any]:
    """Return the keys of one model that are facts about it; the context is the target's."""
    of_target = {"max_model_len": shape.max_model_len, **widths(shape)} if role == "target" else {}
    return {
        "name": shape.name,
        "kv_bytes_per_token": shape.kv_bytes_per_token,
        "weights_bytes": shape.weights_bytes,
        "nonembedding_bytes": shape.nonembedding_bytes,
        **of_target,
        "overhead_s": overhead_s,
    }


def engine_seconds(data: Path, model: str, gpus: int, steps: tuple[str, ...]) -> float:
    """Return the median CPU seconds per pass of an engine's steps at batch 8, the smallest measured."""
    rows = sources.read(data, sources.CPU_OVERHEADS)
    rows = rows[(rows["model_name"] == model) & (rows["tensor_parallel_degree"] == gpus)]
    row = rows[rows["batch_size"] == 8].iloc[0]
    return float(sum(row[f"{step}_median"] for step in steps)) * MS


def used_by(recipe: Recipe) -> list[sources.Dataset]:
    """Return the datasets behind a composed profile."""
    gpu = recipe.target.gpu
    used = [gpu.kernels.gemm, gpu.kernels.decode, gpu.kernels.context, gpu.elementwise]
    used += [sources.MHA_DECODE] if recipe.target.kv_heads > MOST_GQA_HEADS else []
    used += [gpu.kernels.all_reduce] if recipe.target.gpus > 1 else []
    used += [sources.CPU_OVERHEADS]
    return used + ([sources.SPLITWISE] if recipe.splitwise else [])


def provenance(data: Path, datasets: list[sources.Dataset]) -> list[dict[str, str]]:
    """Return name, origin, licence, checksum and software of each dataset."""
    return [
        {
            "file": each.file,
            "origin": each.origin,
            "licence": each.licence,
            "sha256": sources.sha256(data, each),
            "versions": each.versions,
        }
        for each in datasets
    ]


def artifact_constants(settings: dict[str, Any]) -> dict[str, int]:
    """Return what the authors ran AdaServe with on this pair, by the keys of a scheduler's file."""
    return {
        "verify_tokens": settings["spec_batch_size"],
        "prefill_tokens": settings["chunk_size"],
        "max_num_seqs": settings["max_requests_per_batch"],
        "shape.depth_min": settings["min_tree_depth"],
        "shape.depth_max": settings["max_tree_depth"],
        "shape.width_max": settings["max_tree_width"],
        "shape.draft_pass_tokens": settings["max_tokens_per_ssm_spec_batch"],
    }


def artifact_profile(data: Path, artifact: Artifact) -> dict[str, Any]:
    """Return the keys of a profile made of the AdaServe authors' own table."""
    text = sources.located(data, sources.ADASERVE).read_text(encoding="utf-8")
    settings = json.loads(text)["models"][artifact.settings]
    latency = settings["batch_size_to_latency_ms"]
    tokens = sorted(int(each) for each in latency)
    baseline_s = settings["baseline_latency_ms"] * MS
    target = {
        "batched_tokens": tokens,
        "seconds_at": [latency[str(each)] * MS for each in tokens],
        "floor_s": baseline_s,
    }
    composer = Composer(data, artifact.draft)
    chunks = [256, 512, 1024, 2048]
    draft = {
        "batched_tokens": chunks,
        "seconds_at": [composer.seconds(ComposedPass("prefill", (Alike(1, 0, each),))) for each in chunks],
        "floor_s": artifact.draft_floor_s,
    }
    gpu = artifact.draft.gpu
    used = [sources.ADASERVE, gpu.kernels.gemm, gpu.kernels.context, gpu.elementwise]
    valid = {
        "context_tokens": [0, settings["max_requests_per_batch"] * 2048],
        "batched_tokens": [1, tokens[-1]],
    }
    return {
        "name": artifact.name,
        "profile_version": PROFILE_VERSION,
        "description": artifact.description,
        **suggested(artifact.acceptance, ARTIFACT_GPU, artifact_constants(settings)),
        "hardware": ARTIFACT_GPU,
        "gpus": artifact.gpus,
        "memory_bytes": ARTIFACT_MEMORY_BYTES * artifact.gpus,
        "form": "table",
        "baseline_s": baseline_s,
        "target": {**sizes(artifact.target, 0.0, "target"), "forms": {"table": target}, "valid": valid},
        "draft": {**sizes(artifact.draft.shape, 0.0, "draft"), "forms": {"table": draft}, "valid": valid},
        "provenance": provenance(data, used),
        "assumptions": [
            "the authors' table has no error figures and does not depend on context; beyond 1,024 tokens its "
            "last slope goes on",
            "floor: the artifact's baseline latency; no overhead is added, it is inside the authors' numbers",
            f"draft floor: about {artifact.draft_floor_s / MS:.0f} ms a pass (paper, section 6.3)",
            "draft passes above the floor: composed on one A100 from public kernels; the authors give none",
            sources.UNPUBLISHED,
            "memory as in the artifact's scripts (40 GB cards); the paper itself used 80 GB cards",
        ],
    }
