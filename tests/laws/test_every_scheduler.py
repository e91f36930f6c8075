"""Every law for every scheduler in conf/scheduler; a new YAML joins by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.simulation import run
from tests.laws.every import assert_same_record, drawn, judge
from tests.laws.subjects import KINDS, NAMES

every_scheduler = pytest.mark.parametrize("name", NAMES)
law = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])


@every_scheduler
@law
@given(data=st.data())
def test_laws(name: str, data: st.DataObject) -> None:
    judge(name, drawn(name, data))


@pytest.mark.parametrize("name", KINDS)
@settings(law, max_examples=2)
@given(data=st.data())
def test_keeping_no_passes_changes_nothing_else(name: str, data: st.DataObject) -> None:
    simulated = drawn(name, data)
    assert_same_record(replace(run(simulated), passes=None), run(replace(simulated, keep_passes=False)))


@pytest.mark.slow
@every_scheduler
@settings(
    max_examples=20, deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(data=st.data())
def test_laws_thoroughly(name: str, data: st.DataObject) -> None:
    """Larger examples, others in every session, whose seed is said when it starts."""
    judge(name, drawn(name, data, most_requests=40))
