"""SmartSpec's YAMLs in small whole runs: what load and hopeless drafts do to the length."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim.api import Run, simulate
from specsim.schedulers.composed import Composed
from specsim.schedulers.sarathi import Chunked
from specsim.schedulers.smartspec.chains import GoodputChains
from specsim.simulation import run
from tests.golden.scene import scene

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


SLOW = pytest.mark.slow
DRAFT = 0
"""The kind of a draft pass in passes.parquet."""
HOPELESS = {"acceptance": "bernoulli", "acceptance__alpha": 0.02}
"""No draft is right: after a step or two none is proposed any more."""


@pytest.mark.parametrize(
    "name",
    ["smartspec", *(pytest.param(f"smartspec_{of}", marks=pytest.mark.slow) for of in ("per_request", "oracle"))],
)
def test_where_no_draft_is_right_the_drafter_stops_reading_prompts(name: str) -> None:
    short = {} if name == "smartspec_oracle" else {"scheduler__window": 20}

    def kinds(threshold: float) -> Any:
        settings = {**HOPELESS, **short, "engine": "vllm_0_6", "scheduler__prefill_threshold": threshold}
        return outcome(name, passes=True, **settings).passes["kind"]

    kept, dropped = kinds(1.0), kinds(0.7)
    assert np.count_nonzero(dropped == DRAFT) < np.count_nonzero(kept == DRAFT) / 2


@pytest.mark.parametrize("name", ["smartspec", "smartspec_per_request", "smartspec_tree", "smartspec_oracle"])
def test_load_shortens_what_is_proposed(name: str) -> None:
    calm, busy = outcome(name, rps=1, requests=20), outcome(name, rps=2000, requests=300)
    assert mean_length(calm) > mean_length(busy)


def test_medusa_falls_back_to_fewer_candidates_under_load() -> None:
    """Section 7.2.2: nodes a step fall towards one a head, on the engine that SmartSpec was built into."""
    calm, busy = (
        outcome("smartspec_tree", engine="vllm_0_6", rps=rps, requests=requests)
        for rps, requests in ((1, 20), (2000, 300))
    )
    assert mean_length(calm) > 3
    assert mean_length(busy) <= 3


def test_the_oracle_verifies_nothing_wrong() -> None:
    run = outcome("smartspec_oracle")
    wasted = run.requests["draft_tokens"] - run.requests["accepted_tokens"]
    # Only what is right behind the end of an output may be cut.
    assert (wasted >= 0).all()
    assert (wasted <= 8).all()


@pytest.mark.parametrize("form", ["linear", "roofline"])
def test_the_scheduler_takes_whatever_form_the_belief_has(form: str) -> None:
    assert outcome("smartspec", profile__form=form).metrics["completed"] == SETTINGS["requests"]


@pytest.mark.parametrize("prefill", ["mixed", "first"])
def test_as_a_part_it_speculates_beside_chunked_prompts(prefill: Any) -> None:
    """The same scene serves everybody; with length 0 nothing is drafted."""

    def played(longest: int) -> Any:
        parts = Composed(Chunked(8, 16, prefill, 0.01), GoodputChains(longest, "global", 8, 0.7))
        return run(replace(scene(), scheduler=lambda: parts)).progress

    speculating, plain = played(4), played(0)
    assert speculating.accepted_tokens.sum() > 10
    assert plain.draft_tokens.sum() == 0
    assert speculating.emitted_tokens.tolist() == plain.emitted_tokens.tolist()
