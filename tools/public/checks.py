"""Measurements that no fit has seen, against what is shipped or composed."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from specsim.latency.model import ModelLatency
from specsim.pass_shape import PassShape
from tools.public import sources

MS = 1e-3
POWER_CAP_PROMPT_FACTOR = 1.3
GENERATED = 128
LARGEST_PASS_TOKENS = 4096


class SplitwiseCell(NamedTuple):
    """One measured batch: `batch` prompts of `prompt` tokens, the prompt pass and a decode iteration."""

    prompt: int
    batch: int
    prompt_s: float
    token_s: float


def splitwise_cells(data: Path, hardware: str) -> list[SplitwiseCell]:
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
        SplitwiseCell(
            int(prompt),
            int(batch),
            float(cell["prompt_time"].median()) * MS / factor,
            float(cell["token_time"].median()) * MS,
        )
        for (prompt, batch), cell in groups
    ]


def prompt_s(target: ModelLatency, cell: SplitwiseCell) -> float:
    """Return the predicted seconds of a cell's prompt pass."""
    return target.seconds(PassShape.prompt(cell.prompt, cell.batch))


def token_s(target: ModelLatency, cell: SplitwiseCell) -> float:
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
