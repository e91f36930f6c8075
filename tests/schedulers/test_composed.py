"""Any batching part with any speculation part: every pair serves everybody, from YAML."""

from dataclasses import replace
from math import inf
from typing import Any

import numpy as np
import pytest

from specsim.cluster.split import Splitting
from specsim.schedulers.composed import Composed
from specsim.schedulers.continuous import PrefillFirst
from specsim.schedulers.loading import scheduler_factory
from specsim.schedulers.parts.batching import RESERVES, Reserve
from specsim.schedulers.sarathi import TokenBudget
from specsim.schedulers.vllm_spec import FixedChains
from specsim.simulation import Simulation, run
from tests.golden.scene import scene
from tests.laws.every import assert_same_record
from tests.laws.subjects import part_of, raw_of
from tests.made import memory, refusal, requests, simulation


def part(target: str, **parameters: Any) -> dict[str, Any]:
    return {"_target_": f"specsim.schedulers.{target}", **parameters}


WHOLE = part("continuous.PrefillFirst", max_num_seqs=6, max_num_batched_tokens=64, watermark=0.01)
SIX_SLOTS = part_of("las", "batching", "batch_slots") | {"max_num_seqs": 6}
BATCHING = {
    "static": part("fcfs.StaticBatches", max_num_seqs=6),
    "whole prompts": WHOLE,
    "cut prompts": WHOLE | {"chunked_prefill": True},
    "budget": part("sarathi.TokenBudget", max_num_seqs=6, max_num_batched_tokens=600, watermark=0.01),
    "chunks": part("sarathi.Chunked", max_num_seqs=6, prefill_tokens=16, prefill="mixed", watermark=0.01),
    "laps": raw_of("laps_sd")["batching"] | {"batch_slots": SIX_SLOTS},
    "priority": part("priority.TightestFirst", batch_slots=SIX_SLOTS),
    "vtc": raw_of("vtc")["batching"] | {"batch_slots": SIX_SLOTS},
}
FOUR = {"num_speculative_tokens": 4}
SPECULATION = {
    "none": part("vllm_spec.FixedChains", num_speculative_tokens=0),
    "fixed": part("vllm_spec.FixedChains", num_speculative_tokens=3),
    "smartspec": part("smartspec.chains.GoodputChains", **FOUR, acceptance="global", window=8, first_acceptance=0.7),
    "specserve": part("specserve.SpecServe", **FOUR, verifier=True, history_steps=8, first_confidence=0.7),
    "adaserve": part_of("laps_adaserve", "speculation"),
    "threshold": part("threshold.Threshold", **FOUR, threshold=0.4),
    "survival": part_of("adaptive_verification", "speculation") | {"survival": "confidence"},
}


@pytest.mark.parametrize("speculation", SPECULATION)
@pytest.mark.parametrize("batching", BATCHING)
def test_every_pair_serves_everybody(batching, speculation):
    seeing, parts = batching == "laps", {"batching": BATCHING[batching], "speculation": SPECULATION[speculation]}
    mapping = part(f"composed.{'WithOracle' if seeing else 'Composed'}", oracle=seeing, **parts)
    simulation = replace(scene(), scheduler=scheduler_factory(mapping, "scheduler=mine"))
    progress = run(simulation).progress
    served = np.isfinite(progress.finish_s)
    assert np.array_equal(progress.emitted_tokens, np.where(served, simulation.ground_truth.output_tokens, 0))
    assert served.sum() >= len(served) - 1, "the scene holds one request that no pool could"
    assert (progress.draft_tokens.sum() > 0) == (speculation != "none")


def test_parts_that_need_the_future_or_hear_of_each_verification_are_refused_where_they_cannot():
    mapping = part("composed.WithOracle", batching=BATCHING["laps"], speculation=SPECULATION["none"])
    assert "oracle" in refusal(scheduler_factory, mapping, "scheduler=mine")
    told = type("Told", (FixedChains,), {"stationary": True, "on_verified": lambda *_: None})
    with pytest.raises(ValueError, match="Told says stationary = True, and has an on_verified"):
        Composed(TokenBudget(8, 512, 0.0), told(DRAFTS))


def test_a_prompt_longer_than_a_pass_is_read_in_parts_that_the_drafter_reads_too():
    """Passes of 64 tokens: 150 in three, of which the last has room for 30; decodes wait until all are read."""
    told = requests([0.0, 0.0, 0.0], [150, 30, 30], [8] * 3)
    made = scheduler_factory(
        part("composed.Composed", batching=BATCHING["cut prompts"], speculation=SPECULATION["fixed"]), ""
    )
    passes = run(simulation(told, [8] * 3, made, pool=memory(told, 9.0))).passes
    assert [tokens for tokens in passes["prefill_tokens"].tolist() if tokens] == [64, 64, 64, 64, 52, 52, 30, 30]
    assert (np.flatnonzero(passes["prefill_tokens"]) == np.arange(8)).all()


def test_a_request_that_was_read_elsewhere_joins_where_its_drafts_have_room():
    told = requests([0.0] * 4, [3] * 4, [20] * 4)
    made = simulation(told, [20] * 4, lambda: Composed(TokenBudget(8, 16, 0.0), FixedChains(8)))
    assert np.isfinite(run(replace(made, replicas=2, split=Splitting(1, inf))).progress.finish_s).all()


# --- cache that is kept for drafts: what each decode verifies, and as many drafts behind that -------------------------

DRAFTS, OUTPUT = 3, 60


def two_on(tokens: int, *, lookahead: bool) -> Simulation:
    """Return a run of two requests whose texts end at 80 tokens, on a cache of so many tokens of both models."""
    told = requests([0.0, 0.0], [20, 20], [OUTPUT] * 2)
    pool = replace(memory(told, block_tokens=1), capacity_bytes=tokens * 4)
    scheduler = Composed(TokenBudget(8, 512, 0.0, lookahead), FixedChains(DRAFTS))
    return replace(simulation(told, [OUTPUT] * 2, lambda: scheduler), memory=pool)


def preempted(of: Simulation) -> int:
    return int(run(of).progress.preemptions.sum())


def test_the_youngest_yields_where_the_slots_behind_the_drafts_lack():
    """Before a step each holds up to 79 tokens; it verifies 1 + 3 and keeps 3 more, or as many as it verifies."""
    roomy, tight = 2 * (79 + 1 + 2 * DRAFTS), 2 * 80
    assert preempted(two_on(roomy, lookahead=True)) == 0
    assert preempted(two_on(tight, lookahead=True)) > 0
    assert preempted(two_on(tight, lookahead=False)) == 0, "it decodes without drafts instead"


@pytest.mark.parametrize("tokens", [120, 150, 165, 700, 1500])
def test_steps_at_once_keep_the_same_slots(tokens):
    fast = two_on(tokens, lookahead=True)
    assert_same_record(run(fast), run(replace(fast, multi_step=False)))


@pytest.mark.parametrize("batching", [TokenBudget, PrefillFirst])
@pytest.mark.parametrize(("reserves", "together"), [("prompt", 8), ("estimate", 7), ("clipped", 6), ("max_tokens", 3)])
def test_an_engine_that_reserves_what_may_follow_never_preempts(batching, reserves, together, monkeypatch):
    """Texts of 20 + 60 tokens on a cache of 250: 3 whole ones; an estimate lets 2, 1 and 1 more in behind them."""
    monkeypatch.setitem(RESERVES, "clipped", Reserve(1.0, 20))
    told = requests([0.0] * 8, [20] * 8, [60] * 8)
    pool = replace(memory(told, block_tokens=1), capacity_bytes=250 * 3)
    scheduler = Composed(batching(8, 512, 0.0, reserves=reserves), FixedChains(0))
    fast = replace(simulation(told, [60] * 8, lambda: scheduler), memory=pool)
    record = run(fast)
    assert (record.passes["requests"].max(), preempted(fast) == 0) == (together, reserves == "max_tokens")
    assert_same_record(record, run(replace(fast, multi_step=False)))
