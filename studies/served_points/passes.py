"""The tables of docs/served-points.md about single passes of whole engines: splitwise-sim's and vidur's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from profiler.compose.passes import Alike, ComposedPass
from profiler.models.shapes import CODELLAMA_34B
from profiler.text import table
from specsim.calibration.fit import Errors
from specsim.files.yaml_file import shipped
from specsim.latency.model import ModelLatency
from specsim.latency.profile import load_profile
from studies.served_points.sets import engine_named
from tools.public import sources
from tools.public.checks import LARGEST_PASS_TOKENS, prompt_s, splitwise_cells, token_s
from tools.public.compose import A100, Composer, Placement
from tools.public.operators import Attention
from tools.public.recipes import RECIPES

MS = 1e-3
ASSUMED_CONTEXT = 512
SHOWN_WHOLE_PASSES = (8, 32, 64, 128)
SPLITWISE_ENGINE = "splitwise_2023"
H100_OVERHEAD_S, H100_REQUEST_S = 13.1e-3, 2.5e-4
"""Numbers that the engine's file states for the H100 beside its own numbers, which are the A100's."""
SPLIT_ERROR_HEAD = ("hardware", "engine", "prefill", "decode")


def splitwise_targets() -> Iterator[tuple[str, str, ModelLatency, ModelLatency]]:
    """Yield the hardware, the profile, its target alone, and its target on the engine of 2023."""
    for recipe in RECIPES:
        if recipe.splitwise:
            engine = engine_named(SPLITWISE_ENGINE)
            profile = load_profile(shipped("conf") / "profile" / f"{recipe.name}.yaml")
            if recipe.splitwise.startswith("h100"):
                engine = replace(engine, overhead_s=H100_OVERHEAD_S, request_s=H100_REQUEST_S)
            yield recipe.splitwise, recipe.name, profile.target, engine.running(profile).target


def splitwise_errors(data: Path) -> str:
    """Return the errors over all cells, median / p90 / mean, without the engine and with it."""
    return table(SPLIT_ERROR_HEAD, _splitwise_error_rows(data))


def _splitwise_error_rows(data: Path) -> Iterator[list[str]]:
    for hardware, name, alone, running in splitwise_targets():
        cells = splitwise_cells(data, hardware)
        small = [cell for cell in cells if cell.prompt * cell.batch <= LARGEST_PASS_TOKENS]
        for engine, target in ((f"`{name}` alone", alone), (f"`{SPLITWISE_ENGINE}`", running)):
            prefill = _cell([prompt_s(target, cell) / cell.prompt_s - 1 for cell in small])
            decode = _cell([token_s(target, cell) / cell.token_s - 1 for cell in cells])
            yield [hardware, engine, prefill, decode]


def _cell(relative: list[float]) -> str:
    errors = Errors.of(relative)
    return f"{100 * errors.median:.0f} / {100 * errors.p90:.0f} / {100 * errors.mean:+.0f}"


def whole_pass_errors(data: Path) -> str:
    """Return the errors of composed decode passes of CodeLlama-34B at TP2, in %; a context of 512 is assumed."""
    model = "codellama/CodeLlama-34b-Instruct-hf"
    composer = Composer(data, Placement(CODELLAMA_34B, A100, 2, 32, 4))
    rows = sources.read(data, sources.WHOLE_PASS)
    rows = rows[(rows["model_name"] == model) & (rows["tensor_parallel_degree"] == 2)]
    medians = rows.groupby("batch_size")["model_execution_e2e_median"].median()
    told = []
    for batch in SHOWN_WHOLE_PASSES:
        composed = composer.seconds(ComposedPass("decode", (Alike(batch, ASSUMED_CONTEXT, 1),)))
        told.append(f"{100 * (composed / (float(medians[batch]) * MS) - 1):+.0f} at batch {batch}")
    return ", ".join(told)


def attention_ratio(data: Path) -> str:
    """Return the ratio of composed to measured attention of a chunk behind a context, 32/4 heads, A100."""
    attention = Attention.load(data, A100.kernels, 32, 4, "bfloat16")
    rows = sources.read(data, sources.CHUNK_ATTENTION)
    rows = rows[rows["is_prefill"] & (rows["prefill_chunk_size"] >= 128)]
    sizes = rows[["prefill_chunk_size", "kv_cache_size"]].to_numpy(dtype=float)
    composed = np.array([attention.chunk(chunk, context) for chunk, context in sizes])
    ratios = composed / (rows["attn_prefill.median_ms"].to_numpy(dtype=float) * MS)
    low, median, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return f"{median:.2f} of the measured time (median of {len(ratios):,} passes; p5 {low:.2f}, p95 {high:.2f})"
