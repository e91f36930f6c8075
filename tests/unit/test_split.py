"""Prefill and decode on replicas of their own, by hand: what moves, how long that takes, and where it ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.cluster.routing import Coming, Server
from specsim.cluster.split import Splitting
from specsim.errors import RouterFault
from specsim.metrics.recorder import Record
from specsim.server.admission import WAITING, Shedding
from specsim.server.kv_cache import Memory
from specsim.server.state import Machine
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation, table_of_run

POOL = Memory(10**6, 4, 3, 1)
"""3 bytes a token of the target's cache, 1 of the drafter's."""


def played(told: Any, outputs: list[int], name: str = "continuous", **more: Any) -> Record:
    split = more.pop("split", Splitting(1, 1000.0, 0.25))
    truth = hardware(0.0, 1e-3, 0.01)
    return run(
        simulation(told, outputs, factory_of(name), pool=POOL, truth=truth, replicas=2, split=split, **more),
    )


def test_a_cache_takes_its_bytes_and_the_latency_on_the_link() -> None:
    """40 tokens of 3 bytes at 1,000 bytes/s are 0.12 s, and 0.25 s until they are there."""
    record = played(requests([1.0], [40], [9]), [3])
    assert record.moves is not None
    assert record.moves.moved_bytes.tolist() == [120]
    assert record.moves.moving_s == pytest.approx([0.37])
    assert record.progress.first_token_s == pytest.approx([1.05])
    assert record.progress.first_decode_s == pytest.approx([1.42])
    assert record.progress.finish_s == pytest.approx([1.42 + 2 * 0.011])
    assert record.longest_pause_s == pytest.approx([0.37 + 0.011])
    assert record.totals.itl_s == pytest.approx([0.381, 0.011])
    assert record.replica_of.tolist() == [1]
    passes = record.passes
    assert passes is not None
    assert passes["replica"].tolist() == [0, 1, 1]
    assert passes["prefill_tokens"].tolist() == [40, 0, 0]
    assert passes["context_tokens"].tolist() == [0, 40, 41]


def test_ttft_is_of_the_prefill_pool_and_tpot_holds_the_transfer() -> None:
    row = table_of_run(played(requests([1.0], [40], [9]), [3])).iloc[0]
    assert row["ttft_s"] == pytest.approx(0.05)
    assert row["tpot_s"] == pytest.approx((0.37 + 2 * 0.011) / 2)
    assert row["decode_tpot_s"] == pytest.approx(0.011)
    assert (row["split.prefill_replica"], row["replica"], row["split.moved_bytes"]) == (0, 1, 120)
    assert row["split.moving_s"] == pytest.approx(0.37)


def test_what_the_drafter_has_read_moves_too() -> None:
    record = played(requests([1.0], [40], [9]), [6], "vllm_spec")
    assert record.moves is not None
    assert record.moves.moved_bytes.tolist() == [40 * (3 + 1)]
    passes = record.passes
    assert passes is not None
    assert set(passes["replica"][passes["prefill_tokens"] > 0].tolist()) == {0}, "nothing is read again"
    assert passes["draft_tokens"][passes["replica"] == 0].tolist() == [0, 0]


def test_one_link_sends_one_cache_after_the_other() -> None:
    """Both prompts are read in one pass, which ends at 0.07 s: the second waits for 0.06 s."""
    record = played(requests([0.0, 0.0], [20, 40], [9, 9]), [2, 2], split=Splitting(1, 1000.0))
    assert record.moves is not None
    assert record.progress.first_token_s == pytest.approx([0.07, 0.07])
    assert record.moves.moving_s == pytest.approx([0.06, 0.06 + 0.12])


def test_each_prefill_replica_has_a_link_of_its_own() -> None:
    told = requests([0.0, 0.0], [20, 40], [9, 9])
    simulated = simulation(
        told,
        [2, 2],
        factory_of("continuous"),
        pool=POOL,
        truth=hardware(0.0, 1e-3, 0.01),
        replicas=3,
        split=Splitting(2, 1000.0),
    )
    record = run(simulated)
    assert record.moves is not None
    assert record.moves.prefill_of.tolist() == [0, 1]
    assert record.moves.moving_s == pytest.approx([0.06, 0.12])


def test_whoever_has_one_token_ends_where_its_prompt_was_read() -> None:
    record = played(requests([0.0], [40], [9]), [1])
    assert record.moves is not None
    assert record.replica_of.tolist() == record.moves.prefill_of.tolist() == [0]
    assert record.progress.finish_s == pytest.approx([0.05])
    assert record.moves.moved_bytes.tolist() == [0]
    assert np.isnan(record.moves.moving_s).all()


def test_a_prefix_that_others_hold_is_not_computed_and_moves_all_the_same() -> None:
    record = played(requests([0.0], [40], [9], cached_tokens=[30]), [3])
    assert record.moves is not None
    assert record.progress.first_token_s == pytest.approx([0.02])
    assert record.moves.moved_bytes.tolist() == [120]


def test_a_preempted_request_is_read_again_where_it_decodes() -> None:
    told = requests([0.0, 0.0], [40, 40], [60, 60])
    tight = replace(POOL, capacity_bytes=Memory(0, 4, 3, 1).bytes_of(120, 100))
    record = run(
        simulation(
            told,
            [60, 60],
            factory_of("continuous"),
            pool=tight,
            truth=hardware(0.0, 1e-3, 0.01),
            replicas=2,
            split=Splitting(1, 1e9),
        )
    )
    passes = record.passes
    assert passes is not None
    assert record.progress.preemptions.sum() > 0
    assert set(passes["replica"][passes["prefill_tokens"] > 0].tolist()) == {0, 1}
    assert record.progress.emitted_tokens.tolist() == [60, 60]


def test_what_never_fits_one_decode_replica_is_rejected_before_it_is_read() -> None:
    truth = hardware(0.0, 1e-3, 0.01)
    large, small = (Machine(truth, truth, replace(POOL, capacity_bytes=size)) for size in (10**6, 300))
    told = requests([0.0, 0.0], [40, 10], [60, 9])
    record = played(told, [3, 3], machines=[large, small])
    assert record.rejected == {0: "kv_capacity"}
    assert np.isnan(record.progress.first_token_s[0])
    assert record.progress.emitted_tokens.tolist() == [0, 3]
    assert record.moves is not None
    assert record.moves.moved_bytes.tolist() == [0, 30]


@pytest.mark.parametrize("timeout_s", [0.03, 0.06, 0.2, 0.435])
def test_a_client_gives_up_while_its_prompt_is_read_or_moves_or_it_decodes(timeout_s: float) -> None:
    """Read until 0.05 s, on the link until 0.42 s, decoding until 0.644 s; who is given up has ended nowhere."""
    record = played(requests([0.0, 5.0], [40, 40], [60, 60]), [60, 2], timeout_s=timeout_s)
    assert record.rejected == {each: "timeout" for each in ((0, 1) if timeout_s < 0.431 else (0,))}
    assert np.isnan(record.progress.finish_s[list(record.rejected)]).all()
    assert record.progress.emitted_tokens[0] < 60


def test_a_client_that_is_answered_on_the_second_replica_is_not_cancelled_by_the_first() -> None:
    record = played(requests([0.0], [40], [9]), [3], timeout_s=10.0)
    assert not record.rejected
    assert record.progress.emitted_tokens.tolist() == [3]


def test_what_is_shed_is_shed_at_the_first_replica_alone() -> None:
    told = requests([0.0] * 6, [40] * 6, [9] * 6)
    record = played(told, [9] * 6, shedding=Shedding(waiting=3))
    assert set(record.rejected.values()) == {WAITING}
    assert len(record.rejected) == 3
    assert record.replica_of[list(record.rejected)].tolist() == [0, 0, 0]


def test_clients_of_a_closed_loop_wait_for_the_last_token() -> None:
    record = played(requests([0.0] * 3, [40] * 3, [9] * 3), [3, 1, 3], concurrency=1)
    finish_s, arrival_s = record.progress.finish_s, record.requests.arrival_s
    assert arrival_s[1:].tolist() == finish_s[:-1].tolist()
    assert finish_s - arrival_s == pytest.approx([0.442, 0.05, 0.442])


def test_an_engine_that_decides_ahead_lets_a_moved_request_in_as_it_does_others() -> None:
    plain, ahead = (
        played(requests([0.0, 0.3], [40, 40], [60, 60]), [60, 60], pipeline_steps=steps, split=Splitting(1, 1e9))
        for steps in (0, 1)
    )
    assert ahead.progress.emitted_tokens.tolist() == [60, 60]
    assert ahead.progress.first_decode_s[1] > plain.progress.first_decode_s[1]


class Lost:
    """A router that knows no place for a request whose prompt is cached."""

    def route(self, coming: Coming, servers: Sequence[Server]) -> int:
        return 9 if coming.cached_tokens else 0


@pytest.mark.parametrize(
    ("hits", "more"),
    [([0, 0], {"split": Splitting(2, 1e9)}), ([0, 3], {"concurrency": 1})],
    ids=["split", "closed loop"],
)
def test_a_router_that_fails_when_a_pass_ends_is_to_blame_itself(hits: list[int], more: dict[str, Any]) -> None:
    told = requests([0.0, 0.0], [40, 40], [9, 9], cached_tokens=hits)
    truth = hardware(0.0, 1e-3, 0.01)
    simulated = simulation(told, [3, 3], factory_of("continuous"), truth=truth, replicas=4, router=Lost)
    with pytest.raises(RouterFault, match=r"router Lost at 0\.\d+ s: route returned 9; expected a replica"):
        run(replace(simulated, **more))
