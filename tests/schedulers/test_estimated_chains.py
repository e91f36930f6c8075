"""Chains that note what was expected of their verifications: the numbers by hand, and nothing else changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.api import simulate

RUN: dict[str, Any] = {
    "trace": "poisson",
    "requests": 40,
    "rps": 20,
    "profile": "llama8b_1b_h100",
    "acceptance": "bernoulli",
    "acceptance.alpha": 0.5,
}
NOTING = {"scheduler.speculation._target_": "specsim.schedulers.estimated_chains.EstimatedChains"}
ESTIMATED, MATCHED = "noted.estimated_tokens_per_verification", "noted.matched_tokens_per_verification"


def test_the_estimate_is_the_sum_of_path_probabilities_and_the_bonus_token() -> None:
    rows = simulate("vllm_spec", **RUN, **NOTING, **{"scheduler.num_speculative_tokens": 3}).requests
    assert rows[ESTIMATED].to_numpy() == pytest.approx(np.full(40, 1 + 0.5 + 0.25 + 0.125))
    # The confidences are the chances, so what came is what was expected, give or take the luck of some 2,000 steps.
    assert np.average(rows[MATCHED], weights=rows["verifications"]) == pytest.approx(1.875, abs=0.08)
    # Emitted tokens are cut at the output's end, matched ones are not.
    assert (rows[MATCHED] * rows["verifications"] >= rows["decoded_tokens"] - 1e-9).all()
    assert (rows[MATCHED] * rows["verifications"] <= rows["decoded_tokens"] + 3 + 1e-9).all()


def test_without_drafts_both_are_the_bonus_token() -> None:
    rows = simulate("vllm_spec", **RUN, **NOTING, **{"scheduler.num_speculative_tokens": 0}).requests
    decoded = rows["verifications"] > 0
    assert decoded.any()
    for column in (ESTIMATED, MATCHED):
        assert (rows.loc[decoded, column] == 1).all()
        assert rows.loc[~decoded, column].isna().all()


def test_noting_changes_nothing_else() -> None:
    plain, noting = (simulate("vllm_spec", **RUN, **words).requests for words in ({}, NOTING))
    assert noting[list(plain)].equals(plain)
