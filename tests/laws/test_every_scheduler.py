"""Every law for every scheduler in conf/scheduler; a new YAML joins by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.metrics.requests import VERIFY_PASS
from specsim.schedulers.loading import AS_ENGINE
from specsim.simulation import Simulation, run
from tests.laws.every import assert_same_record, drawn, judge
from tests.laws.subjects import KINDS, NAMES, factory_of
from tests.made import simulations

every_scheduler = pytest.mark.parametrize("name", NAMES)
law = settings(max_examples=6, suppress_health_check=[HealthCheck.too_slow])


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
@settings(law, max_examples=10, derandomize=False, print_blob=True)
@given(data=st.data())
def test_laws_thoroughly(name: str, data: st.DataObject) -> None:
    """Larger examples, others in every session, whose seed is said when it starts."""
    judge(name, drawn(name, data, most_requests=40))


FOLLOWERS = [
    name for name in NAMES if read_yaml(shipped("conf") / "scheduler" / f"{name}.yaml").get("batching") == AS_ENGINE
]


@pytest.mark.parametrize("name", FOLLOWERS)
@settings(max_examples=8)
@given(simulated=simulations(24), tokens=st.integers(1, 80), slots=st.integers(1, 12))
def test_no_pass_is_larger_than_the_budget(name: str, simulated: Simulation, tokens: int, slots: int) -> None:
    """Drafts included, for those that batch as the engine does, on a mixed one."""
    assert {"vllm", "vllm_spec", "vllm_dynamic", "adaptive_verification"} <= set(FOLLOWERS)
    try:
        factory = factory_of(name, max_num_batched_tokens=tokens, max_num_seqs=slots)
    except SpecsimError:
        assume(False)
        raise
    record = run(replace(simulated, scheduler=factory, keep_passes=True))
    assert record.passes is not None
    verified = record.passes["batched_tokens"][record.passes["kind"] == VERIFY_PASS]
    assert verified.max(initial=0) <= tokens
