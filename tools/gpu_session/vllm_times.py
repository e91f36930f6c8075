"""Times of vLLM on dummy weights: ``python -m tools.gpu_session.vllm_times alone|drafting TARGET DRAFT``.

A step's time is the difference between outputs of many tokens and of one, over the steps between. Rows are written to
standard output as they come. The calls are those of vLLM 0.21.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from threading import Thread
from typing import Any

import numpy as np

from specsim.errors import say
from tools.gpu_session.engine import MARK

BATCHES = (1, 2, 4, 8, 16, 32, 64, 128, 256)
CONTEXT, PROMPT = 1024, 2048
STEPS = 64
DRAFTED = 3
RUNS = 3
VOCABULARY = 10_000
"""Prompts are of tokens below it, which every model has."""
Generate = Callable[[int, int, int, int], float]


def main(argv: list[str]) -> int:
    """Start one engine, time it, and write a row for each time."""
    part, target, draft = argv
    Thread(target=_end_with_the_stage, daemon=True).start()
    speculative = None
    if part == "drafting":
        speculative = {"model": draft, "method": "draft_model", "num_speculative_tokens": DRAFTED}
    generate = generator(target, speculative)
    for row in steps(generate, "draft-model step" if speculative else "decode", speculative is not None):
        say(f"{MARK}{json.dumps(row)}", flush=True)
    return 0


def _end_with_the_stage() -> None:
    """End the engine's processes when standard input ends: the stage, which holds its other end, was killed."""
    os.read(0, 1)
    os.killpg(os.getpgrp(), signal.SIGKILL)


def generator(target: str, speculative: dict[str, Any] | None) -> Generate:
    """Return a function that answers a batch of prompts, given its tokens of prompt and output, and returns seconds.

    Prompts of one seed are the same, and their keys are cached after the first answer.
    """
    from vllm import LLM, SamplingParams

    llm = LLM(
        model=target,
        load_format="dummy",
        skip_tokenizer_init=True,
        dtype="bfloat16",
        max_model_len=4096,
        max_num_seqs=max(BATCHES),
        enable_prefix_caching=True,
        speculative_config=speculative,
    )

    def generate(batch: int, prompt: int, output: int, seed: int) -> float:
        rng = np.random.default_rng([seed, batch, prompt])
        prompts = [{"prompt_token_ids": row.tolist()} for row in rng.integers(3, VOCABULARY, (batch, prompt))]
        settings = SamplingParams(max_tokens=output, temperature=0.0, ignore_eos=True, detokenize=False)
        started = time.perf_counter()
        llm.generate(prompts, settings, use_tqdm=False)
        return time.perf_counter() - started

    return generate


def steps(generate: Generate, quantity: str, drafting: bool) -> Iterator[dict[str, Any]]:
    """Yield the milliseconds of a step by batch, and of a prompt of 2,048 tokens.

    Drafts of dummy weights are hardly ever accepted, so a step answers about one token.
    """
    generate(1, PROMPT, 2, RUNS)
    for batch in BATCHES:
        generate(batch, CONTEXT, 1, 0)  # Caches the prompts, so that they cost the timed answers nothing.
        short, long = (
            float(np.median([generate(batch, CONTEXT, output, 0) for _ in range(RUNS)])) for output in (1, 1 + STEPS)
        )
        note = f"k = {DRAFTED}, taken as none accepted" if drafting else ""
        yield _row(f"batch {batch} x {CONTEXT}", quantity, 1e3 * (long - short) / STEPS, note)
    if not drafting:
        first = float(np.median([generate(1, PROMPT, 1, seed) for seed in range(RUNS)]))
        yield _row(f"prompt of {PROMPT}", "prefill", 1e3 * first, "first token, host included")


def _row(case: str, quantity: str, value: float, note: str) -> dict[str, Any]:
    return {"case": case, "quantity": quantity, "value": value, "unit": "ms", "note": note}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
