"""Any batching part with any speculation part: every pair serves everybody, from YAML."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.errors import SpecsimError
from specsim.schedulers.loading import scheduler_factory
from specsim.simulation import run
from tests.golden.scene import scene
from tests.laws.subjects import part_of, raw_of


def part(target: str, **parameters: Any) -> dict[str, Any]:
    return {"_target_": f"specsim.schedulers.{target}", **parameters}


SIX_SLOTS = part_of("las", "batching", "batch_slots") | {"max_num_seqs": 6}
BATCHING = {
    "static": part("fcfs.StaticBatches", max_num_seqs=6),
    "whole prompts": part("continuous.PrefillFirst", max_num_seqs=6, max_num_batched_tokens=64, watermark=0.01),
    "budget": part("sarathi.TokenBudget", max_num_seqs=6, max_num_batched_tokens=600, watermark=0.01),
    "chunks": part("sarathi.Chunked", max_num_seqs=6, prefill_tokens=16, prefill="mixed", watermark=0.01),
    "laps": raw_of("laps_sd")["batching"] | {"batch_slots": SIX_SLOTS},
    "priority": part("priority.TightestFirst", batch_slots=SIX_SLOTS),
    "vtc": raw_of("vtc")["batching"] | {"batch_slots": SIX_SLOTS},
}
SPECULATION = {
    "none": part("vllm_spec.FixedChains", num_speculative_tokens=0),
    "fixed": part("vllm_spec.FixedChains", num_speculative_tokens=3),
    "smartspec": part(
        "smartspec.chains.GoodputChains", num_speculative_tokens=4, acceptance="global", window=8, first_acceptance=0.7
    ),
    "specserve": part(
        "specserve.SpecServe", num_speculative_tokens=4, verifier=True, history_steps=8, first_confidence=0.7
    ),
    "adaserve": part_of("laps_adaserve", "speculation"),
    "threshold": part("threshold.Threshold", threshold=0.4, num_speculative_tokens=4),
    "survival": part_of("adaptive_verification", "speculation") | {"survival": "confidence"},
}


@pytest.mark.parametrize("speculation", SPECULATION)
@pytest.mark.parametrize("batching", BATCHING)
def test_every_pair_serves_everybody(batching: str, speculation: str) -> None:
    seeing = batching == "laps"
    mapping = {
        **part(f"composed.{'WithOracle' if seeing else 'Composed'}"),
        "oracle": seeing,
        "batching": BATCHING[batching],
        "speculation": SPECULATION[speculation],
    }
    simulation = replace(scene(), scheduler=scheduler_factory(mapping, "scheduler=mine"))
    progress = run(simulation).progress
    served = np.isfinite(progress.finish_s)
    assert np.array_equal(progress.emitted_tokens, np.where(served, simulation.ground_truth.output_tokens, 0))
    assert served.sum() >= len(served) - 1, "the scene holds one request that no pool could"
    assert (progress.draft_tokens.sum() > 0) == (speculation != "none")


def test_parts_that_need_the_future_are_refused_without_it() -> None:
    mapping = {**part("composed.WithOracle"), "batching": BATCHING["laps"], "speculation": SPECULATION["none"]}
    with pytest.raises(SpecsimError, match="oracle"):
        scheduler_factory(mapping, "scheduler=mine")
