"""The best k of a 70B with EAGLE-3, as SpecForge's bundle measures it (sgl-project/SpecForge, docs/spec_bundle)."""

from __future__ import annotations

import pytest
from scipy.optimize import brentq

from specsim.api import simulate

MEASURED = {3: (2.92, 1235), 5: (3.53, 1378), 7: (3.88, 1425)}
"""Llama-3.3-70B on 4 H200, batch 8: by k, tokens a verification and output tokens/s."""


def test_a_head_of_the_70bs_own_shape_is_best_at_seven() -> None:
    """Lengths of 400 and 200 tokens are assumed; the engine is SGLang, as in the source."""
    found = {}
    for k, (length, _) in MEASURED.items():
        alpha = brentq(lambda rate, k=k, length=length: sum(rate**i for i in range(k + 1)) - length, 0.0, 1.0)
        run = simulate(
            "vllm_spec",
            "poisson",
            requests=160,
            concurrency=8,
            slo="one",
            profile="llama70b_1b_4xh200",
            drafter="eagle3",
            engine="sglang_0_5",
            acceptance="bernoulli",
            acceptance__alpha=alpha,
            trace__prompt_tokens=400,
            trace__output_tokens=200,
            scheduler__num_speculative_tokens=k,
        )
        found[k] = run.metrics["output_throughput"]
    assert max(found, key=found.__getitem__) == 7
    assert found == pytest.approx({k: measured for k, (_, measured) in MEASURED.items()}, rel=0.1)
