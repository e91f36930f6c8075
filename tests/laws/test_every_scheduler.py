"""Every law for every scheduler in conf/scheduler; a new YAML joins by itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.every import drawn, judge
from tests.laws.subjects import NAMES

every_scheduler = pytest.mark.parametrize("name", NAMES)


@every_scheduler
@settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_laws(name: str, data: st.DataObject) -> None:
    judge(name, drawn(name, data))


@pytest.mark.slow
@every_scheduler
@settings(
    max_examples=20, deadline=None, derandomize=False, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
@given(data=st.data())
def test_laws_thoroughly(name: str, data: st.DataObject) -> None:
    """Larger examples, others in every session, whose seed is said when it starts."""
    judge(name, drawn(name, data, most_requests=40))
