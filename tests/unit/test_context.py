"""A model has a context: what is longer is refused at its arrival, whatever else there is."""

from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest

from specsim.api import simulate
from specsim.cluster.split import Splitting
from specsim.config.groups import choices
from specsim.errors import SpecsimError
from specsim.latency.profile import load_profile
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import requests, simulation

TRACE = pd.DataFrame({"arrival_s": [0.0, 5.0, 9.0, 9.5], "prompt_tokens": [20_000, 300, 3_900, 3_900]})


def served(outputs: list[int], **more: Any) -> Any:
    return simulate(
        "continuous", TRACE.assign(output_tokens=outputs), profile="vicuna7b_68m_a100", acceptance="bernoulli", **more
    )


def test_a_prompt_and_an_output_beyond_the_context_are_refused_and_the_reason_is_seen():
    ran = served([100, 100, 196, 197])
    assert ran.requests["rejected_reason"].tolist() == ["context_length", "", "", "context_length"]
    assert ran.requests["output_tokens"].tolist() == [0, 100, 196, 0]
    assert ran.metrics["specsim"]["rejected"] == {"context_length": 2}
    assert any(
        note.startswith("2 requests refused: prompt and output exceed the target's context") for note in ran.notes
    )
    assert ran.metrics["specsim"]["load"]["makespan_ratio"] >= 1


def test_a_context_can_be_set_and_let_go():
    longer = served([100, 100, 196, 197], profile__target__max_model_len=20_099)
    assert longer.metrics["specsim"]["rejected"] == {"context_length": 1}
    endless = served([100, 100, 196, 197], profile__target__max_model_len=None)
    assert endless.metrics["specsim"]["rejected"] == {}
    note = "profile=vicuna7b_68m_a100: states no target.max_model_len: no request is too long for its context"
    assert note in endless.notes
    assert not any("max_model_len" in each for each in longer.notes if "refused" not in each)
    with pytest.raises(SpecsimError, match=r"target\.max_model_len: 1 is not a whole number between 2"):
        served([1] * 4, profile__target__max_model_len=1)


def test_a_scheduler_is_told_of_no_more_tokens_than_the_context_leaves():
    class Told:
        def step(self, view):
            seen.update(zip(view.prompt_tokens.tolist(), view.max_tokens.tolist(), strict=True))
            yield from base.step(view)

    seen: dict[int, int] = {}
    base = factory_of("continuous")()
    simulate(Told, TRACE.assign(output_tokens=100), profile="vicuna7b_68m_a100", acceptance="bernoulli")
    assert {prompt: most for prompt, most in seen.items() if prompt} == {300: 2048, 3_900: 196, 20_000: 2048}


@pytest.mark.parametrize("more", [{}, {"replicas": 3}, {"replicas": 2, "split": Splitting(1, 1e9)}, {"concurrency": 2}])
def test_however_requests_are_sent_the_same_are_refused(more):
    told = requests([0.0, 0.1, 0.2, 5.0], [4, 9, 4, 9], [5] * 4)
    plain = simulation(told, [5] * 4, factory_of("continuous"), too_long=np.array([False, True, False, True]))
    record = run(replace(plain, **more))
    assert record.rejected == {1: "context_length", 3: "context_length"}
    assert record.progress.emitted_tokens.tolist() == [5, 0, 5, 0]
    assert (record.replica_of >= 0).all()


@pytest.mark.parametrize("name", sorted(set(choices("profile")) - {"file"}))
def test_every_shipped_profile_states_the_context_of_its_target(name):
    """From the `max_position_embeddings` of each model's published configuration."""
    contexts = {
        "Llama-3.1-70B": 131_072,
        "Llama-3.1-8B": 131_072,
        "Qwen2.5-32B": 32_768,
        "Qwen2.5-1.5B": 32_768,  # of the instructed one
        "Qwen2.5-Coder-1.5B": 32_768,
        "Qwen3-32B": 40_960,
        "Qwen3-8B": 40_960,
        "Qwen3-30B-A3B": 40_960,
        "Qwen3-235B-A22B-FP8": 40_960,
        "Llama-3.3-70B": 131_072,
        "gpt-oss-120b": 131_072,
        "DeepSeek-V3": 163_840,
        "Vicuna-7B": 4_096,
        "SmolLM2-135M": 8_192,
    }
    profile = load_profile(name)
    assert profile.target.max_model_len == contexts[profile.target.name]
    assert profile.draft.max_model_len is None
