"""Measurements of whole passes that no fit has seen, against what is shipped."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from profiler.public import sources
from specsim.latency.model import ModelLatency

MS = 1e-3
POWER_CAP_PROMPT_FACTOR = 1.3


def splitwise_check(data: Path, target: ModelLatency, hardware: str) -> dict[str, Any]:
    """Compare with Llama-2-70B at TP4 in an engine of 2023: prompts of up to 4,096 tokens, and decoding.

    Signed relative errors, (predicted - measured) / measured: median, least and greatest.
    """
    rows = sources.read(data, sources.SPLITWISE)
    rows = rows[(rows["model"] == "llama2-70b") & (rows["tensor_parallel"] == 4) & (rows["hardware"] == hardware)]
    capped = hardware.endswith("pcap")
    cells = rows.groupby(["prompt_size", "batch_size", "token_size"])[["prompt_time", "token_time"]].median()
    prompts: dict[tuple[int, int], float] = {}
    tokens: dict[tuple[int, int], float] = {}
    for (prompt, batch, generated), row in cells.iterrows():  # type: ignore[misc]
        pairs = batch * prompt * (prompt + 1) / 2
        if prompt * batch <= 4096 and generated == 128:
            measured = row["prompt_time"] * MS / (POWER_CAP_PROMPT_FACTOR if capped else 1.0)
            prompts[prompt, batch] = target.seconds(0, prompt * batch, pairs) / measured - 1
        if generated == 128:
            context = batch * (prompt + generated / 2)
            tokens[prompt, batch] = target.seconds(context, batch, context + batch) / (row["token_time"] * MS) - 1
    single = {size: error for (size, batch), error in prompts.items() if batch == 1}
    note = "measured prompt times divided by 1.3, the file's power cap" if capped else "as measured"
    return {
        "splitwise_llama2_70b_tp4": {
            "hardware": hardware,
            "prompt_times": note,
            "prompt_of_one_request": signed(single),
            "prompt_of_any_batch": signed(prompts),
            "decode_iteration": signed(tokens),
        }
    }


def signed(errors: dict[Any, float]) -> dict[str, float]:
    """Return the median, least and greatest of signed relative errors."""
    values = np.array(list(errors.values()))
    return {"median": float(np.median(values)), "least": float(values.min()), "greatest": float(values.max())}
