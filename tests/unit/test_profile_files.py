from __future__ import annotations

from pathlib import Path

import pytest

from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import engine_from_mapping
from specsim.latency.fitness import unfit
from specsim.latency.profile import Profile, load_profile
from tests.made import one
from tools.compose_profiles import SHIPPED, texts

NAMES = {
    "adaserve_artifact_llama70b",
    "adaserve_artifact_qwen32b",
    "llama70b_1b_4xa100",
    "llama70b_1b_4xh100",
    "llama70b_1b_4xh200",
    "llama70b_fp8_1b_4xh100",
    "llama8b_1b_a100",
    "llama8b_1b_h100",
    "llama8b_1b_h200",
    "qwen1_5b_05b_h100",
    "qwen32b_05b_2xa100",
    "qwen3_32b_06b_2xh100",
    "vicuna7b_160m_a100",
    "vicuna7b_68m_a100",
}
FILES = [shipped("conf") / "profile" / f"{name}.yaml" for name in sorted(NAMES)]


def load(name: str) -> Profile:
    return load_profile(shipped("conf") / "profile" / f"{name}.yaml")


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_loads_and_is_plausible(path: Path) -> None:
    profile = load_profile(path)
    assert profile.name == path.stem
    assert "\n" not in profile.description
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 124
    assert 0.001 < profile.draft.seconds(one(512, 1, 513)) < profile.baseline_s < 0.1
    assert profile.usable_kv_tokens > 50_000
    assert profile.target.bend_tokens is not None
    assert 50 < profile.target.bend_tokens < 600
    assert all(len(entry["sha256"]) == 64 and entry["licence"] for entry in profile.provenance)
    assert profile.assumptions


@pytest.mark.parametrize("name", SHIPPED)
def test_profiles_of_a_library_s_kernels_are_plausible(name: str) -> None:
    """A pass of a head takes a tenth of a millisecond or more on the engine that the profile brings.

    A table's worst pass may lie behind a step of its kernels.
    """
    profile = load(name)
    assert profile.name == name
    assert len((shipped("conf") / "profile" / f"{name}.yaml").read_text(encoding="utf-8").splitlines()) <= 135
    file = shipped("conf") / "profile" / f"{name}.yaml"
    brought = shipped("conf") / "engine" / f"{read_yaml(file)['suggests']['engine']}.yaml"
    served = engine_from_mapping(read_yaml(brought), brought.stem).running(profile)
    head_s = served.draft.seconds(one(512, 1, 513))
    assert 1e-4 < head_s < profile.baseline_s < 0.03
    assert profile.usable_kv_tokens > 50_000
    assert unfit(profile) is None
    for model in (profile.target, profile.draft):
        assert list(model.fit_error) == ["decode", "verify", "prefill", "mixed"]
        assert all(error["median"] <= error["p95"] < 0.25 for error in model.fit_error.values())
    assert all(entry["licence"] and entry["versions"] for entry in profile.provenance)


@pytest.mark.slow
def test_committed_profiles_are_what_the_library_s_kernels_give() -> None:
    pytest.importorskip("aiconfigurator_core")
    for name, text in texts():
        assert text == (shipped("conf") / "profile" / f"{name}.yaml").read_text(encoding="utf-8"), name


@pytest.mark.parametrize(("name", "baseline_s", "at_512_s"), [("llama70b", 0.030, 0.125), ("qwen32b", 0.028, 0.104)])
def test_artifact_is_the_authors_table(name: str, baseline_s: float, at_512_s: float) -> None:
    profile = load(f"adaserve_artifact_{name}")
    assert profile.baseline_s == baseline_s
    assert profile.target.seconds(one(100_000, 512, 1e8)) == pytest.approx(at_512_s)
    assert profile.target.seconds(one(0, 1, 1)) == pytest.approx(baseline_s)
    assert profile.draft.seconds(one(0, 64, 64)) in (0.005, 0.004)


def test_range_of_the_samples_is_known() -> None:
    target = load("llama70b_1b_4xa100").target
    assert not target.extrapolates(one(100_000, 512, 0))
    assert target.extrapolates(one(100_000, 5000, 0))
    assert target.extrapolates(one(1_000_000, 512, 0))


def test_the_page_says_how_far_both_forms_are_off_a_mixture_of_experts() -> None:
    experts = [name for name in SHIPPED if name.startswith(("deepseek", "gpt_oss", "qwen3_235b", "qwen3_30b"))]
    held_out = [read_yaml(shipped("conf") / "profile" / f"{name}.yaml")["target"]["held_out_error"] for name in experts]
    roofline, table = (
        max(100 * error["median"] for forms in held_out for error in forms[form].values())
        for form in ("roofline", "table")
    )
    page = " ".join((Path(__file__).parents[2] / "docs/composing.md").read_text(encoding="utf-8").split())
    assert f"a roofline is off by a median of up to {roofline:.0f}% there, the table by at most {table:.0f}%." in page
