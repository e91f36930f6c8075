"""SmartSpec's YAMLs in small whole runs: what load and hopeless drafts do to the length."""

from __future__ import annotations

from typing import Any

import pytest

from specsim.api import Run, simulate

SETTINGS: dict[str, Any] = {
    "trace": "poisson",
    "requests": 40,
    "rps": 8,
    "profile": "llama8b_1b_h100",
    "trace__output_tokens__mean": 48,
}


def outcome(scheduler: str, **settings: Any) -> Run:
    return simulate(scheduler, **{**SETTINGS, **settings})


def mean_length(run: Run) -> float:
    """Return the draft tokens of a verification."""
    return float(run.requests["draft_tokens"].sum() / run.requests["verifications"].sum())


@pytest.mark.parametrize("name", ["smartspec", "smartspec_per_request", "smartspec_tree", "smartspec_oracle"])
def test_load_shortens_what_is_proposed(name: str) -> None:
    calm, busy = outcome(name, rps=1, requests=20), outcome(name, rps=2000, requests=300)
    assert mean_length(calm) > mean_length(busy)


def test_a_policy_that_hardly_drafts_says_so_and_why_where_objectives_leave_no_room() -> None:
    hopeless = {"acceptance": "bernoulli", "acceptance__alpha": 0.02, "engine": "vllm_0_6", "scheduler__window": 20}
    without_room = outcome("smartspec", **hopeless, scheduler__prefill_threshold=1.0)
    with_room = simulate("specserve", trace="poisson", requests=12, rps=8, replicas=2)
    said = [[note for note in run.notes if " of its decoding steps" in note] for run in (without_room, with_room)]
    assert [len(each) for each in said] == [1, 1]
    assert all("the strictest TPOT objective is" in note for (note,) in said)
    assert ["nothing for the drafter to catch up with" in note for (note,) in said] == [False, True]


def test_the_oracle_verifies_nothing_wrong() -> None:
    run = outcome("smartspec_oracle")
    wasted = run.requests["draft_tokens"] - run.requests["accepted_tokens"]
    # Only what is right behind the end of an output may be cut.
    assert (wasted >= 0).all()
    assert (wasted <= 8).all()
