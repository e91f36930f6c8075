"""Cache that is kept for drafts: what each decode verifies, and as many drafts behind that."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specsim.schedulers.composed import Composed
from specsim.schedulers.sarathi import TokenBudget
from specsim.schedulers.vllm_spec import FixedChains
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record
from tests.made import memory, requests, simulation

DRAFTS, OUTPUT = 3, 60


def two_on(tokens: int, *, lookahead: bool) -> Simulation:
    """Return a run of two requests whose texts end at 80 tokens, on a cache of so many tokens of both models."""
    told = requests([0.0, 0.0], [20, 20], [OUTPUT] * 2)
    pool = replace(memory(told, block_tokens=1), capacity_bytes=tokens * 4)
    scheduler = Composed(TokenBudget(8, 512, 0.0, lookahead), FixedChains(DRAFTS))
    return replace(simulation(told, [OUTPUT] * 2, lambda: scheduler), memory=pool)


def preempted(of: Simulation) -> int:
    return int(run(of).progress.preemptions.sum())


def test_the_youngest_yields_where_the_slots_behind_the_drafts_lack() -> None:
    """Before a step each holds up to 79 tokens; it verifies 1 + 3 and keeps 3 more, or as many as it verifies."""
    roomy, tight = 2 * (79 + 1 + 2 * DRAFTS), 2 * 80
    assert preempted(two_on(roomy, lookahead=True)) == 0
    assert preempted(two_on(tight, lookahead=True)) > 0
    assert preempted(two_on(tight, lookahead=False)) == 0, "it decodes without drafts instead"


@pytest.mark.parametrize("tokens", [120, 150, 165, 700, 1500])
def test_steps_at_once_keep_the_same_slots(tokens: int) -> None:
    fast = two_on(tokens, lookahead=True)
    assert_same_record(run(fast), run(replace(fast, multi_step=False)))
