"""What computes the inner loops changes no byte of a run, whatever the scheduler."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.simulation import run
from tests.examples import examples
from tests.laws.every import assert_same_record, drawn
from tests.laws.subjects import NAMES

pytest.importorskip("numba", reason="needs specsim[fast]")


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=examples(4, 25), deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_a_compiled_run_is_the_same_run(name: str, data: st.DataObject) -> None:
    simulation = replace(drawn(name, data), keep_passes=True)
    runs = [run(replace(simulation, kernel=kernel)) for kernel in ("numpy", "numba")]
    assert_same_record(*runs)
