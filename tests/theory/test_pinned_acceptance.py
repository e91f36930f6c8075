"""Acceptance pinned as engines pin it for benchmarks: each rule's own length, from the trace and from runs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy.stats import norm

from specsim import simulate
from specsim.acceptance.curves import Acceptance
from specsim.acceptance.loading import acceptance_from_mapping
from tests.theory.test_acceptance_by_position import accepted_of, mean_length

SGLANG, METHOD = "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"
TRTLLM = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"


def pinned(**knobs: Any) -> Acceptance:
    made = acceptance_from_mapping({"kind": "pinned", **knobs}, "acceptance")
    assert isinstance(made, Acceptance)
    return made


@pytest.mark.parametrize(
    ("knobs", "accepts"),
    [
        ({"synthetic_acceptance_length": 3.6}, {2: 0.4, 3: 0.6}),
        ({"synthetic_acceptance_rates": [0.9, 0.5, 0.2]}, {0: 0.1, 1: 0.4, 2: 0.3, 3: 0.2}),
        ({SGLANG: 2.25, METHOD: "match-expected"}, {1: 0.75, 2: 0.25}),
        ({TRTLLM: 1.78}, {1: 0.22, 2: 0.78}),
    ],
)
def test_a_rule_accepts_as_often_as_the_engine(knobs: dict[str, Any], accepts: dict[int, float]) -> None:
    """Chains of five; the counts within four standard deviations, and no other count at all."""
    counts = accepted_of(pinned(**knobs), 5)
    for number, count in enumerate(counts.tolist()):
        wanted = accepts.get(number, 0.0)
        assert abs(count / counts.sum() - wanted) <= 4 * (wanted * (1 - wanted) / counts.sum()) ** 0.5 + 1 / 2048
        assert (count > 0) == (wanted > 0)


@pytest.mark.parametrize("length", [1.4, 2.6])
def test_sglang_multinomial_is_a_rounded_normal_and_its_mean_is_not_the_length(length: float) -> None:
    """Length l in 1 ... 4 of chains of three: the normal's share between l - 0.5 and l + 0.5, its ends in 1 and 4."""
    counts = accepted_of(pinned(**{SGLANG: length}), 3)
    below = norm.cdf(np.array([1.5, 2.5, 3.5]), length)
    wanted = np.diff([0.0, *below, 1.0])
    assert counts / counts.sum() == pytest.approx(wanted, abs=0.015)
    told = 1 + float(norm.sf(np.arange(1.5, 4), length).sum())
    assert abs(told - length) > 0.01
    assert mean_length(counts) == pytest.approx(told, abs=0.03)


@pytest.mark.parametrize("number", [0, 1, 3])
def test_a_whole_number_is_accepted_by_every_verification(number: int) -> None:
    assert np.flatnonzero(accepted_of(pinned(synthetic_acceptance_length=number + 1), 4)).tolist() == [number]


@pytest.mark.parametrize("scheduler", ["vllm_spec", "adaserve"])
def test_a_pinned_benchmark_and_a_run_have_one_length(scheduler: str) -> None:
    """Each verification of two drafts or more accepts two, a tree's no more; an output's last one may end it."""
    small: dict[str, Any] = {"trace": "poisson", "requests": 20, "acceptance": "pinned_vllm"}
    run = simulate(scheduler, **small)
    first, *deeper = run.metrics["spec_decode_per_position_acceptance_rates"]
    assert first > 0.95
    assert not any(deeper[1:])
    assert any(
        "synthetic_acceptance_length 3 accepts by position (cumulative) 1, 1: 3 tokens" in each for each in run.notes
    )
