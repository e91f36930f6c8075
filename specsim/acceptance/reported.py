"""Confidences as a drafter reports them: sharper, blunter or shifted against how often it is right."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from specsim.acceptance.curves import LEAST_CONFIDENCE
from specsim.files.checked_mapping import CheckedMapping

if TYPE_CHECKING:
    from specsim.acceptance.trace import AcceptanceTrace

CONFIDENCE = "confidence"
"""The key of an acceptance file, beside those of its kind."""
KEYS = ("temperature", "bias")


@dataclass(frozen=True, slots=True)
class ConfidenceCalibration:
    """A drafter's calibration: its reported confidence c' in its likeliest token has logit c' = logit c / T + b.

    Temperature scaling as of Guo et al. 2017, Section 4.2, and a bias: T below 1 or b above 0 is a drafter that is
    surer than it should be. At T = 1 and b = 0 the confidences are the acceptance's own.
    """

    temperature: float = 1.0
    bias: float = 0.0

    def applied(self, acceptance_trace: AcceptanceTrace) -> AcceptanceTrace:
        """Return the trace with these confidences, right where it was; later ranks share what the first one leaves.

        A row stays in descending order, and its sum at most 1. A row that proposes nothing stays so, and no other does.
        """
        if self == ConfidenceCalibration():
            return acceptance_trace
        from scipy.special import expit, logit

        first = acceptance_trace.confidence[:, :1]
        sure = expit(logit(first) / self.temperature + self.bias)
        told = np.where(first > 0, np.maximum(sure, LEAST_CONFIDENCE), 0.0)
        left = np.divide(1 - told, 1 - first, out=np.zeros_like(first), where=first < 1)
        behind = np.minimum.accumulate(
            np.concatenate((told, acceptance_trace.confidence[:, 1:] * left), axis=1), axis=1
        )
        return replace(acceptance_trace, confidence=behind, target_probability=acceptance_trace.truth)


def reported(mapping: Mapping[str, Any], source: str) -> ConfidenceCalibration:
    """Return the calibration that an acceptance file states; null, or no key: the acceptance's own confidences.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    if not isinstance(mapping.get(CONFIDENCE), Mapping):
        return ConfidenceCalibration()
    node = CheckedMapping(source, "", mapping).child(CONFIDENCE)
    node.only((), KEYS)
    return ConfidenceCalibration(
        node.number("temperature", above=0, most=100) if node.given("temperature") else 1.0,
        node.number("bias", least=-100, most=100) if node.given("bias") else 0.0,
    )
