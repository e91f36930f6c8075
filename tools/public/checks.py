"""Measurements that no fit has seen, against what is shipped or composed."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from profiler.models.shapes import CODELLAMA_34B
from specsim.latency.model import ModelLatency
from specsim.pass_shape import PassShape
from tools.public import sources
from tools.public.compose import A100, Alike, ComposedPass, Composer, Placement
from tools.public.operators import Attention

MS = 1e-3
POWER_CAP_PROMPT_FACTOR = 1.3
GENERATED = 128
LARGEST_PASS_TOKENS = 4096
ASSUMED_CONTEXT = 512
SHOWN_BATCHES = (1, 8, 64)
SHOWN_WHOLE_PASSES = (8, 32, 64, 128)


class Cell(NamedTuple):
    """One measured batch: `batch` prompts of `prompt` tokens, the prompt pass and a decode iteration."""

    prompt: int
    batch: int
    prompt_s: float
    token_s: float


def splitwise_cells(data: Path, hardware: str) -> list[Cell]:
    """Return the medians of Llama-2-70B at TP4 with 128 tokens generated.

    The H100 rows at TP4 are power-capped; at TP2 and TP8, where both exist, capping multiplies the prompt
    times by exactly 1.3 and leaves the decode times alone, so they are divided by it.
    """
    rows = sources.read(data, sources.SPLITWISE)
    rows = rows[(rows["model"] == "llama2-70b") & (rows["tensor_parallel"] == 4)]
    rows = rows[(rows["hardware"] == hardware) & (rows["token_size"] == GENERATED)]
    factor = POWER_CAP_PROMPT_FACTOR if hardware.endswith("pcap") else 1.0
    groups: Any = rows.groupby(["prompt_size", "batch_size"])
    return [
        Cell(
            int(prompt),
            int(batch),
            float(cell["prompt_time"].median()) * MS / factor,
            float(cell["token_time"].median()) * MS,
        )
        for (prompt, batch), cell in groups
    ]


def prompt_s(target: ModelLatency, cell: Cell) -> float:
    """Return the predicted seconds of a cell's prompt pass."""
    return target.seconds(PassShape.prompt(cell.prompt, cell.batch))


def token_s(target: ModelLatency, cell: Cell) -> float:
    """Return the predicted seconds of a cell's decode iteration, halfway through its output."""
    context = cell.batch * (cell.prompt + GENERATED / 2)
    return target.seconds(PassShape.decode(context, cell.batch))


def splitwise_check(data: Path, target: ModelLatency, hardware: str) -> dict[str, Any]:
    """Return signed relative errors, (predicted - measured) / measured: median, least and greatest.

    Prompt passes beyond 4,096 tokens are left out: no engine runs them as one pass.
    """
    cells = splitwise_cells(data, hardware)
    small = [cell for cell in cells if cell.prompt * cell.batch <= LARGEST_PASS_TOKENS]
    return {
        "splitwise_llama2_70b_tp4": {
            "hardware": hardware,
            "prompt_of_one": signed([prompt_s(target, c) / c.prompt_s - 1 for c in small if c.batch == 1]),
            "prompts_batched": signed([prompt_s(target, c) / c.prompt_s - 1 for c in small if c.batch > 1]),
            "decode_iteration": signed([token_s(target, c) / c.token_s - 1 for c in cells]),
        }
    }


def signed(errors: list[float]) -> dict[str, float]:
    """Return the median, least and greatest of signed relative errors."""
    return {"median": float(np.median(errors)), "least": min(errors), "greatest": max(errors)}


def splitwise_rows(data: Path, target: ModelLatency, hardware: str) -> Iterator[list[str]]:
    """Yield a row of text per shown cell; prompt passes too large to be one pass are left out."""
    for cell in splitwise_cells(data, hardware):
        if cell.batch not in SHOWN_BATCHES:
            continue
        fits = cell.prompt * cell.batch <= LARGEST_PASS_TOKENS
        prompts = [cell.prompt_s, prompt_s(target, cell)] if fits else []
        yield [
            hardware,
            f"{cell.prompt} x {cell.batch}",
            *([f"{each / MS:.0f}" for each in prompts] or ["-", "-"]),
            f"{cell.token_s / MS:.1f}",
            f"{token_s(target, cell) / MS:.1f}",
        ]


def whole_pass_rows(data: Path) -> Iterator[list[str]]:
    """Yield measured and composed decode passes of CodeLlama-34B at TP2; a context of 512 is assumed."""
    model = "codellama/CodeLlama-34b-Instruct-hf"
    composer = Composer(data, Placement(CODELLAMA_34B, A100, 2, 32, 4))
    rows = sources.read(data, sources.WHOLE_PASS)
    rows = rows[(rows["model_name"] == model) & (rows["tensor_parallel_degree"] == 2)]
    medians = rows.groupby("batch_size")["model_execution_e2e_median"].median()
    for batch in SHOWN_WHOLE_PASSES:
        measured = float(medians[batch]) * MS
        composed = composer.seconds(ComposedPass("decode", (Alike(batch, ASSUMED_CONTEXT, 1),)))
        error = composed / measured - 1
        yield [f"{batch}", f"{measured / MS:.1f}", f"{composed / MS:.1f}", f"{100 * error:+.0f}%"]


def attention_check(data: Path) -> list[str]:
    """Return the ratio of composed to measured attention of a chunk behind a context, 32/4 heads, A100."""
    attention = Attention.load(data, A100.kernels, 32, 4, "bfloat16")
    rows = sources.read(data, sources.CHUNK_ATTENTION)
    rows = rows[rows["is_prefill"] & (rows["prefill_chunk_size"] >= 128)]
    sizes = rows[["prefill_chunk_size", "kv_cache_size"]].to_numpy(dtype=float)
    composed = np.array([attention.chunk(chunk, context) for chunk, context in sizes])
    ratios = composed / (rows["attn_prefill.median_ms"].to_numpy(dtype=float) * MS)
    low, median, high = np.quantile(ratios, [0.05, 0.5, 0.95])
    return [f"{len(ratios):,}", f"{median:.2f}", f"{low:.2f}", f"{high:.2f}"]
