"""Claims of shipped profiles: errors, sizes, no more than its hardware can do; and each mistake in a file is told."""

import copy
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

from specsim.config.configured import from_point
from specsim.config.groups import names
from specsim.config.points import points
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.engine import engine_from_mapping
from specsim.latency.forms import Linear, Roofline, Table
from specsim.latency.model import ModelLatency
from specsim.latency.profile import Profile, implied, load_profile, peak_notes, peak_of, profile_from_mapping
from specsim.runs.prepare import prepare
from specsim.schedulers.parts.tree_shape import profiled_budget
from tests.made import one, refusal
from tools.compose_profiles import SHIPPED, texts

FOLDER = shipped("conf") / "profile"
FILES = [path for path in sorted(FOLDER.glob("*.yaml")) if path.stem not in {*SHIPPED, "file"}]


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_shipped_profile_loads_and_is_plausible(path):
    profile = load_profile(path)
    assert profile.name == path.stem
    assert "\n" not in profile.description
    assert len(path.read_text(encoding="utf-8").splitlines()) <= 124
    assert 0.001 < profile.draft.seconds(one(512, 1, 513)) < profile.baseline_s < 0.1
    assert profile.usable_kv_tokens > 50_000
    assert 50 < profile.target.bend_tokens < 600
    assert all(len(entry["sha256"]) == 64 and entry["licence"] for entry in profile.provenance)
    assert profile.assumptions


@pytest.mark.parametrize("name", SHIPPED)
def test_profiles_of_a_library_s_kernels_are_plausible(name):
    """A step's first pass of a head takes a tenth of a millisecond or more on the engine that the profile brings.

    A table's worst pass may lie behind a step of its kernels.
    """
    profile = load_profile(name)
    assert profile.name == name
    assert len((FOLDER / f"{name}.yaml").read_text(encoding="utf-8").splitlines()) <= 135
    file = FOLDER / f"{name}.yaml"
    brought = shipped("conf") / "engine" / f"{read_yaml(file)['suggests']['engine']}.yaml"
    served = engine_from_mapping(read_yaml(brought), brought.stem).running(profile)
    assert 1e-4 < served.draft.seconds(one(512, 1, 513)) + served.draft.step_s < profile.baseline_s < 0.03
    assert profile.usable_kv_tokens > 50_000
    assert profile.unfit is None
    bend = profile.target.bend_tokens
    assert bend is None if profile.target.sparse else 100 < bend < 600, "by the roofline of the same points"
    for model in (profile.target, profile.draft):
        assert list(model.fit_error) == ["decode", "verify", "prefill", "mixed"]
        assert all(error["median"] <= error["p95"] < 0.25 for error in model.fit_error.values())
    assert all(entry["licence"] and entry["versions"] for entry in profile.provenance)


@pytest.mark.slow
def test_committed_profiles_are_what_the_library_s_kernels_give():
    pytest.importorskip("aiconfigurator_core")
    for name, text in texts():
        assert text == (FOLDER / f"{name}.yaml").read_text(encoding="utf-8"), name


@pytest.mark.parametrize(("name", "baseline_s", "at_512_s"), [("llama70b", 0.030, 0.125), ("qwen32b", 0.028, 0.104)])
def test_artifact_is_the_authors_table(name, baseline_s, at_512_s):
    profile = load_profile(f"adaserve_artifact_{name}")
    assert profile.baseline_s == baseline_s
    assert profile.target.seconds(one(100_000, 512, 1e8)) == pytest.approx(at_512_s)
    assert profile.target.seconds(one(0, 1, 1)) == pytest.approx(baseline_s)
    assert profile.draft.seconds(one(0, 64, 64)) in (0.005, 0.004)


def test_range_of_the_samples_is_known():
    extrapolates = load_profile("llama70b_1b_4xa100").target.extrapolates
    passes = one(100_000, 512, 0), one(100_000, 5000, 0), one(1_000_000, 512, 0)
    assert [extrapolates(each) for each in passes] == [False, True, True]
    mapping = changed("target.forms", {"table": TABLE})
    del mapping["target"]["valid"]
    assert profile_from_mapping(mapping, "mine.yaml").target.batched_range == (1, 256), "a table's own rows"


def test_the_page_says_how_far_both_forms_are_off_a_mixture_of_experts():
    experts = [name for name in SHIPPED if name.startswith(("deepseek", "gpt_oss", "qwen3_235b", "qwen3_30b"))]
    held_out = [read_yaml(FOLDER / f"{name}.yaml")["target"]["held_out_error"] for name in experts]
    roofline, table = (
        max(100 * error["median"] for forms in held_out for error in forms[form].values())
        for form in ("roofline", "table")
    )
    page = " ".join((Path(__file__).parents[2] / "docs/composing.md").read_text(encoding="utf-8").split())
    assert f"a roofline is off by a median of up to {roofline:.0f}% there, the table by at most {table:.0f}%." in page


HARDWARE = "NVIDIA H100 80GB HBM3"
SOUND = Roofline(delta_s=6e-3, gamma_s=1e-5, compute_delta_s=1e-3, compute_s=2e-5, alpha_s=5e-8, beta_s=5e-10)


def profile_of(form, hardware=HARDWARE, gpus=1, **draft):
    """An 8B target that reads 131,072 bytes a cached token and multiplies 14 GB of weights."""
    target = ModelLatency("8B", {"used": form}, "used", 131_072, 16 * 10**9, 0.0, nonembedding_bytes=14 * 10**9)
    other = ModelLatency("1B", {"used": SOUND}, "used", 0, 0, 0.0)
    return Profile("made", 1, "made", hardware, gpus, 80 * 2**30, target, replace(other, **draft))


@pytest.mark.parametrize(
    ("form", "told"),
    [
        (replace(SOUND, alpha_s=3e-8), "target.forms.used.alpha_s implies 4.369 TB/s; the peak of 1 x"),
        (replace(SOUND, delta_s=4e-3, gamma_s=0.0), "target.forms.used.delta_s implies 3.5 TB/s"),
        (replace(SOUND, gamma_s=1e-5, compute_s=1.25e-5), "target.forms.used.compute_s implies 1,120 TFLOP/s"),
        (Linear(3e-8, 2e-5, 6e-3), "target.forms.used.alpha_s implies 4.369 TB/s"),
        (Table((1, 2), (0.004, 0.004002), 4e-3), "target.forms.used.floor_s implies 3.5 TB/s"),
        (Table((1, 101), (0.006, 0.0061), 6e-3), "target.forms.used.seconds_at implies 1.4e+04 TFLOP/s"),
    ],
)
def test_an_impossible_coefficient_is_one_line(form, told):
    notes = peak_notes(profile_of(form), "profile=made")
    assert notes[0].startswith(f"profile=made: {told}")
    assert all("\n" not in note for note in notes)


@pytest.mark.parametrize(
    "profile",
    [
        profile_of(replace(SOUND, alpha_s=3e-8, pair_s=2e-8)),
        profile_of(replace(SOUND, alpha_s=3e-8, beta_s=5e-8)),
        *(profile_of(Linear(0.0, 0.0, 1e-9), hardware) for hardware in ("AMD EPYC", "NVIDIA GB200")),
    ],
)
def test_reading_that_does_not_hide_behind_products_is_added_and_unknown_hardware_not_judged(profile):
    """A decode pass has as many pairs as context: what each costs on top slows the reading of the cache."""
    assert peak_notes(profile, "x") == ()


def test_hardware_is_known_by_cudas_name():
    for hardware, terabytes in (("NVIDIA H100 PCIe", 2.0), ("2 x nvidia h200", 4.8), ("NVIDIA L40S", 0.864)):
        assert peak_of(hardware).bytes_per_s == pytest.approx(terabytes * 1e12)


@pytest.mark.parametrize("name", names("profile"))
def test_shipped_profiles_stay_below_the_peaks_and_verify_48_tokens_of_a_request_alone_or_with_experts_fewer(name):
    """The draft of a shipped profile runs on one GPU alone, unless its assumptions name more."""
    profile = load_profile(name)
    peak = peak_of(profile.hardware)
    if peak is None:
        assert "NVIDIA" not in profile.hardware
        return
    budget = profiled_budget(profile, 1)
    assert budget(1) < 48 if profile.target.sparse else budget(1) == 48
    said = re.search(r"the draft runs on (\d+) of", " ".join(profile.assumptions))
    for model, gpus in ((profile.target, profile.gpus), (profile.draft, int(said[1]) if said else 1)):
        rates = list(implied(model, peak, gpus))
        assert len(rates) >= 2
        assert [each for each in rates if each.rate > each.peak] == []


def test_a_run_says_so(tmp_path):
    form = load_profile("llama8b_1b_h100").target.chosen
    text = (shipped("conf") / "profile" / "llama8b_1b_h100.yaml").read_text(encoding="utf-8")
    file = tmp_path / "fast.yaml"
    file.write_text(text.replace(f"alpha_s: {form.alpha_s}", "alpha_s: 2.0e-08", 1), encoding="utf-8")
    (point,) = points(["requests=2", "trace=poisson", f"profile={file}"], sweep=False)
    notes = prepare(from_point(point)).notes
    assert [note for note in notes if "target.forms.roofline.alpha_s implies 6.554 TB/s" in note]


TABLE = {"batched_tokens": [1, 128, 256], "seconds_at": [0.01, 0.02, 0.03], "floor_s": 0.01}
GOOD = read_yaml(FOLDER / "llama8b_1b_h100.yaml")


def changed(key, value):
    mapping = copy.deepcopy(GOOD)
    *parents, last = key.split(".")
    place = mapping
    for parent in parents:
        place = place[parent]
    place[last] = value
    return mapping


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("target.forms.roofline.delta_s", math.nan, "a finite number of at least 0"),
        ("draft.forms", {}, "a mapping of at least one form"),
        ("memory_bytes", 10**9, "0.9 of it must exceed the target's weights_bytes"),
        ("target.forms.table", {**TABLE, "seconds_at": [3, 2, 1]}, "takes no less time"),
        ("target.valid", {"context_tokens": [0, 1], "batched_tokens": [9, 1]}, "a range [low, high]"),
        ("target.nonembedding_bytes", 10**12, "at most weights_bytes"),
        ("target.forms.roofline.few_s", [0.0, -1.0], "leave some to every pass"),
        ("checks", {"splitwise": {"decode": {"median": math.nan}}}, "a finite number"),
        ("usable_kv_bytes", None, "None is not"),
        ("usable_kv_bytes", 593_913_446_400, "memory_bytes less both models' weights_bytes"),
        ("target.forms.roofline.few_s", None, "None is not"),
        ("draft.fed_s", 1e-6, "given without block_queries; expected both"),
    ],
)
def test_bad_value_names_key_and_what_was_expected(key, value, expected):
    message = refusal(profile_from_mapping, changed(key, value), "mine.yaml")
    assert message.startswith(f"mine.yaml: {key}")
    assert expected in message


def test_offsets_of_few_tokens_and_errors_may_have_either_sign_and_checks_nulls_and_names():
    mapping = changed("checks", {"public": {"hardware": "a card", "decode": {"median": -0.3, "least": None}}})
    mapping["checks"]["knee_tokens"] = {"target": {"fitted": None, "compute_over_bandwidth": 156}}
    mapping["target"]["standard_errors"] = {"roofline": {"delta_s": 1e-5, "single_s": None, "few_s": [1e-5, None]}}
    mapping["target"]["forms"]["roofline"] |= {"few_s": [-1e-3, 2e-3], "few_logits_s": [1e-3]}
    mapping["provenance"] = [{"file": "a.parquet"}]
    profile = profile_from_mapping(mapping, "mine.yaml")
    form = profile.target.forms["roofline"]
    assert (form.few_s, form.few_logits_s) == ((-1e-3, 2e-3), (1e-3,))
    assert profile.provenance == ({"file": "a.parquet"},)
