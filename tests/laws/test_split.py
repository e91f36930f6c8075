"""Laws of prefill and decode on replicas of their own, for every scheduler in both pools."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.routers import LeastSeconds, LeastTokens, RoundRobin, Slack
from specsim.cluster.split import Splitting
from specsim.core.passes import TargetPass
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, assert_same_text, roomy_chains, watched
from tests.laws.subjects import KINDS, NAMES, factory_of
from tests.made import acceptance_trace, hardware, memory, requests, simulation, simulations

every_scheduler = pytest.mark.parametrize("name", NAMES)
law = settings(max_examples=3, suppress_health_check=[HealthCheck.too_slow])
INSTANT = Splitting(1, float("inf"))
splits = st.builds(Splitting, st.integers(1, 3), st.sampled_from((300.0, 1e6, np.inf)), st.sampled_from((0.0, 0.05)))
routers = st.sampled_from((RoundRobin, LeastTokens, LeastSeconds, Slack))


def split_of(simulated: Simulation, name: str, split: Splitting, router: type = RoundRobin) -> Simulation:
    return replace(simulated, replicas=4, split=split, router=router, scheduler=factory_of(name))


@every_scheduler
@law
@given(simulated=simulations(24), split=splits, router=routers)
def test_nothing_is_lost_and_nobody_runs_elsewhere(
    name: str, simulated: Simulation, split: Splitting, router: type
) -> None:
    """A request is read by its prefill replica and then runs on its decode replica alone, not before its cache came."""
    plain = split_of(simulated, name, split, router)
    seen = watched(plain)
    record, outputs = seen.record, plain.ground_truth.output_tokens
    moves, progress = record.moves, record.progress
    served = plain.memory.holds(plain.requests)
    assert set(record.rejected) == set(np.flatnonzero(~served).tolist())
    assert np.array_equal(progress.emitted_tokens, outputs * served)
    moved = served & (outputs > 1)
    assert np.array_equal(~np.isnan(moves.moving_s), moved)
    assert np.array_equal(moves.moved_bytes > 0, moved)
    assert (moves.prefill_of < split.prefill).all()
    assert (record.replica_of[moved] >= split.prefill).all()
    assert np.array_equal(record.replica_of[~moved], moves.prefill_of[~moved])
    there_s = np.where(moved, moves.arrived_s, 0.0)
    assert (progress.first_token_s[moved] == progress.first_decode_s[moved]).all()
    for place, steps in enumerate(seen.heard):
        for step in steps:
            ids = step.work.requests
            first = place < split.prefill
            assert np.array_equal((moves.prefill_of if first else record.replica_of)[ids], np.full(len(ids), place))
            if first and isinstance(step.work, TargetPass):
                assert not step.work.forest.draft_nodes
            if not first:
                assert (step.asked_s >= there_s[ids] * (1 - 1e-12)).all()
    for view in seen.views:
        assert view.free_bytes == view.capacity_bytes
    if name in KINDS:
        assert_same_record(record, run(plain))


@pytest.mark.parametrize("name", KINDS)
@law
@given(simulated=simulations(24), split=splits)
def test_prompts_are_read_as_if_there_were_no_others(name: str, simulated: Simulation, split: Splitting) -> None:
    """The prefill pool is the same servers with outputs of one token; first tokens come over the link after that."""
    plain, truth = split_of(simulated, name, split), simulated.ground_truth
    single = replace(truth, output_tokens=np.ones_like(truth.output_tokens))
    told = replace(plain.requests, max_tokens=np.minimum(plain.requests.max_tokens, 2))
    alone = {"split": None, "replicas": split.prefill, "ground_truth": single, "requests": told}
    alone["too_long"] = ~plain.memory.holds(plain.requests)  # What no decode replica holds is not read.
    found, wanted = run(plain), run(replace(plain, **alone))
    read_s = np.fmin(found.progress.first_token_s, found.moves.arrived_s - found.moves.moving_s)
    assert read_s == pytest.approx(wanted.progress.first_token_s, abs=1e-12, nan_ok=True)


@law
@given(simulated=simulations(30), split=splits)
def test_the_text_is_that_of_a_run_that_is_not_split(simulated: Simulation, split: Splitting) -> None:
    plain = roomy_chains(simulated)
    assert_same_text(run(replace(plain, split=split)), run(plain))


@law
@given(simulated=simulations(24), latency_s=st.sampled_from((0.01, 0.5)))
def test_a_link_takes_nothing_from_anybody_else(simulated: Simulation, latency_s: float) -> None:
    """A later arrival of all caches leaves prompts alone, and each cache arrives that much later."""
    instant, later = (
        run(split_of(simulated, "continuous", INSTANT._replace(link_latency_s=s))) for s in (0, latency_s)
    )
    moved = ~np.isnan(instant.moves.moving_s)
    assert later.moves.arrived_s == pytest.approx(instant.moves.arrived_s + latency_s, nan_ok=True)
    assert not instant.moves.moving_s[moved].any()
    assert later.moves.moving_s[moved] == pytest.approx(np.full(moved.sum(), latency_s))


def tight(name: str, agreement: float, factor: float) -> Simulation:
    """Return a crowd whose decode replicas hold `factor` times the largest request, and a drafter of that luck."""
    at = np.arange(40)
    told = requests((at // 6 * 0.1).tolist(), (1 + at * 7 % 29).tolist(), [15] * 40, (at % 3).tolist())
    truth, text = hardware(), acceptance_trace(40, agreement, silent=agreement < 0.5)
    dear = replace(truth, draft=replace(truth.draft, delta=truth.target.delta / 2))
    pools = {"pool": memory(told, factor, 4), "replicas": 3, "split": Splitting(1, 1e6)}
    outputs = (2 + at * 11 % 12).tolist()
    return simulation(told, outputs, factory_of(name), truth=dear, text=text, router=LeastTokens, **pools)


@every_scheduler
@pytest.mark.parametrize(("agreement", "factor"), [(0.05, 1.5), (0.95, 2.2)])
def test_what_admission_charges_is_what_a_pass_takes(name: str, agreement: float, factor: float) -> None:
    """Every request ends where pools are full, whether the drafter is worth its passes, its cache is brought or not."""
    simulated = tight(name, agreement, factor)
    record = run(simulated)
    assert not record.rejected
    assert np.array_equal(record.progress.emitted_tokens, simulated.ground_truth.output_tokens)
