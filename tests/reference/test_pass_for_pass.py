"""The engine against the reference, pass for pass and request for request, on random cases.

Everything is compared to the last bit: a pass costs a handful of operations in one order, and clocks add passes up in
the order of time. Sums that the recorder takes over replicas, in another order, agree to a relative `SUM_TOLERANCE`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import fields
from math import isnan, nan
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.metrics.recorder import Record
from specsim.simulation import run
from tests.made import table_of_run
from tests.reference.cases import POLICIES, Case, cases
from tests.reference.hardware import Pass
from tests.reference.server import DRAFT, VERIFY, Server

SUM_TOLERANCE = 1e-12
TIMES = ("first_token_s", "finish_s", "first_decode_s", "longest_pause_s")
COUNTS = ("output_tokens", "draft_tokens", "accepted_tokens", "decoded_tokens")
COLUMNS = (*TIMES, *COUNTS, "verifications", "speculations", "preemptions")


def agree(name: str, examples: int) -> Counter[str]:
    """Compare so many cases of a scheduler; return in how many requests or passes each of `EVENTS` was seen."""
    seen: Counter[str] = Counter()

    @settings(max_examples=examples, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
    @given(data=st.data())
    def compared(data: st.DataObject) -> None:
        servers = assert_agree(data.draw(cases(name)))
        seen.update(event for server in servers for event in _events(server))

    compared()
    return seen


def assert_agree(case: Case) -> list[Server]:
    record, servers = run(case.simulation), case.servers()
    for server in servers:
        server.serve(case.policy)
    assert_same_passes(record, servers)
    assert_same_requests(record, servers)
    assert_same_totals(record, servers)
    return servers


def assert_same_passes(record: Record, servers: list[Server]) -> None:
    for replica, server in enumerate(servers):
        here = record.passes["replica"] == replica
        for name in (each.name for each in fields(Pass)):
            mine = [getattr(each, name) for each in server.passes]
            assert_same(record.passes[name][here], mine, f"replica {replica}: {name}")


def assert_same_requests(record: Record, servers: list[Server]) -> None:
    mine = sorted((each for server in servers for each in server.requests), key=lambda each: each.number)
    table = table_of_run(record)
    assert_same(table["rejected_reason"].to_numpy() != "", [each.rejected for each in mine], "rejected")
    for name in COLUMNS:
        assert_same(table[name].to_numpy(), [getattr(each, name) for each in mine], name)
    for name in ("prompts_s", "drafting_s"):
        seconds = [nan if isnan(each.finish_s) else getattr(each, name) for each in mine]
        assert table[name].to_numpy() == pytest.approx(seconds, rel=1e-9, abs=SUM_TOLERANCE, nan_ok=True), name


def assert_same_totals(record: Record, servers: list[Server]) -> None:
    passes = [each for server in servers for each in server.passes]
    assert record.totals.iterations == sum(each.kind == VERIFY for each in passes)
    assert record.totals.draft_passes == sum(each.kind == DRAFT for each in passes)
    gaps_s = sorted(gap_s for server in servers for gap_s in server.gaps_s)
    assert_same(np.sort(record.totals.itl_s), gaps_s, "itl_s")
    sums = {"prefill_s": 0.0, "draft_s": 0.0, "verify_s": 0.0}
    for each in passes:
        prefill_s = each.seconds * each.prefill_tokens / each.batched_tokens
        sums["prefill_s"] += prefill_s
        sums["draft_s" if each.kind == DRAFT else "verify_s"] += each.seconds - prefill_s
    for name, seconds in sums.items():
        assert getattr(record.totals, name) == pytest.approx(seconds, rel=SUM_TOLERANCE, abs=1e-15), name


def assert_same(theirs: Any, mine: list[Any], what: str) -> None:
    np.testing.assert_array_equal(theirs, np.array(mine, dtype=theirs.dtype), err_msg=what, strict=True)


SERVED = {"rejected", "arrived as a pass ended"}
PAGED = {*SERVED, "preempted"}
DRAFTED = {"accepted", "no room to draft", "caught up"}
EVENTS = {"fcfs": SERVED, "continuous": PAGED, "sarathi": {*PAGED, "cut prompt"}, "vllm_v0_spec": PAGED | DRAFTED}
EVENTS["vllm_spec"] = {"rejected", "preempted", "cut prompt"} | DRAFTED
"""What makes the cases of a scheduler worth comparing."""


@pytest.mark.parametrize("name", POLICIES)
def test_engine_and_reference_agree(name: str) -> None:
    assert EVENTS[name] <= set(agree(name, 40))


@pytest.mark.slow
@pytest.mark.parametrize("name", POLICIES)
def test_engine_and_reference_agree_on_many(name: str) -> None:
    seen = agree(name, 500)
    assert all(seen[event] >= 10 for event in EVENTS[name]), seen


def _events(server: Server) -> Iterator[str]:
    ends_s = {each.start_s + each.seconds for each in server.passes}
    drafts = any(each.draft_tokens for each in server.passes)
    for request in server.requests:
        yield from ["preempted"] * (request.preemptions > 0) + ["rejected"] * request.rejected
        yield from ["accepted"] * (request.accepted_tokens > 0)
        yield from ["arrived as a pass ended"] * (request.arrival_s in ends_s)
    for each in server.passes:
        yield from ["cut prompt"] * (each.kind == VERIFY and each.prefill_tokens > 0 == each.emitted_tokens)
        yield from ["no room to draft"] * (drafts and each.kind == VERIFY and not each.prefill_tokens + each.depth)
        yield from ["caught up"] * (each.kind == DRAFT and each.depth == 1 and each.batched_tokens > each.requests)
