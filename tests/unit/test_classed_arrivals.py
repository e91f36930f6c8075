"""A recording's arrivals under other requests: class and lengths from the seed."""

import hashlib
from typing import Any

import numpy as np
import pytest
import yaml

from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.workload.load import trace_recipe
from specsim.workload.trace import Trace

TEXT = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "".join(
    f"2023-11-16 18:{second // 60:02d}:{second % 60:02d}.0000000,900,90\n" for second in range(1200)
)


@pytest.fixture(autouse=True)
def place(monkeypatch, tmp_path):
    monkeypatch.setenv("SPECSIM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "AzureLLMInferenceTrace_conv.csv").write_text(TEXT)
    return tmp_path


def entry(**shares: float) -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((shipped("conf") / "trace" / "adaserve_v1.yaml").read_text())
    for name, share in shares.items():
        found["classes"][name]["share"] = share
    return {**found, "sha256": hashlib.sha256(TEXT.encode()).hexdigest()}


def by_name(trace: Trace) -> list[str]:
    assert trace.slo_class is not None
    return [trace.slo_names[code] for code in trace.slo_class]


def test_arrivals_are_the_files_and_classes_have_their_shares_and_lengths():
    trace = trace_recipe(entry()).trace(seed=0)
    assert trace.source.origin == "real"
    assert trace.arrival_s.tolist() == list(range(1200))
    names = np.array(by_name(trace))
    shares = [(names == name).mean() for name in ("coding", "summarization", "chat")]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.04)
    assert set(trace.prompt_tokens[names == "summarization"].tolist()) == {3840}
    assert trace.prompt_tokens[names != "summarization"].mean() == pytest.approx(18, rel=0.1)
    assert set(trace.output_tokens.tolist()) == {225}


def test_the_seed_draws_classes_and_lengths_alone():
    one, same, other = (trace_recipe(entry()).trace(seed=seed) for seed in (1, 1, 2))
    assert trace_recipe(entry()).drawn == {"lengths", "classes"}
    assert (by_name(one), one.prompt_tokens.tolist()) == (by_name(same), same.prompt_tokens.tolist())
    assert by_name(one) != by_name(other)
    assert one.arrival_s.tolist() == other.arrival_s.tolist()


def test_a_request_that_stays_in_its_class_keeps_its_lengths_under_other_shares():
    others = entry(coding=0.8, summarization=0.1, chat=0.1)
    few, many = (trace_recipe(given).trace(seed=3) for given in (entry(), others))
    stays = (np.array(by_name(few)) == "coding") & (np.array(by_name(many)) == "coding")
    assert 600 < stays.sum() < 840
    assert few.prompt_tokens[stays].tolist() == many.prompt_tokens[stays].tolist()


def test_mistakes_are_refused_in_one_line():
    with pytest.raises(SpecsimError, match=r"trace\.classes: shares add up to 1\.3, expected 1"):
        trace_recipe(entry(coding=0.9)).trace(seed=0)
    wrong = entry()
    wrong["classes"]["chat"]["tokens"] = wrong["classes"]["chat"].pop("prompt_tokens")
    with pytest.raises(SpecsimError, match=r"trace\.classes\.chat") as caught:
        trace_recipe(wrong).trace(seed=0)
    assert "\n" not in str(caught.value)
    with pytest.raises(SpecsimError, match=r"at least one class by name"):
        trace_recipe({**entry(), "classes": {}}).trace(seed=0)


def test_a_window_of_specserve_has_the_arrivals_of_its_file_sorted_from_zero(place):
    text = "Timestamp\n" + "".join(f"{72.0 + i / 4}\n" for i in reversed(range(400)))
    (place / "code.csv").write_text(text)
    given = yaml.safe_load((shipped("conf") / "trace" / "specserve_code.yaml").read_text())
    given["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    one, other = (trace_recipe(given).trace(seed=seed) for seed in (1, 2))
    assert one.source.origin == "real"
    assert one.arrival_s.tolist() == other.arrival_s.tolist() == [i / 4 for i in range(400)]
    assert one.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert 200 < one.prompt_tokens.mean() < 400
    assert set(one.output_tokens.tolist()) == {256}
