"""A model has a context: what is longer is refused at its arrival, whatever else there is."""

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from specsim.api import simulate
from specsim.cluster.split import Splitting
from specsim.config.groups import choices
from specsim.latency.profile import load_profile
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import refusal, requests, simulation

TRACE = pd.DataFrame({"arrival_s": [0.0, 5.0, 9.0, 9.5], "prompt_tokens": [20_000, 300, 3_900, 3_900]})


def served(outputs, **more):
    return simulate(
        "continuous", TRACE.assign(output_tokens=outputs), profile="vicuna7b_68m_a100", acceptance="bernoulli", **more
    )


def test_a_prompt_and_an_output_beyond_the_context_are_refused_and_the_reason_is_seen():
    ran = served([100, 100, 196, 197])
    assert ran.requests["rejected_reason"].tolist() == ["context_length", "", "", "context_length"]
    assert ran.requests["output_tokens"].tolist() == [0, 100, 196, 0]
    assert ran.metrics["specsim"]["rejected"] == {"context_length": 2}
    said = "2 requests refused: prompt and output exceed the target's context"
    assert any(note.startswith(said) for note in ran.notes)
    assert ran.metrics["specsim"]["load"]["makespan_ratio"] >= 1


def test_a_context_can_be_set_and_let_go():
    longer = served([100, 100, 196, 197], profile__target__max_model_len=20_099)
    assert longer.metrics["specsim"]["rejected"] == {"context_length": 1}
    endless = served([100, 100, 196, 197], profile__target__max_model_len=None)
    assert endless.metrics["specsim"]["rejected"] == {}
    note = "profile=vicuna7b_68m_a100: states no target.max_model_len: no request is too long for its context"
    assert note in endless.notes
    assert not any("max_model_len" in each for each in longer.notes if "refused" not in each)
    said = refusal(served, [1] * 4, profile__target__max_model_len=1)
    assert "target.max_model_len: 1 is not a whole number between 2" in said


def test_a_scheduler_is_told_of_no_more_tokens_than_the_context_leaves():
    class Told:
        def step(self, view):
            seen.update(zip(view.prompt_tokens.tolist(), view.max_tokens.tolist(), strict=True))
            yield from base.step(view)

    seen = {}
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


CONTEXTS = {
    131_072: ("Llama-3.1-70B", "Llama-3.1-8B", "Llama-3.3-70B", "gpt-oss-120b"),
    # Qwen2.5-1.5B: of the instructed one.
    32_768: ("Qwen2.5-32B", "Qwen2.5-1.5B", "Qwen2.5-Coder-1.5B"),
    40_960: ("Qwen3-32B", "Qwen3-8B", "Qwen3-30B-A3B", "Qwen3-235B-A22B-FP8"),
    **{163_840: ("DeepSeek-V3",), 4_096: ("Vicuna-7B",), 8_192: ("SmolLM2-135M",)},
}
"""The `max_position_embeddings` of each model's published configuration."""


@pytest.mark.parametrize("name", sorted(set(choices("profile")) - {"file"}))
def test_every_shipped_profile_states_the_context_of_its_target(name):
    profile = load_profile(name)
    assert profile.target.name in CONTEXTS[profile.target.max_model_len]
    assert profile.draft.max_model_len is None


@pytest.mark.parametrize(("clients", "frontend_s", "pipeline_steps"), [(1, 0.0, 0), (2, 0.04, 0), (3, 0.04, 1)])
def test_thousands_of_rejections_in_a_row_are_answers_to_clients_that_wait(clients, frontend_s, pipeline_steps):
    """The first request is rejected while others are still being sent, and the rest outnumber Python's stack."""
    prompts = [4_000, 4, 4, *[4_000] * 2_000, 4]
    n = len(prompts)
    simulated = simulation(requests([0.0] * n, prompts, [4] * n), [4] * n, factory_of("continuous"))
    small = replace(simulated, memory=replace(simulated.memory, capacity_bytes=200), concurrency=clients)
    record = run(replace(small, frontend_s=frontend_s, pipeline_steps=pipeline_steps))
    assert sorted(record.rejected) == [0, *range(3, n - 1)]
    assert np.isfinite(record.progress.finish_s[[1, 2, n - 1]]).all()
    assert (np.diff(record.requests.arrival_s) >= 0).all()
