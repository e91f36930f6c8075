"""Laws of replicas on different hardware: its own times, its own memory, its own cost model."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.dispatch import Outstanding, Sent
from specsim.cluster.routers import LeastSeconds, LeastTokens, RoundRobin
from specsim.metrics.requests import DRAFT_PASS, VERIFY_PASS
from specsim.server.ledger import Ledger
from specsim.server.state import Hardware
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, watched
from tests.laws.subjects import KINDS, factory_of
from tests.made import hardware, memory, requests, simulation, simulations

law = settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])


def alike(simulated: Simulation) -> Hardware:
    return Hardware(simulated.truth, simulated.cost_model, simulated.memory, simulated.host_bytes_per_s)


def machines(simulated: Simulation) -> list[Hardware]:
    """Return three machines, each slower or faster by its factor, with memory and link of its own."""
    own, fleet = alike(simulated), []
    for factor in (1.0, 2.5, 0.4):
        models = simulated.truth.slower(factor), simulated.cost_model.slower(factor * 1.1)
        memory = replace(own.memory, capacity_bytes=int(own.memory.capacity_bytes * factor))
        fleet.append(Hardware(*models, memory, own.host_bytes_per_s / factor))
    return fleet


@pytest.mark.parametrize("name", ["continuous", "adaserve", "vllm_spec", "fastserve"])
@law
@given(simulated=simulations(24), router=st.sampled_from((RoundRobin, LeastTokens, LeastSeconds)))
def test_equal_machines_are_a_fleet_of_one_kind(name: str, simulated: Simulation, router: type) -> None:
    plain = replace(simulated, replicas=3, router=router, scheduler=factory_of(name))
    assert_same_record(run(plain), run(replace(plain, hardware=[alike(simulated)] * 3)))


@pytest.mark.parametrize("name", KINDS)
@law
@given(simulated=simulations(24), router=st.sampled_from((RoundRobin, LeastTokens, LeastSeconds)))
def test_a_pass_takes_what_it_takes_on_its_replica(name: str, simulated: Simulation, router: type) -> None:
    """No seconds but those of the passes: nothing moves to a host, and selecting takes no time."""
    fleet = machines(simulated)
    still = [each._replace(host_bytes_per_s=float("inf")) for each in fleet]
    plain = replace(simulated, replicas=3, router=router, scheduler=factory_of(name), selection_token_s=0.0)
    seen = watched(replace(plain, hardware=still))
    passes, record = seen.record.passes, seen.record
    for place, machine in enumerate(still):
        for kind, model in ((VERIFY_PASS, machine.truth.target), (DRAFT_PASS, machine.truth.draft)):
            mine = (passes["replica"] == place) & (passes["kind"] == kind)
            if kind == DRAFT_PASS and model.one_pass:
                continue
            counts = passes["context_tokens"][mine], passes["batched_tokens"][mine]
            wanted = model.alpha * counts[0] + model.gamma * counts[1] + model.delta
            assert passes["seconds"][mine] == pytest.approx(wanted, rel=1e-12)
        ends_s = (passes["start_s"] + passes["seconds"])[(passes["replica"] == place) & (passes["kind"] == VERIFY_PASS)]
        here = (record.replica_of == place) & ~np.isnan(record.progress.finish_s)
        for times in (record.progress.first_token_s[here], record.progress.finish_s[here]):
            assert np.isin(times, ends_s).all()
        assert seen.views[place].cost_model is machine.cost_model
        assert seen.views[place].capacity_bytes == machine.memory.capacity_bytes
    most = plain.requests.prompt_tokens + plain.requests.max_tokens
    capacity = np.array([each.memory.capacity_bytes for each in fleet])[record.replica_of]
    too_large = fleet[0].memory.bytes_of(most, most) > capacity
    assert set(record.rejected) == set(np.flatnonzero(too_large).tolist())


@pytest.mark.parametrize("slower", [1.0, 3.0])
def test_the_seconds_that_are_owed_are_those_of_the_hardware(slower: float) -> None:
    """By hand: a prompt of 10 that is unread with 4 cached, one of 20 that is read, five tokens each at most."""
    told = requests([0.0, 0.0], [10, 20], [5, 5], cached_tokens=[4, 0])
    ledger, cost_model = Ledger(2, memory(told)), hardware(1e-3, 1e-2, 0.1).slower(slower)
    sent = Sent(np.zeros(2), told.prompt_tokens, told.prompt_tokens + told.max_tokens, told.cached_tokens)
    server = Outstanding(ledger, cost_model, sent)
    assert server.outstanding_s() == 0.0
    assert not hasattr(server, "send"), "hints list what is public"
    for request in (0, 1):
        server._send(request)
        ledger.arrive(request, told, 0.0)
    ledger.progress.target_cached[1], ledger.progress.emitted_tokens[1] = 20, 1
    reading_s = 1e-3 * 4 + 1e-2 * 6 + 0.1
    decoding_s = 1e-3 * (10 + 21) + 1e-2 * 2 + 0.1
    assert server.outstanding_s() == pytest.approx(slower * (reading_s + decoding_s * (5 + 4) / 2))
    ledger.progress.emitted_tokens[0] = 0
    ledger.facts.prompt_tokens[0] = 0  # an engine that decides ahead has not let it in
    assert server.outstanding_s() == pytest.approx(slower * (reading_s + decoding_s * (5 + 4) / 2))


def test_least_seconds_sends_more_to_the_faster_server() -> None:
    told = requests((np.arange(60) * 0.05).tolist(), [40] * 60, [20] * 60)
    plain = simulation(told, [20] * 60, factory_of("continuous"), replicas=2, truth=hardware(0.0, 1e-3, 0.02))
    own = alike(plain)
    slow = own._replace(truth=plain.truth.slower(4.0), cost_model=plain.cost_model.slower(4.0))
    runs = [run(replace(plain, hardware=[slow, own], router=router)) for router in (RoundRobin, LeastSeconds)]
    shares = [np.bincount(each.replica_of, minlength=2).tolist() for each in runs]
    assert shares[0] == [30, 30]
    assert shares[1][1] > 2 * shares[1][0]
