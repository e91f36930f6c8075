"""Every law for every scheduler in conf/scheduler; a new YAML joins by itself."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.laws.every import LAWS, Law
from tests.laws.subjects import NAMES

every_law = pytest.mark.parametrize("law", LAWS, ids=lambda law: law.__name__)
every_scheduler = pytest.mark.parametrize("name", NAMES)


@every_law
@every_scheduler
@settings(max_examples=25, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_law(law: Law, name: str, data: st.DataObject) -> None:
    law(name, data)


@pytest.mark.slow
@every_law
@every_scheduler
@settings(max_examples=40, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_law_thoroughly(law: Law, name: str, data: st.DataObject) -> None:
    law(name, data)
