"""Laws of every router: who serves a request, what a router may look at, and what it must not change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from math import inf
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.dispatch import Outstanding
from specsim.cluster.routers import Affinity, CacheAware, Dedicated, LeastSeconds, LeastTokens, RoundRobin, Slack
from specsim.cluster.routing import Coming, Planning, Router, Server
from specsim.core.protocols import View
from specsim.core.request import Prefixes
from specsim.metrics.recorder import Record
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_text, roomy_chains, watched
from tests.laws.subjects import factory_of
from tests.made import CLASSES, requests, simulation, simulations


def pools() -> Router:
    return Dedicated(LeastTokens(), {"urgent": 1, "chat": 2, "batch": 1})


ROUTERS: dict[str, Callable[[], Router]] = {"round_robin": RoundRobin, "least_tokens": LeastTokens, "slack": Slack}
ROUTERS |= {"least_seconds": LeastSeconds, "affinity": Affinity, "dedicated": pools}
ROUTERS |= {"cache_aware": lambda: CacheAware(1.0)}
every_router = pytest.mark.parametrize("name", ROUTERS)
law = settings(max_examples=8, suppress_health_check=[HealthCheck.too_slow])


class Decision(NamedTuple):
    """What a router was told, what each server said it owed, due by the deadline and in all, and held, and its word."""

    coming: Coming
    due: list[int]
    owed: list[int]
    held: list[int]
    place: int


class Overheard:
    """A router that passes on what another one says, and keeps it in `said`."""

    def __init__(self, inner: Router, said: list[Decision]) -> None:
        self.inner, self._said = inner, said

    def plan(self, classes: Sequence[str], servers: int) -> None:
        if isinstance(self.inner, Planning):
            self.inner.plan(classes, servers)

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        for index, server in enumerate(servers):
            assert isinstance(server, Outstanding)
            # Requests are routed in the order of their ids.
            check_face(server, [request for request, each in enumerate(self._said) if each.place == index])
        due = [each.outstanding_tokens(coming.due_s) for each in servers]
        owed = [each.outstanding_tokens() for each in servers]
        held = [each.potential_tokens(coming) for each in servers]
        place = self.inner.route(coming, servers)
        self._said.append(Decision(coming, due, owed, held, place))
        return place


def check_face(server: Outstanding, sent: Sequence[int]) -> None:
    """Count again, request by request of those `sent` to it, what a server is owed."""
    ledger, told = server._ledger, server._ledger.facts
    owed = due = live = unread = 0
    deadline_s = np.nanmax([*ledger.facts.arrival_s, 0.0]) + 1.037
    for request in sent:
        entered = ledger.facts.prompt_tokens[request] > 0
        ended = not np.isnan(ledger.progress.finish_s[request]) or request in ledger.rejected
        if not entered or ended:
            continue
        text = int(told.prompt_tokens[request]) + int(ledger.progress.emitted_tokens[request])
        to_read = text - int(ledger.progress.target_cached[request])
        tokens = to_read + int(told.max_tokens[request] - ledger.progress.emitted_tokens[request])
        owed, live = owed + tokens, live + 1
        unread += 0 if ledger.progress.emitted_tokens[request] and to_read == 1 else to_read
        ttft_s, tpot_s = np.nan_to_num([told.ttft_slo_s[request], told.tpot_slo_s[request]])
        if not np.isnan([told.ttft_slo_s[request], told.tpot_slo_s[request]]).all():
            late_s = told.arrival_s[request] + ttft_s + tpot_s * (told.max_tokens[request] - 1)
            due += tokens if late_s <= deadline_s else 0
    assert server.requests == live
    assert server.running <= live
    assert server.unread_tokens == unread
    assert server.active_tokens == sum(ledger.progress.target_cached[ledger.queues.running].tolist())
    assert server.outstanding_tokens() == owed
    assert server.outstanding_tokens(deadline_s) == due


def heard(simulated: Simulation, name: str) -> tuple[Record, list[Decision]]:
    said: list[Decision] = []
    record = run(replace(simulated, router=lambda: Overheard(ROUTERS[name](), said)))
    return record, said


def several(simulated: Simulation) -> Simulation:
    return replace(simulated, replicas=4, scheduler=factory_of("continuous"))


@every_router
@law
@given(simulated=simulations(30))
def test_a_request_goes_to_one_replica_and_stays(name: str, simulated: Simulation) -> None:
    shown = dict[int, set[int]]()

    def spy(view: View) -> None:
        shown.setdefault(id(view), set()).update([*view.waiting, *view.running.tolist()])

    seen = watched(replace(several(simulated), router=ROUTERS[name]), spy)
    replica_of = seen.record.replica_of
    assert ((replica_of >= 0) & (replica_of < 4)).all()
    for replica, steps in enumerate(seen.heard):
        named = {request for step in steps for request in step.work.requests.tolist()}
        assert (replica_of[list(named)] == replica).all()
    for replica, view in enumerate(seen.views):
        sent = {*np.flatnonzero(replica_of == replica).tolist()}
        assert shown.get(id(view), set()) == sent - seen.record.rejected.keys()


@every_router
@law
@given(simulated=simulations(30))
def test_a_router_sees_what_each_replica_owes_and_says_the_same_again(name: str, simulated: Simulation) -> None:
    record, said = heard(several(simulated), name)
    assert [each.place for each in said] == record.replica_of.tolist()
    again, same = heard(several(simulated), name)
    assert said == same or any(np.isnan([each.coming.ttft_slo_s, each.coming.tpot_slo_s]).any() for each in said)
    assert np.array_equal(record.replica_of, again.replica_of)


@law
@given(simulated=simulations(30))
def test_least_tokens_and_slack_never_choose_a_replica_with_more_that_is_as_urgent(simulated: Simulation) -> None:
    for each in heard(several(simulated), "least_tokens")[1]:
        assert each.place == each.owed.index(min(each.owed))
    for each in heard(several(simulated), "slack")[1]:
        assert (each.due[each.place], each.owed[each.place]) == min(zip(each.due, each.owed, strict=True))
        if each.coming.due_s == inf:
            assert each.due == each.owed


@law
@given(simulated=simulations(30))
def test_dedicated_pools_never_mix(simulated: Simulation) -> None:
    record = run(replace(several(simulated), router=pools))
    classes = np.array(CLASSES)[record.requests.slo_class]
    for name, pool in {"urgent": {0}, "chat": {1, 2}, "batch": {3}}.items():
        assert set(record.replica_of[classes == name].tolist()) <= pool


@law
@given(simulated=simulations(30), data=st.data())
def test_a_session_stays_on_its_replica(simulated: Simulation, data: st.DataObject) -> None:
    count = len(simulated.requests)
    sessions = np.array(data.draw(st.lists(st.integers(0, 4), min_size=count, max_size=count)), dtype=np.int64)
    record = run(replace(several(simulated), router=Affinity, sessions=sessions))
    for session in set(sessions.tolist()):
        assert len(set(record.replica_of[sessions == session].tolist())) == 1


@every_router
@law
@given(simulated=simulations(30))
def test_outputs_and_acceptance_do_not_depend_on_the_router(name: str, simulated: Simulation) -> None:
    plain = roomy_chains(simulated)
    assert_same_text(run(plain), run(replace(plain, router=ROUTERS[name])))


@every_router
def test_a_router_knows_no_output(name: str) -> None:
    """Requests that come at once are sent alike, whatever their outputs will be."""
    told = requests([0.0] * 12, [9] * 12, [40] * 12, [0, 1, 2] * 4)
    lengths, four = ([40] * 12, [1] * 12, range(1, 13)), {"replicas": 4, "router": ROUTERS[name]}
    sent = [run(simulation(told, outputs, factory_of("continuous"), **four)).replica_of for outputs in lengths]
    assert (np.array(sent) == sent[0]).all()


def test_slack_looks_past_work_that_can_wait() -> None:
    """Replica 0 has much to do that is due late, replica 1 little that is due soon."""
    told = requests([0.0, 0.0, 0.001], [500, 20, 5], [90, 50, 60], [1, 0, 0])
    plain = simulation(told, [90, 50, 60], factory_of("continuous"), replicas=2)
    assert run(replace(plain, router=LeastTokens)).replica_of.tolist() == [0, 1, 1]
    assert run(replace(plain, router=Slack)).replica_of.tolist() == [0, 1, 0]


@pytest.mark.parametrize(
    ("weight", "ahead", "kinds", "sent"),
    [
        *((1.0, 0, (0, 1, 1, 0, 1), [0, 1, 1, 0, 1]), (0.0, 0, (0, 1, 1, 0, 1), [0, 1, 0, 1, 0])),
        (1.0, 1, (0, 1, 1, 1, 1), [0, 1, 1, 1, 1]),
        (0.0, 0, (0, 1, 0, 1, 1), [0, 1, 0, 1, 1]),
    ],
)
def test_cache_aware_goes_where_a_prompt_is_cached_unless_there_is_more_to_read(
    weight: float, ahead: int, kinds: Sequence[int], sent: list[int]
) -> None:
    """Prompts of two kinds, the first of each alone; then three at once, of which no weight makes the kinds equal."""
    told = requests([0.0, 100.0, 200.0, 200.0, 200.0], [40] * 5, [1] * 5)
    hashes = [np.arange(10) + 100 * kind for kind in kinds]
    prefixes = Prefixes(np.concatenate(hashes), 10 * np.arange(5), np.full(5, 10), 4)
    two = {"replicas": 2, "router": lambda: CacheAware(weight), "prefixes": prefixes, "pipeline_steps": ahead}
    assert run(simulation(told, [1] * 5, factory_of("continuous"), **two)).replica_of.tolist() == sent


def test_potential_tokens_count_a_shared_block_once_from_its_first_request_to_its_last() -> None:
    """Blocks of 4, in turn to both replicas: four prompts at once share the first, and the rest by pairs; one later."""
    told = requests([0.0] * 4 + [100.0], [8, 11, 8, 11, 8], [9] * 5)
    prefixes = Prefixes(np.array([1, 2, 1, 3, 4]), np.array([0, 2, 0, 2, 0]), np.array([2, 3, 2, 3, 2]), 4)
    two = simulation(told, [9] * 5, factory_of("continuous"), replicas=2, prefixes=prefixes)
    assert [each.held for each in heard(two, "round_robin")[1]] == [[8, 8], [15, 11], [8, 15], [15, 14], [8, 8]]
