"""Reported confidences: by draft position, and made surer or blunter than right, which changes nothing but them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit

from specsim import simulate
from specsim.acceptance.reported import ConfidenceCalibration
from tests.theory.test_acceptance_by_position import acceptance

FALLING = [0.85, 0.73, 0.68, 0.62, 0.58, 0.55]


@pytest.mark.parametrize(("temperature", "bias"), [(0.5, 0.0), (3.0, -1.0)])
def test_the_likeliest_token_is_reported_as_the_rule_says_and_a_row_stays_a_row(
    temperature: float, bias: float
) -> None:
    made = replace(acceptance(conditional=FALLING), pool_rows=1)
    text = made.acceptance_trace(["text"], np.zeros(8, dtype=np.int64), np.arange(8), 0)
    told = ConfidenceCalibration(temperature, bias).applied(text)
    assert told.confidence[:, 0] == pytest.approx(expit(logit(text.confidence[:, 0]) / temperature + bias))
    assert (np.diff(told.confidence, axis=1) <= 0).all()
    assert (told.confidence >= 0).all()
    assert told.confidence.sum(axis=1).max() <= 1 + 1e-12
    assert np.array_equal(told.rank, text.rank)
    assert np.array_equal(told.truth, text.truth)


SMALL: dict[str, Any] = {"trace": "poisson", "requests": 40, "acceptance": "bernoulli"}


def test_a_run_reports_how_far_confidences_are_from_right() -> None:
    """Right 70% of the time, reported at logit 0.8473 / 0.5 + 0.5 = 2.1946: 0.8998, an error of 0.1998."""
    told = simulate("vllm_spec", **SMALL, acceptance__confidence__temperature=0.5, acceptance__confidence__bias=0.5)
    for numbers in told.metrics["specsim"]["acceptance"].values():
        assert numbers["top1_agreement"] == pytest.approx(0.7, abs=1e-3)
        assert numbers["mean_confidence"] == pytest.approx(0.8998, abs=1e-4)
        assert numbers["calibration_error"] == pytest.approx(0.1998, abs=1e-3)


def test_schedulers_that_ignore_confidences_serve_the_same_and_others_do_not() -> None:
    """AdaServe sizes trees by confidence: of a drafter that is too unsure it verifies other tokens."""
    for scheduler, same in (("vllm_spec", True), ("continuous", True), ("adaserve", False)):
        own, told = (
            simulate(scheduler, "poisson", requests=60, rps=20, acceptance__confidence__temperature=temperature)
            for temperature in (1, 4)
        )
        assert own.requests.equals(told.requests) == same
        assert own.requests["output_tokens"].equals(told.requests["output_tokens"])
