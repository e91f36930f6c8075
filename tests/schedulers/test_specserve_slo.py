"""SpecServe on random runs: no step exceeds the strictest objective, and what is estimated is what runs."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.core.passes import DraftPass
from specsim.simulation import Simulation
from tests.laws.subjects import factories
from tests.laws.watch import watched
from tests.made import one, simulations


def steps_of(simulated: Simulation) -> list[tuple[float, float, float, int]]:
    """Return (seconds, seconds without drafts, strictest objective, draft passes) of every decoding step."""
    seen, steps = watched(simulated), []
    passes = seen.record.passes
    assert passes is not None
    for replica, heard in enumerate(seen.heard):
        mine = {name: column[passes["replica"] == replica] for name, column in passes.items()}
        drafted, start_s = 0, 0.0
        for place, step in enumerate(heard):
            start_s = mine["start_s"][place] if not drafted else start_s
            if isinstance(step.work, DraftPass):
                drafted += 1
                continue
            if not mine["prefill_tokens"][place]:
                seconds = mine["start_s"][place] + mine["seconds"][place] - start_s
                plain_s = simulated.truth.target.seconds(
                    one(int(mine["context_tokens"][place]), len(step.work.requests), 0.0)
                )
                objectives = simulated.requests.tpot_slo_s[step.work.requests]
                steps.append((seconds, plain_s, float(np.fmin.reduce(objectives, initial=np.inf)), drafted))
            drafted = 0
    return steps


@pytest.mark.parametrize("name", ["specserve", "specserve_minus"])
@settings(max_examples=12, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_no_step_exceeds_the_strictest_objective_where_one_without_drafts_would_not(
    name: str, data: st.DataObject
) -> None:
    """Passes take what they are believed to take, and thinking takes nothing."""
    simulated = data.draw(simulations(24))
    simulated = replace(simulated, belief=simulated.truth, selection_token_s=0.0, scheduler=data.draw(factories(name)))
    for seconds, plain_s, objective_s, drafted in steps_of(simulated):
        if plain_s <= objective_s:
            assert seconds <= objective_s * (1 + 1e-9)
        else:
            assert not drafted
