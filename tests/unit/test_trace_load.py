import gzip
import hashlib

import numpy as np
import pytest
import yaml

from specsim.files.yaml_file import shipped
from specsim.metrics.validity import stand_in
from specsim.workload.load import load_trace
from tests.made import refusal

NAMES = sorted(file.stem for file in (shipped("conf") / "trace").glob("*.yaml"))
DRAWN = ("poisson", "gamma", "bursts")
PUBLISHED = [name for name in NAMES if name not in (*DRAWN, "adaserve_fig1", "file")]
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"


def entry(name, **changes):
    values = yaml.safe_load((shipped("conf") / "trace" / f"{name}.yaml").read_text())
    values.pop("defaults", None)
    return {**values, **changes}


@pytest.fixture(autouse=True)
def nothing_real(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def refused(values, said, **kwargs):
    assert said in refusal(load_trace, values, seed=1, **kwargs)


def azure_rows(n=3):
    return (AZURE + "".join(f"2023-11-16 18:17:0{i},{i + 5},1\r\n" for i in range(n))).encode()


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_ships_stands_in_and_says_so(name):
    trace = load_trace(entry(name), seed=1)
    kind = "twin" if entry(name)["file"].startswith("Azure") else "toy"
    assert trace.source.origin == kind
    said = {"twin": "the synthetic twin that ships", "toy": "the toy that ships, its first requests"}[kind]
    assert stand_in(trace.source.name, trace.source.origin) == f"{name}: {said}"
    assert "found neither" not in (trace.source.note or "")
    assert trace.source.licence
    refused(entry(name, twin=False), "trace.twin=false, but ")


def test_the_real_file_is_found_by_name_and_checksum_and_passed_over_by_checksum(monkeypatch, tmp_path):
    good, bad = tmp_path / "b" / "deep" / "er", tmp_path / "a"
    good.mkdir(parents=True)
    bad.mkdir()
    name = "AzureLLMInferenceTrace_code.csv"
    (good / name).write_bytes(azure_rows())
    (bad / name).write_bytes(azure_rows(2))
    values = entry("azure_code", sha256=hashlib.sha256(azure_rows()).hexdigest())
    monkeypatch.setenv("SPECSIM_DATA", f"{bad}:{tmp_path / 'none'}:{tmp_path / 'b'}")
    trace = load_trace(values, seed=1)
    assert (len(trace), trace.source.origin, trace.source.note) == (3, "real", None)
    assert trace.source.sha256 == values["sha256"]
    monkeypatch.setenv("SPECSIM_DATA", str(bad))
    trace = load_trace(values, seed=1)
    assert trace.source.origin == "twin"
    assert f"{bad / name} has another sha256 and is not used" in trace.source.note
    refused({**values, "twin": False}, "has another sha256")


def test_a_gzip_of_the_original_counts_and_the_cache_is_looked_in(tmp_path):
    cache = tmp_path / "cache" / "specsim"
    cache.mkdir(parents=True)
    (cache / "AzureLLMInferenceTrace_conv.csv.gz").write_bytes(gzip.compress(azure_rows()))
    values = entry("azure_conv", sha256=hashlib.sha256(azure_rows()).hexdigest())
    assert load_trace(values, seed=1).source.origin == "real"
    (cache / "AzureLLMInferenceTrace_conv.csv.gz").write_bytes(gzip.compress(azure_rows())[:-9])
    assert "truncated gzip" in load_trace(values, seed=1).source.note


def test_an_artifact_json_is_read_where_the_parquet_is_not(monkeypatch, tmp_path):
    row = '{"emission_time_ms": 0.0, "input_length": 3, "output_length": 2, "prompt": "p", "slo_ratio": 1.2}'
    (tmp_path / "emission_rps3.6_ol128.json").write_text(f"[{row}]")
    values = entry("adaserve_fig15")
    values["points"] = [{**values["points"][0], "sha256": hashlib.sha256(f"[{row}]".encode()).hexdigest()}]
    monkeypatch.setenv("SPECSIM_DATA", str(tmp_path))
    trace = load_trace(values, seed=1)
    assert (trace.source.origin, trace.source.file) == ("real", "emission_rps3.6_ol128.json")
    assert trace.prompt_tokens.tolist() == [3]


def test_window_then_limit_then_rate():
    whole = load_trace(entry("azure_conv"), seed=1)
    trace = load_trace(entry("azure_conv", window=[600, 1200]), seed=1, requests=500, rps=3.0)
    start = np.searchsorted(whole.arrival_s, 600)
    assert trace.row.tolist() == list(range(start, start + 500))
    assert trace.rate_per_s == pytest.approx(3.0, rel=1e-14)
    assert np.array_equal(trace.prompt_tokens, whole.prompt_tokens[start : start + 500])
    refused(entry("poisson"), "requests=0", requests=0)
    refused(entry("mooncake_synthetic"), "(the shipped toy) holds 300 requests", requests=301)


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("poisson", {"prompt_tokens": {"distribution": "zipf"}}, "distribution: 'zipf' is unknown"),
        ("poisson", {"prompt_tokens": {"distribution": "fixed", "mean": 3, "cv": 1}}, "cv: 1 changes nothing"),
        (
            "poisson",
            {"prompt_tokens": {"distribution": "uniform", "low": 9, "high": 3}},
            "low: 9 is not at most high",
        ),
    ],
)
def test_a_bad_key_or_value_is_one_line(name, changes, said):
    refused(entry(name, **changes), said)
