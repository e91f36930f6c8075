"""A trace by its name: the real file or what ships in its place and how like it is, blocks drawn again, early ends."""

import gzip
import hashlib
import json
import re
from dataclasses import asdict

import numpy as np
import pytest
import yaml

from specsim.config.configured import from_point
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.metrics.tables import stand_in
from specsim.runs.prepare import prepare
from specsim.workload import synthetic
from specsim.workload.load import resample, trace_recipe
from specsim.workload.readers import content
from specsim.workload.synthetic import ended_early, hazard_of
from specsim.workload.trace import Trace, TraceSource
from specsim.workload.user_file import read_user_file
from tests.made import refusal
from tools import fit_surrogates
from tools.describe import describe

NAMES = {file.stem for file in (shipped("conf") / "trace").glob("*.yaml")}
PUBLISHED = sorted(NAMES - {"poisson", "gamma", "bursts", "adaserve_fig1", "file"})
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
pytestmark = pytest.mark.usefixtures("empty_cache")


def entry(name, **changes):
    values = yaml.safe_load((shipped("conf") / "trace" / f"{name}.yaml").read_text())
    return {**values, **changes}


def refused(values, said, **kwargs):
    assert said in refusal(lambda: trace_recipe(values).trace(seed=1, **kwargs))


def azure_rows(n=3):
    return (AZURE + "".join(f"2023-11-16 18:17:0{i},{i + 5},1\r\n" for i in range(n))).encode()


@pytest.mark.parametrize("name", PUBLISHED)
def test_what_ships_stands_in_and_says_so(name):
    trace = trace_recipe(entry(name)).trace(seed=1)
    said = {"surrogate": "the synthetic surrogate that ships", "toy": "the toy that ships, its first requests"}
    kind = "surrogate" if entry(name)["file"].startswith("Azure") else "toy"
    assert (trace.source.origin, stand_in(trace.source.name, kind)) == (kind, f"{name}: {said[kind]}")
    assert "found neither" not in (trace.source.note or "")
    assert trace.source.licence
    refused(entry(name, surrogate=False), "trace.surrogate=false, but ")


def test_the_real_file_is_found_by_name_and_checksum_and_passed_over_by_checksum(monkeypatch, tmp_path):
    good, bad = tmp_path / "b" / "deep" / "er", tmp_path / "a"
    good.mkdir(parents=True)
    bad.mkdir()
    name = "AzureLLMInferenceTrace_code.csv"
    (good / name).write_bytes(azure_rows())
    (bad / name).write_bytes(azure_rows(2))
    values = entry("azure_code", sha256=hashlib.sha256(azure_rows()).hexdigest())
    monkeypatch.setenv("SPECSIM_DATA", f"{bad}:{tmp_path / 'none'}:{tmp_path / 'b'}")
    trace = trace_recipe(values).trace(seed=1)
    assert (len(trace), trace.source.origin, trace.source.note) == (3, "real", None)
    assert trace.source.sha256 == values["sha256"]
    monkeypatch.setenv("SPECSIM_DATA", str(bad))
    trace = trace_recipe(values).trace(seed=1)
    assert trace.source.origin == "surrogate"
    assert f"{bad / name} has another sha256 and is not used" in trace.source.note
    refused({**values, "surrogate": False}, "has another sha256")


def test_a_gzip_of_the_original_counts_and_the_cache_is_looked_in(tmp_path):
    cache = tmp_path / "cache" / "specsim"
    cache.mkdir(parents=True)
    (cache / "AzureLLMInferenceTrace_conv.csv.gz").write_bytes(gzip.compress(azure_rows()))
    values = entry("azure_conv", sha256=hashlib.sha256(azure_rows()).hexdigest())
    assert trace_recipe(values).trace(seed=1).source.origin == "real"
    (cache / "AzureLLMInferenceTrace_conv.csv.gz").write_bytes(gzip.compress(azure_rows())[:-9])
    assert "truncated gzip" in trace_recipe(values).trace(seed=1).source.note


def test_an_artifact_json_is_read_where_the_parquet_is_not(monkeypatch, tmp_path):
    row = '{"emission_time_ms": 0.0, "input_length": 3, "output_length": 2, "prompt": "p", "slo_ratio": 1.2}'
    (tmp_path / "emission_rps3.6_ol128.json").write_text(f"[{row}]")
    values = entry("adaserve_fig15")
    values["points"] = [{**values["points"][0], "sha256": hashlib.sha256(f"[{row}]".encode()).hexdigest()}]
    monkeypatch.setenv("SPECSIM_DATA", str(tmp_path))
    trace = trace_recipe(values).trace(seed=1)
    assert (trace.source.origin, trace.source.file) == ("real", "emission_rps3.6_ol128.json")
    assert trace.prompt_tokens.tolist() == [3]


def test_window_then_limit_then_rate():
    whole = trace_recipe(entry("azure_conv")).trace(seed=1)
    trace = trace_recipe(entry("azure_conv", window=[600, 1200])).trace(seed=1, requests=500, rps=3.0)
    start = np.searchsorted(whole.arrival_s, 600)
    assert trace.row.tolist() == list(range(start, start + 500))
    assert trace.rate_per_s == pytest.approx(3.0, rel=1e-14)
    assert np.array_equal(trace.prompt_tokens, whole.prompt_tokens[start : start + 500])


ZIPF, FIXED = {"distribution": "zipf"}, {"distribution": "fixed", "mean": 3, "cv": 1}
SPAN = "expected seconds of at least 0.034355 and below 3435.5"
AT_LEAST_1 = "trace.mean_output_tokens.coding: 0.5 is not a finite number of at least 1"


@pytest.mark.parametrize(
    ("name", "changes", "asked", "said"),
    [
        ("poisson", {}, {"requests": 0}, "requests=0"),
        ("poisson", {"prompt_tokens": ZIPF}, {}, "distribution: 'zipf' is unknown"),
        ("poisson", {"prompt_tokens": FIXED}, {}, "cv: 1 changes nothing"),
        ("mooncake_synthetic", {}, {"requests": 301}, "(the shipped toy) holds 300 requests"),
        ("azure_code", {"resample": 1e-9}, {}, f"trace.resample=1e-09: {SPAN}"),
        ("azure_code", {"resample": 1e9}, {}, f"trace.resample=1e+09: {SPAN}"),
        ("adaserve_fig8", {"mean_output_tokens": {"code": 202.0}}, {}, "trace.mean_output_tokens.code"),
        ("adaserve_fig8", {"mean_output_tokens": {"coding": 0.5}}, {}, AT_LEAST_1),
    ],
)
def test_a_bad_key_or_value_is_one_line(name, changes, asked, said):
    refused(entry(name, **changes), said, **asked)


N = 4_000


@pytest.fixture(scope="module")
def trace():
    """A recording of bursts whose every column tells which request it was."""
    rng, place, source = np.random.default_rng(0), np.arange(N), TraceSource("mine", "file")
    arrival_s = synthetic.on_off(2.0, N, rng, burst_requests=40, on_share=0.2, off_rate_ratio=0.1)
    classes = place % 3, ("a", "b", "c")
    return Trace(arrival_s, place + 1, 2 * place + 1, place, source, *classes, ttft_slo_s=place + 0.5)


def test_blocks_are_pieces_of_the_recording_laid_end_to_end(trace):
    drawn = resample(trace, 50.0, seed=1)
    place = drawn.prompt_tokens - 1
    assert (drawn.output_tokens == 2 * place + 1).all()
    assert (drawn.slo_class == place % 3).all()
    assert (drawn.ttft_slo_s == place + 0.5).all()
    joined = np.diff(place) == 1
    gaps_s, before_s = np.diff(drawn.arrival_s), np.diff(trace.arrival_s)
    np.testing.assert_allclose(gaps_s[joined], before_s[place[:-1][joined]], atol=1e-9)
    blocks = np.ceil(trace.arrival_s[-1] / 50.0)
    assert 0.5 * blocks < (~joined).sum() < blocks
    assert trace.arrival_s[-1] - 50 < drawn.arrival_s[-1] <= trace.arrival_s[-1]


def test_a_block_begins_anywhere(trace):
    """Half of the first blocks lie in the first half of the recording, and hardly two begin alike."""
    firsts = np.array([resample(trace, 50.0, seed=seed).prompt_tokens[0] for seed in range(200)])
    assert abs((trace.arrival_s[firsts - 1] < trace.arrival_s[-1] / 2).mean() - 0.5) < 3 * 0.5 / np.sqrt(200)
    assert len(set(firsts.tolist())) > 150


@pytest.mark.parametrize("requests", [1, 7, N, 2 * N])
def test_fewer_requests_are_a_prefix_of_more_than_the_recording_has(trace, requests):
    whole, part = (resample(trace, 50.0, seed=4, requests=each).head(each) for each in (3 * N, requests))
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "row", "slo_class"):
        assert getattr(part, column).tolist() == getattr(whole, column)[:requests].tolist()


def test_a_window_is_resampled_within_itself_and_a_rate_comes_last():
    window = [600.0, 1_200.0]
    inside = trace_recipe(entry("azure_code", window=window)).trace(seed=0)
    known = set(zip(inside.prompt_tokens.tolist(), inside.output_tokens.tolist(), strict=True))
    drawn = trace_recipe(entry("azure_code", window=window, resample=30)).trace(seed=3, requests=500, rps=4.0)
    assert (len(drawn), drawn.rate_per_s) == (500, pytest.approx(4.0))
    assert set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) <= known
    assert "trace.resample=30: the seed draws blocks of 30 s from the recording" in (drawn.source.note or "")


def test_luck_differs_between_the_two_places_of_one_request(tmp_path):
    lines = [f"{10 * i},{i + 1},9" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    simulation = prepare(from_point({"trace": str(tmp_path / "mine.csv"), "trace.resample": "50"})).simulation
    prompt = simulation.requests.prompt_tokens
    twice = [each for each in set(prompt.tolist()) if (prompt == each).sum() > 1]
    assert len(twice) > 3
    for each in twice:
        keys = simulation.ground_truth.acceptance_trace.keys[prompt == each]
        assert len(set(keys.tolist())) == len(keys)
    classes = [set(simulation.requests.slo_class[prompt == each].tolist()) for each in twice]
    assert any(len(found) > 1 for found in classes)


def capped(n=30_000, cap=256):
    place = np.arange(n)
    source = TraceSource("mine", "file")
    return Trace(place * 0.1, place + 1, np.full(n, cap), place, source, place % 3, ("coding", "chat", "summarization"))


@pytest.mark.parametrize("mean", [1.5, 40.0, 202.0, 250.0])
def test_outputs_have_the_mean_after_the_cut_and_one_hazard(mean):
    trace = ended_early(capped(), {"coding": mean}, seed=3)
    output = trace.output_tokens[trace.slo_class == 0]
    assert output.min() >= 1
    assert output.max() <= 256
    assert output.mean() == pytest.approx(mean, abs=4 * output.std() / np.sqrt(len(output)))
    hazard = hazard_of(mean, 256)
    for at in (1, 10, 100):
        reached = output[output >= at]
        if len(reached) > 200:
            error = np.sqrt(hazard * (1 - hazard) / len(reached))
            assert (reached == at).mean() == pytest.approx(hazard, abs=4.5 * error)
    assert (trace.output_tokens[trace.slo_class != 0] == 256).all()


def test_a_request_ends_alike_whatever_else_is_there():
    trace = capped(900)
    whole, part = (ended_early(each, {"coding": 99.0}, 5) for each in (trace, trace.head(100)))
    assert np.array_equal(whole.output_tokens[:100], part.output_tokens)
    assert not np.array_equal(whole.output_tokens, ended_early(trace, {"coding": 99.0}, 6).output_tokens)


def test_the_published_workload_ends_early_where_its_entry_says_so():
    plain = trace_recipe(entry("adaserve_fig8"))
    ends = trace_recipe(entry("adaserve_fig8", mean_output_tokens={"coding": 202.0, "chat": 225.0}))
    assert (plain.drawn, ends.drawn) == (frozenset(), frozenset({"lengths"}))
    one, other = plain.trace(0), ends.trace(0)
    assert one.output_tokens.min() == one.output_tokens.max() == 256
    assert other.output_tokens[other.slo_class == 0].mean() < 230
    assert (other.output_tokens[other.slo_class == 2] == 256).all()
    assert np.array_equal(one.arrival_s, other.arrival_s)


TRACES = shipped("traces")
REAL = json.loads((TRACES / "real_statistics.json").read_text())
PROMISED = ("interarrival_cv", "fano_1s", "fano_10s", "prefill_dispersion_10s", "prefill_cv_10s")
QUANTILES = ("prompt_quantiles", "output_quantiles")


def surrogate(name):
    return read_user_file(TRACES / f"{name}_surrogate.csv.gz", TraceSource(name, "surrogate")).trace


def real(name):
    try:
        return trace_recipe(entry(name, surrogate=False)).trace(seed=0)
    except SpecsimError:
        pytest.skip("the real file is not on this machine")


@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_surrogate_is_within_5_percent_of_the_real_statistics(name):
    wanted, found = REAL[name], asdict(describe(surrogate(name)))
    assert found["requests"] == wanted["requests"]
    for key in PROMISED:
        assert found[key] == pytest.approx(wanted[key], rel=0.05), key
    for key in QUANTILES:
        assert list(found[key]) == pytest.approx(list(wanted[key]), rel=0.05), key
    for key in ("prompt_output_rank_correlation", "prompt_rank_lag1", "output_rank_lag1"):
        assert found[key] == pytest.approx(wanted[key], abs=0.03), key


@pytest.mark.usefixtures("real_data")
@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_stored_statistics_are_the_real_file_s_whose_seconds_the_surrogate_keeps_and_no_row(name):
    trace, copy = real(name), surrogate(name)
    for key, value in asdict(describe(trace)).items():
        assert REAL[name][key] == pytest.approx(list(value) if isinstance(value, tuple) else value, rel=1e-9)
    assert np.array_equal(np.bincount(trace.arrival_s.astype(int)), np.bincount(copy.arrival_s.astype(int)))

    def rows(of, width_s):
        tick = (of.arrival_s / width_s).astype(int)
        return set(zip(tick.tolist(), of.prompt_tokens.tolist(), of.output_tokens.tolist(), strict=True))

    assert not rows(trace, 0.001) & rows(copy, 0.001)
    assert len(rows(trace, 1.0) & rows(copy, 1.0)) < len(trace) * 0.01


@pytest.mark.usefixtures("real_data")
def test_the_script_makes_the_shipped_rows_again(tmp_path):
    fit_surrogates.write_csv(tmp_path / "t.csv.gz", fit_surrogates.surrogate_of(real("azure_code")))
    assert content(tmp_path / "t.csv.gz") == content(TRACES / "azure_code_surrogate.csv.gz")


def test_the_readme_gives_the_checksum_of_every_file_that_ships_and_toys_are_small():
    readme = (TRACES / "README.md").read_text()
    listed = dict(re.findall(r"^\| `([^`]+\.csv\.gz)` .*\| `([0-9a-f]{64})` \|$", readme, re.MULTILINE))
    files = TRACES.glob("**/*.csv.gz")
    assert listed == {str(file.relative_to(TRACES)): hashlib.sha256(content(file)).hexdigest() for file in files}
    assert "CC BY 4.0" in readme
    toys = sorted(TRACES.glob("**/*_toy.csv.gz"))
    assert len(toys) == 35
    for file in toys:
        assert 200 <= len(read_user_file(file, TraceSource("toy", "toy")).trace) <= 500
    assert sum(file.stat().st_size for file in TRACES.glob("**/*.*")) < 1_000_000
