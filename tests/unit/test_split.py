"""Prefill and decode on replicas of their own, by hand: what moves, how long that takes, and where it ends."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.cluster.split import Splitting
from specsim.errors import RouterFault
from specsim.metrics.requests import DRAFT_PASS
from specsim.server.kv_cache import Memory
from specsim.server.state import Hardware
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation

TRUTH = hardware(0.0, 1e-3, 0.01)
POOL = Memory(10**6, 4, 3, 1)
"""3 bytes a token of the target's cache, 1 of the drafter's."""


def played(told, outputs, name="continuous", **more):
    split = more.pop("split", Splitting(1, 1000.0, 0.25))
    return run(simulation(told, outputs, factory_of(name), pool=POOL, truth=TRUTH, replicas=2, split=split, **more))


def test_a_cache_takes_its_bytes_and_the_latency_on_the_link():
    """40 tokens of 3 bytes at 1,000 bytes/s are 0.12 s, and 0.25 s until they are there."""
    record = played(requests([1.0], [40], [9]), [3])
    done, moves = record.progress, record.moves
    times = (moves.moving_s, done.first_token_s, done.first_decode_s, done.finish_s, record.longest_pause_s)
    assert np.stack(times)[:, 0] == pytest.approx([0.37, 1.42, 1.42, 1.42 + 2 * 0.011, 0.011])
    assert record.totals.itl_s == pytest.approx([0.011, 0.011])
    assert (moves.moved_bytes.tolist(), record.replica_of.tolist()) == ([120], [1])
    expected = {"replica": [0, 1, 1], "prefill_tokens": [40, 0, 0], "context_tokens": [0, 40, 41]}
    assert {name: record.passes[name].tolist() for name in expected} == expected


def test_what_the_drafter_has_read_moves_too():
    record = played(requests([1.0], [40], [9]), [6], "vllm_spec")
    assert record.moves.moved_bytes.tolist() == [40 * (3 + 1)]
    passes = record.passes
    assert set(passes["replica"][passes["prefill_tokens"] > 0].tolist()) == {0}, "nothing is read again"
    assert passes["draft_tokens"][passes["replica"] == 0].tolist() == [0, 0]
    drafts = (passes["replica"] == 1) & (passes["kind"] == DRAFT_PASS)
    assert record.spent_s[:, 0] == pytest.approx([0, passes["seconds"][drafts].sum()])


def test_one_link_sends_one_cache_after_the_other():
    """Both prompts are read in one pass, which ends at 0.07 s: the second waits for 0.06 s."""
    record = played(requests([0.0, 0.0], [20, 40], [9, 9]), [2, 2], split=Splitting(1, 1000.0))
    assert record.progress.first_token_s == pytest.approx([0.07 + 0.06, 0.07 + 0.06 + 0.12])
    assert record.moves.moving_s == pytest.approx([0.06, 0.06 + 0.12])


@pytest.mark.parametrize(("timeout_s", "second_s", "emitted"), [(None, 0.299, [20, 20]), (0.25, np.nan, [16, 0])])
def test_a_first_token_waits_for_its_request_to_be_admitted_where_it_decodes(timeout_s, second_s, emitted):
    """The decode replica holds one of both, for 19 passes of 0.011 s from 0.09 s on, when both prompts are read."""
    told, pools = requests([0.0] * 2, [40] * 2, [20] * 2), [replace(POOL, capacity_bytes=size) for size in (10**6, 250)]
    kinds = [Hardware(TRUTH, TRUTH, pool) for pool in pools]
    done = played(told, [20] * 2, split=Splitting(1, 1e12), hardware=kinds, timeout_s=timeout_s).progress
    assert done.first_token_s == pytest.approx([0.09, second_s], nan_ok=True)
    assert done.emitted_tokens.tolist() == emitted


def test_what_never_fits_one_decode_replica_is_rejected_before_it_is_read():
    large, small = (Hardware(TRUTH, TRUTH, replace(POOL, capacity_bytes=size)) for size in (10**6, 300))
    told = requests([0.0, 0.0], [40, 10], [60, 9])
    record = played(told, [3, 3], hardware=[large, small])
    assert record.rejected == {0: "kv_capacity"}
    assert (record.progress.emitted_tokens.tolist(), record.moves.moved_bytes.tolist()) == ([0, 3], [0, 30])
    record = played(requests([0.0] * 3, [20] * 3, [60] * 3), [3] * 3, "fcfs", hardware=[small, large])
    assert record.passes["prefill_tokens"].max() == 60, "nothing is reserved for what is emitted elsewhere"


@pytest.mark.parametrize("timeout_s", [0.03, 0.06, 0.2, 0.435])
def test_a_client_gives_up_while_its_prompt_is_read_or_moves_or_it_decodes(timeout_s):
    """Read until 0.05 s, on the link until 0.42 s, decoding until 0.644 s; who is given up has ended nowhere."""
    record = played(requests([0.0, 5.0], [40, 40], [60, 60]), [60, 2], timeout_s=timeout_s)
    assert record.rejected == {each: "timeout" for each in ((0, 1) if timeout_s < 0.431 else (0,))}
    assert np.isnan(record.progress.finish_s[list(record.rejected)]).all()
    assert record.progress.emitted_tokens[0] < 60


class Lost:
    """A router that knows no place for a request whose prompt is cached."""

    def route(self, coming, servers):
        return 9 if coming.cached_tokens else 0


@pytest.mark.parametrize(
    ("hits", "more"),
    [([0, 0], {"split": Splitting(2, 1e9)}), ([0, 3], {"concurrency": 1})],
    ids=["split", "closed loop"],
)
def test_a_router_that_fails_when_a_pass_ends_is_at_fault_itself(hits, more):
    told = requests([0.0, 0.0], [40, 40], [9, 9], cached_tokens=hits)
    simulated = simulation(told, [3, 3], factory_of("continuous"), truth=TRUTH, replicas=4, router=Lost)
    with pytest.raises(RouterFault, match=r"router Lost at 0\.\d+ s: route returned 9; expected a replica"):
        run(replace(simulated, **more))
