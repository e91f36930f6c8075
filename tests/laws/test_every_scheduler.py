"""Every law for every scheduler in conf/scheduler; a new YAML joins by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.golden.scene import scene
from tests.laws.every import Witnessed, drawn, judge
from tests.laws.subjects import NAMES, factory_of

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


def test_a_failure_names_the_law_and_the_scheduler() -> None:
    def nothing_ends(ran: Witnessed) -> None:
        assert not ran.seen.record.progress.emitted_tokens.any()

    with pytest.raises(AssertionError) as caught:
        judge("fcfs", replace(scene(), scheduler=factory_of("fcfs")), [nothing_ends])
    assert "the law 'nothing_ends' does not hold for 'fcfs'" in caught.value.__notes__
