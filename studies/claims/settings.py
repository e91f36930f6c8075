"""Settings of the claims' tests, frozen before the tests were written: each value from a paper or a shipped default.

Rules, the same for every claim. Systems meet the same arrivals, lengths and text (common random numbers), and are
compared seed by seed. "A beats B": the 95% interval of the paired difference over the seeds lies on A's side of 0.
"At least" and "within": the mean over the seeds says so. A claim that fails is a strict xfail with its figures in
docs/claims.md; nothing here is changed for it. `engine=profiled` is what there was before engines could be chosen,
`replicas=1` before a trace could suggest a number, `V0` before engines said how they batch.
"""

from __future__ import annotations

from typing import Any

SEEDS = (0, 1, 2, 3, 4)

V0: dict[str, Any] = {"engine__batching": "prompts_first", "engine__lookahead": False}
V0 |= {"engine__max_num_seqs": 512, "engine__max_num_batched_tokens": 8192}
"""How vLLM batched when the papers compared with it: whole prompts first. Today's mixes them with decodes."""

# SmartSpec, Fig. 1: 7B with a 160M drafter on one A100, 128 tokens in and out, Poisson arrivals, acceptance 0.7.
# The engine is the one it was built into, which verifies by batch expansion: chosen when engines could be.
# Rates double from the paper's lowest, 4 requests/s, until the paper's highest, 32 in Fig. 11, is passed once.
TOKENS = {"distribution": "fixed", "mean": 128, "cv": None, "low": None, "high": None}
SMARTSPEC: dict[str, Any] = {"trace": "poisson", "requests": 200, "profile": "vicuna7b_160m_a100", **V0}
SMARTSPEC |= {"engine": "vllm_0_6", "acceptance": "bernoulli", "acceptance__alpha": 0.7}
SMARTSPEC |= {f"trace__{part}_tokens__{key}": TOKENS[key] for part in ("prompt", "output") for key in TOKENS}
SMARTSPEC_RATES = (4, 8, 16, 32, 64)
FIXED_TOKENS = 3
"""The fixed k that hurts past some load in Fig. 1."""
SMARTSPEC_MARGIN = 0.03
"""Of the better mean end-to-end latency, k = 0 or k fixed."""

# SpecServe, 7.1 and Fig. 10: 7B with a 68M drafter on one 80 GB A100-class card, Azure's bursty code trace, 200 ms
# and 30 ms times a scale of 0.8 to 1.4. The estimator knows passes alone, so the server's own thinking takes nothing.
SPECSERVE: dict[str, Any] = {"trace": "azure_code", "replicas": 1, "requests": 200, "slo": "specserve", "passes": True}
SPECSERVE |= {"profile": "vicuna7b_68m_a100", "engine": "profiled", **V0, "selection_s": 0, "selection_token_s": 0}
SPECSERVE_SCALES = (0.8, 1.0, 1.4)

# LAPS-SD, 5.1 and Fig. 5: 7B with a 68M drafter, one slot, 10 to 50 requests that arrive at almost the same time; the
# paper names no rate and no lengths, so those are the shipped ones of trace=poisson. Acceptance is as uneven as in its
# Fig. 1: rates 0.5, 0.1 and 0.8 have mean 0.47 and a standard deviation of 1.48 in their logits.
LAPS: dict[str, Any] = {"trace": "poisson", "rps": 1000, "profile": "vicuna7b_68m_a100", "engine": "profiled"}
LAPS |= {f"acceptance__categories__default__{key}": value for key, value in (("agreement", 0.47), ("spread", 1.48))}
LAPS_REQUESTS = (10, 30, 50)

# AdaServe, 6.2 and Fig. 8: the artifact's own latencies for the 70B, and its 60/20/20 mix at the rates of Fig. 10 and
# at the highest of Fig. 8; the shipped first 300 requests of each trace, at the rate that the paper names.
TODAY: dict[str, Any] = {"trace": "adaserve_fig8", "profile": "adaserve_artifact_llama70b"}
"""Its own mix on engines as they are now."""
ADASERVE: dict[str, Any] = {**TODAY, **V0}
ADASERVE_RATES = (4.0, 4.8)
ABLATIONS = ("equal_greedy", "global_greedy", "adaserve_slo_only")
BASELINES = ("continuous", "sarathi", "vllm_spec")
FIGURE_1 = ("priority", "fastserve", "vtc")
"""Added after the freeze, on a review: the continuous-batching baselines of AdaServe's Fig. 1."""
