"""Where each request ends when clients give up and replicas refuse, for every scheduler."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.metrics.recorder import Record
from specsim.metrics.summary import summarise
from specsim.server.admission import RELATIVE_TOLERANCE, AdmissionControl
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, drawn, watched
from tests.laws.subjects import KINDS, NAMES, factory_of
from tests.made import hardware, requests, simulation

TIMEOUTS_S = st.sampled_from((0.004, 0.03, 0.11, 0.5, 3.0))
WAITING = (None, None, AdmissionControl(1), AdmissionControl(3))
CONTROLS = st.sampled_from((*WAITING, AdmissionControl(None, True), AdmissionControl(5, True)))
REASONS = {"kv_capacity", "timeout", "shed_waiting", "shed_ttft"}
law = settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow])


def check_ends(simulated: Simulation, record: Record) -> None:
    """Every request completes in time with its whole output, or has one reason; none both."""
    progress, arrival_s = record.progress, record.requests.arrival_s
    completed = ~np.isnan(progress.finish_s)
    reasons = np.array([record.rejected.get(each, "") for each in range(len(arrival_s))])
    assert np.array_equal(completed, reasons == "")
    assert set(record.rejected.values()) <= REASONS
    wanted = simulated.ground_truth.output_tokens
    assert np.array_equal(progress.emitted_tokens[completed], wanted[completed])
    assert (progress.emitted_tokens <= wanted).all()
    untouched = np.isin(reasons, ("kv_capacity", "shed_waiting", "shed_ttft"))
    assert not progress.emitted_tokens[untouched].any()
    if simulated.timeout_s is None:
        assert "timeout" not in reasons
    else:
        until_s = arrival_s + simulated.timeout_s * (1 + RELATIVE_TOLERANCE)
        assert (progress.finish_s[completed] <= until_s[completed]).all()
        late = (reasons == "timeout") & ~np.isnan(progress.first_token_s) & (progress.emitted_tokens == wanted)
        assert (progress.last_token_s[late] > until_s[late]).all()


@pytest.mark.parametrize("name", NAMES)
@law
@given(data=st.data())
def test_every_request_ends_once(name: str, data: st.DataObject) -> None:
    limits = {"timeout_s": TIMEOUTS_S, "admission_control": CONTROLS, "pipeline_steps": st.sampled_from((0, 0, 1))}
    simulated = drawn(name, data)
    simulated = replace(simulated, **{key: data.draw(values, label=key) for key, values in limits.items()})
    seen = watched(simulated)
    check_ends(simulated, seen.record)
    for view in seen.views:
        assert view.free_bytes == view.capacity_bytes
        assert not view._ledger.queues.live
    assert sum(view._ledger.finished + len(view._ledger.rejected) for view in seen.views) == len(simulated.requests)
    if name in KINDS:
        assert_same_record(seen.record, run(simulated))
    check_span(simulated, seen.record)


def check_span(simulated: Simulation, record: Record) -> None:
    """A run lasts until its last arrival, finish, cancellation or pass, and the times of all replicas sum to that."""
    totals, passes, table = record.totals, record.passes, record.table()
    assert np.array_equal(~np.isnan(table["cancelled_s"]), table["rejected_reason"] == "timeout")
    ends_s = [table[name] for name in ("arrival_s", "finish_s", "cancelled_s")]
    ends_s.append(passes["start_s"] + passes["seconds"])
    span_s = np.nanmax(np.concatenate(ends_s)) - table["arrival_s"][0]
    spent_s = totals.prefill_s + totals.draft_s + totals.selection_s + totals.verify_s + totals.idle_s
    assert spent_s == pytest.approx(simulated.replicas * span_s)
    assert (summarise(table, totals)["duration"] or 0.0) == pytest.approx(span_s)


def crowd(name: str, **more: Any) -> Simulation:
    """Return a burst of 30 requests that one server serves in about 3 s, and stragglers."""
    at = [*(0.01 * each for each in range(30)), 20.0, 20.5]
    told = requests(at, [20 + each % 7 for each in range(32)], [30] * 32, [each % 3 for each in range(32)])
    return replace(simulation(told, [10 + each % 20 for each in range(32)], factory_of(name)), **more)


@pytest.mark.parametrize("name", KINDS)
def test_patience_beyond_every_latency_changes_nothing(name: str) -> None:
    assert_same_record(run(crowd(name)), run(crowd(name, timeout_s=1e6, admission_control=AdmissionControl(1000))))


def test_what_comes_too_late_has_not_come() -> None:
    """Each pass takes 0.1 s: the third token comes at 0.3 s."""
    told = requests([0.0], [1], [3])
    plain = simulation(told, [3], factory_of("continuous"), truth=hardware(0.0, 0.0, 0.1))
    just = run(plain).progress.finish_s[0]
    assert run(replace(plain, timeout_s=float(just))).rejected == {}
    assert run(replace(plain, timeout_s=0.3)).rejected == {}, "0.1 + 0.1 + 0.1 is above 0.3"
    late = run(replace(plain, timeout_s=float(just) * (1 - 1e-8)))
    assert late.rejected == {0: "timeout"}
    assert np.isnan(late.progress.finish_s[0])
    assert late.progress.emitted_tokens[0] == 3


def test_a_full_queue_refuses() -> None:
    """One slot: the second request waits, the third meets it."""
    told = requests([0.0, 0.15, 0.16], [1] * 3, [5] * 3)
    plain = simulation(told, [5] * 3, factory_of("continuous", max_num_seqs=1), truth=hardware(0.0, 0.0, 0.1))
    assert run(replace(plain, admission_control=AdmissionControl(1))).rejected == {2: "shed_waiting"}
    assert run(replace(plain, admission_control=AdmissionControl(2))).rejected == {}


def test_an_objective_that_is_lost_is_refused() -> None:
    """At 1 ms a token 990 ahead and 9 of its own take less than 1 s, 2 more do not; without an objective all may."""
    told = requests([0.0, 0.0, 0.0, 0.0], [990, 9, 2, 2], [2] * 4, [1, 1, 1, 2])
    plain = simulation(told, [2] * 4, factory_of("continuous"), truth=hardware(0.0, 1e-3, 0.0))
    assert run(replace(plain, admission_control=AdmissionControl(None, True))).rejected == {2: "shed_ttft"}


def test_a_client_of_a_closed_loop_goes_on_when_it_gives_up() -> None:
    told = requests([0.0] * 6, [1] * 6, [50] * 6)
    plain = simulation(told, [50] * 6, factory_of("continuous"), truth=hardware(0.0, 0.0, 0.1))
    record = run(replace(plain, concurrency=1, timeout_s=1.0))
    assert record.rejected == dict.fromkeys(range(6), "timeout")
    assert record.requests.arrival_s == pytest.approx(np.arange(6), abs=0.11 * 6)
    assert (np.diff(record.requests.arrival_s) >= 1.0).all()
