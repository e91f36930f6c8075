"""The best number of draft tokens: `specsim.tune` finds a closed form's; a simulated 70B has that of the real one."""

from typing import Any

import pytest
from scipy.optimize import brentq

import specsim
from specsim.search.tuned import SPEEDUP_OFF

DRAFT_S = 1e-3


def shared(clients: int, alpha: float, token_s: float, pass_s: float) -> dict[str, Any]:
    """Return settings of `clients` that decode at once, on passes of ``pass_s + token_s`` seconds a token."""

    def line(delta_s: float, gamma_s: float) -> dict[str, float]:
        return {"alpha_s": 1e-12, "gamma_s": gamma_s, "delta_s": delta_s}

    target, draft = line(pass_s, token_s), line(DRAFT_S, 1e-9)
    forms = {"profile__target__forms__linear": target, "profile__draft__forms__linear": draft}
    hardware = {"profile": "llama8b_1b_h100", "profile__form": "linear", **forms, "engine": "ideal"}
    lengths = {"trace": "poisson", "trace__prompt_tokens": 2, "trace__output_tokens": 256}
    load = {"requests": 3 * clients, "concurrency": clients, "slo": "one"}
    text = {"acceptance": "bernoulli", "acceptance__alpha": alpha}
    return {**hardware, **lengths, **load, **text, "of": "output_throughput", "seeds": range(3), "progress": False}


def tokens_per_s(k: int, clients: int, alpha: float, token_s: float, pass_s: float) -> float:
    """Return tokens of a verification over its seconds: Leviathan et al., ICML 2023, equation 1."""
    seconds = pass_s + clients * (k + 1) * token_s + k * DRAFT_S
    return float(clients * sum(alpha**i for i in range(k + 1)) / seconds)


def test_a_fixed_number():
    of, lengths, best = (8, 0.8, 2e-4, 0.010), range(1, 8), 4
    assert max(lengths, key=lambda k: tokens_per_s(k, *of)) == best, "the problem itself"
    values = {"num_speculative_tokens": list(lengths), "max_num_batched_tokens": [None]}
    tuned = specsim.tune("vllm_spec", values=values, trials=7, **shared(*of))
    found = tuned.best.settings["num_speculative_tokens"]
    mean, half_width = tuned.measured(0)
    assert tuned.trials["vllm_spec"] == 7
    assert tokens_per_s(best, *of) - tokens_per_s(found, *of) <= half_width
    assert tuned.error is not None
    off = max(1 - 1 / (1 + tuned.error), SPEEDUP_OFF), max(1 / (1 - tuned.error) - 1, SPEEDUP_OFF)
    assert tuned.band() == pytest.approx((mean * (1 - off[0]), mean * (1 + off[1])))
    less = "speed-up 3.8% lower"
    assert tuned.measured(0, less)[0] == pytest.approx(mean * (1 - SPEEDUP_OFF))
    assert tuned.measured(tuned.plain, less) == tuned.measured(tuned.plain), "without drafts nothing changes"
    assert "output tokens/s against" in str(tuned)
    assert not any("objectives" in each for each in tuned.judgements), "no throughput is held against an objective"
    assert mean == pytest.approx(tokens_per_s(found, *of), rel=0.1), "beside prompts and the last tokens of answers"


@pytest.mark.usefixtures("one_condition")
def test_a_table_by_batch_size_with_more_choices_than_trials():
    """Of 5**3 tables 10 are tried; the batch of 16 uses the middle range alone."""
    of = (16, 0.7, 5e-4, 0.010)
    key = "speculation.num_speculative_tokens_per_batch_size"
    table = {each: [5, 4, 3, 2, 1] for each in ("1-8", "9-32", "33-512")}
    values = {key: table, "max_num_batched_tokens": [None]}
    tuned = specsim.tune("vllm_dynamic", values=values, trials=10, **shared(*of) | {"trace__output_tokens": 96})
    assert tuned.trials["vllm_dynamic"] == 10
    assert tuned.best.settings[key]["9-32"] == max(range(1, 6), key=lambda k: tokens_per_s(k, *of)) == 1


MEASURED = {3: (2.92, 1235), 5: (3.53, 1378), 7: (3.88, 1425)}
"""Llama-3.3-70B on 4 H200, batch 8: by k, tokens a verification and output tokens/s, on SGLang
(sgl-project/SpecForge, docs/spec_bundle)."""
SERVED = {"requests": 160, "concurrency": 8, "trace__prompt_tokens": 400, "trace__output_tokens": 200, "slo": "one"}
"""Lengths of 400 and 200 tokens are assumed."""
HEAD = {"profile": "llama70b_1b_4xh200", "drafter": "eagle3", "engine": "sglang_0_5", "acceptance": "bernoulli"}


def test_a_head_of_the_70bs_own_shape_is_best_at_seven():
    found = {}
    for k, (length, _) in MEASURED.items():
        alpha = brentq(lambda rate, k=k, length=length: sum(rate**i for i in range(k + 1)) - length, 0.0, 1.0)
        chains = {"acceptance__alpha": alpha, "scheduler__num_speculative_tokens": k}
        found[k] = specsim.simulate("vllm_spec", "poisson", **SERVED, **HEAD, **chains).metrics["output_throughput"]
    assert max(found, key=found.__getitem__) == 7
    assert found == pytest.approx({k: measured for k, (_, measured) in MEASURED.items()}, rel=0.1)
