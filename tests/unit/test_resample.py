"""trace.resample: what a block keeps, what a seed changes, and what both do to the rate, the limit and the luck."""

import numpy as np
import pytest
import yaml

from specsim.config.compose import compose
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.runs.prepare import prepare
from specsim.workload import synthetic
from specsim.workload.load import load_trace, resample
from specsim.workload.trace import Trace, TraceSource

N = 4_000


def recorded(arrival_s, name="mine"):
    """A trace whose every column tells which request it was."""
    n = len(arrival_s)
    place = np.arange(n)
    return Trace(
        arrival_s,
        place + 1,
        2 * place + 1,
        place,
        TraceSource(name, "file"),
        place % 3,
        ("a", "b", "c"),
        ttft_slo_s=place + 0.5,
    )


def bursts(seed, n=N):
    return synthetic.on_off(2.0, n, np.random.default_rng(seed), burst_requests=40, on_share=0.2, off_rate_ratio=0.1)


@pytest.fixture(scope="module")
def trace():
    return recorded(bursts(0))


def entry(name, **changes):
    values = yaml.safe_load((shipped("conf") / "trace" / f"{name}.yaml").read_text())
    values.pop("defaults", None)
    return {**values, **changes}


@pytest.fixture(autouse=True)
def nothing_real(monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


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
    share = (trace.arrival_s[firsts - 1] < trace.arrival_s[-1] / 2).mean()
    assert abs(share - 0.5) < 3 * 0.5 / np.sqrt(200)
    assert len(set(firsts.tolist())) > 150


@pytest.mark.parametrize("requests", [1, 7, N])
def test_fewer_requests_are_a_prefix(trace, requests):
    whole = resample(trace, 50.0, seed=4, requests=N)
    part = resample(trace, 50.0, seed=4, requests=requests).head(requests)
    for column in ("arrival_s", "prompt_tokens", "output_tokens", "row", "slo_class"):
        assert getattr(part, column).tolist() == getattr(whole, column)[:requests].tolist()


@pytest.mark.parametrize("block_s", [1e-9, 1e9])
def test_a_block_is_shorter_than_the_trace_and_not_next_to_nothing(trace, block_s):
    with pytest.raises(SpecsimError, match=r"trace.resample=1e[-+]09: expected seconds of at least .* and below"):
        resample(trace, block_s, seed=1)


def test_a_window_is_resampled_within_itself_and_a_rate_comes_last():
    window = [600.0, 1_200.0]
    inside = load_trace(entry("azure_code", window=window), seed=0)
    known = set(zip(inside.prompt_tokens.tolist(), inside.output_tokens.tolist(), strict=True))
    drawn = load_trace(entry("azure_code", window=window, resample=30), seed=3, requests=500, rps=4.0)
    assert len(drawn) == 500
    assert drawn.rate_per_s == pytest.approx(4.0)
    assert set(zip(drawn.prompt_tokens.tolist(), drawn.output_tokens.tolist(), strict=True)) <= known
    assert "trace.resample=30: the seed draws blocks of 30 s from the recording" in (drawn.source.note or "")


def test_a_synthetic_trace_refuses():
    with pytest.raises(SpecsimError, match="resample: 60 changes nothing: the seed draws this trace anew"):
        prepare(compose({"trace": "poisson", "trace.resample": "60"}))


def test_luck_differs_between_the_two_places_of_one_request(tmp_path):
    lines = [f"{10 * i},{i + 1},9" for i in range(40)]
    (tmp_path / "mine.csv").write_text("\n".join(["arrival_s,prompt_tokens,output_tokens", *lines]))
    given = {"trace": str(tmp_path / "mine.csv"), "trace.resample": "50"}
    simulation = prepare(compose(given)).simulation
    prompt = simulation.requests.prompt_tokens
    twice = [each for each in set(prompt.tolist()) if (prompt == each).sum() > 1]
    assert len(twice) > 3
    for each in twice:
        keys = simulation.world.tape.keys[prompt == each]
        assert len(set(keys.tolist())) == len(keys)
    classes = [set(simulation.requests.slo_class[prompt == each].tolist()) for each in twice]
    assert any(len(found) > 1 for found in classes)
