"""A recording's arrivals under other requests: class and lengths from the seed."""

import hashlib

import numpy as np
import pytest

from specsim.files.yaml_file import read_yaml, shipped
from specsim.workload.load import trace_recipe
from tests.made import refusal

TEXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{second // 60:02d}:{second % 60:02d}.0000000,900,90\n" for second in range(1200)
)


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECSIM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_text(TEXT)
    return tmp_path


def entry(**shares):
    found = read_yaml(shipped("conf") / "trace" / "adaserve_v1.yaml")
    for name, share in shares.items():
        found["classes"][name]["share"] = share
    return found | {"sha256": hashlib.sha256(TEXT.encode()).hexdigest()}


def drawn(given, seed):
    trace = trace_recipe(given).trace(seed=seed)
    return trace, np.array(trace.slo_names)[trace.slo_class]


def test_arrivals_are_the_files_and_the_seed_draws_classes_by_their_shares_and_lengths_alone():
    assert trace_recipe(entry()).drawn == {"lengths", "classes"}
    (trace, names), (same, same_names), (other, other_names) = (drawn(entry(), seed) for seed in (1, 1, 2))
    assert trace.source.origin == "real"
    assert trace.arrival_s.tolist() == other.arrival_s.tolist() == list(range(1200))
    shares = [(names == name).mean() for name in ("coding", "summarization", "chat")]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    assert set(trace.prompt_tokens[names == "summarization"].tolist()) == {3840}
    assert trace.prompt_tokens[names != "summarization"].mean() == pytest.approx(18, rel=0.1)
    assert set(trace.output_tokens.tolist()) == {225}
    assert (names.tolist(), trace.prompt_tokens.tolist()) == (same_names.tolist(), same.prompt_tokens.tolist())
    assert names.tolist() != other_names.tolist()
    many, many_names = drawn(entry(coding=0.8, summarization=0.1, chat=0.1), 1)
    stays = (names == "coding") & (many_names == "coding")
    assert 600 < stays.sum() < 840
    assert trace.prompt_tokens[stays].tolist() == many.prompt_tokens[stays].tolist(), "under other shares the same"


def test_mistakes_are_refused_in_one_line():
    wrong = entry()
    wrong["classes"]["chat"]["tokens"] = wrong["classes"]["chat"].pop("prompt_tokens")
    for given, said in (
        (entry(coding=0.9), "trace.classes: shares add up to 1.3, expected 1"),
        (wrong, "trace.classes.chat"),
        (entry() | {"classes": {}}, "at least one class by name"),
    ):
        assert said in refusal(drawn, given, 0)


def test_a_window_of_specserve_has_the_arrivals_of_its_file_sorted_from_zero(place):
    text = "Timestamp\n" + "".join(f"{72.0 + i / 4}\n" for i in reversed(range(400)))
    (place / "code.csv").write_text(text)
    given = read_yaml(shipped("conf") / "trace" / "specserve_code.yaml")
    given["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    one, other = (trace_recipe(given).trace(seed=seed) for seed in (1, 2))
    assert one.source.origin == "real"
    assert one.arrival_s.tolist() == other.arrival_s.tolist() == [i / 4 for i in range(400)]
    assert one.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert 200 < one.prompt_tokens.mean() < 400
    assert set(one.output_tokens.tolist()) == {256}
