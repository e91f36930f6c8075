"""What a profile says of the sweep behind it: its host, its gaps, and whether it is fit for use; those that ship."""

import hashlib
from copy import deepcopy
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from profiler.latency import choice
from profiler.latency.choice import as_columns
from profiler.latency.points import QUICK, GridPoint
from profiler.latency.profile_file import profile_mapping, summary
from profiler.text import yaml_text
from specsim.cli import main
from specsim.config.configured import from_point
from specsim.files.yaml_file import shipped
from specsim.latency.forms import Linear, Roofline
from specsim.latency.profile import load_profile, profile_from_mapping
from specsim.runs.prepare import prepare
from tests.made import one
from tests.profiler.latency.made import sample, samples_of, written

RAW = Path(__file__).parents[3] / "results" / "profiles"
CPU = "smollm2_skip_cpu"
MEASURED = [CPU, "qwen32b_05b_h200", "qwen1_5b_05b_h200"]
LINE = Linear(3e-8, 5e-5, 0.01)
PLANNED = {role: len(QUICK.passes(role)) for role in ("target", "draft")}


@pytest.fixture(scope="module")
def measured():
    return [each for role in ("target", "draft") for each in samples_of(LINE, role, grid=QUICK)]


@pytest.fixture(scope="module")
def mapping(tmp_path_factory, measured):
    """A profile of a GPU; the first point was not reached."""
    path = written(tmp_path_factory.mktemp("mine") / "s.parquet", measured[1:], planned=PLANNED)
    return profile_mapping("mine", [path])[0]


def test_the_hosts_time_of_a_gpu_is_an_engines_and_points_that_were_not_reached_are_counted(mapping):
    for role in ("target", "draft"):
        assert mapping[role]["overhead_s"] == 0
        assert "launch_s" not in mapping[role]
    assert mapping["suggests"] == {"engine": "vllm_0_15"}
    partial, *others = mapping["assumptions"]
    assert partial == f"partial: {PLANNED['target'] - 1} of {PLANNED['target']} target points measured"
    alone = "kernels alone: overhead_s is 0, and the host's time is an engine's (engine=vllm_0_15)"
    assert [each for each in others if "overhead_s" in each or "draft points" in each] == [alone]


def test_offsets_of_few_tokens_are_written_and_read(tmp_path, measured):
    curved = Roofline(0.012, 1e-6, 0.002, 7e-5, 2e-8, 2e-9, few_s=(-0.004, 0.0, 0.006))
    samples = samples_of(curved, noise=0.002) + [each for each in measured if each.role == "draft"]
    mapping, choices = profile_mapping("mine", [written(tmp_path / "s.parquet", samples)])
    (tmp_path / "mine.yaml").write_text(yaml_text(mapping, "made"), encoding="utf-8")
    few_s = load_profile(tmp_path / "mine.yaml").target.forms["roofline"].few_s
    assert (few_s, len(few_s)) == (pytest.approx(choices["target"].roofline.fitted.form.few_s, rel=1e-5), 3)
    assert mapping["target"]["standard_errors"]["roofline"]["few_s"][1] is None


def test_tokens_are_those_that_ran_so_that_an_engine_pads_once():
    assert as_columns([sample(GridPoint("verify", 1, 128, 3), captured_tokens=4)]).batched.tolist() == [4.0]


def test_the_hosts_time_of_a_cpu_is_the_profilers_own_and_points_that_memory_lacked_are_counted(tmp_path, measured):
    samples = [each for each in measured if each.role == "draft" or each.context_tokens < 2**15]
    samples = [replace(each, spread_s=0.3 * (n % 5 == 0) * each.median_s) for n, each in enumerate(samples)]
    left_out = len(measured) - len(samples)
    facts = {"device": "cpu", "planned": PLANNED, "lowered": {"target": [32000, left_out]}}
    mapping, _ = profile_mapping("mine", [written(tmp_path / "s.parquet", samples, **facts)])
    assert mapping["target"]["overhead_s"] == pytest.approx(0.0003)
    assert "suggests" not in mapping
    lower, *others = mapping["assumptions"]
    assert lower == f"lower grid: 32000 cached tokens of the target fit in the memory; {left_out} points left out"
    assert not any(each.startswith("partial") for each in others)
    assert summary(mapping)[-1].endswith("takes 0% of their median at the median point, 30% at the ninth decile")


def fitted_to_noise(folder, measured, *roles):
    """Return a profile of a machine that was so busy while it swept these roles that no form predicts them."""
    rng, out = np.random.default_rng(3), folder / "m.yaml"
    factors = [10 ** rng.uniform(-1, 1) if each.role in roles else 1.0 for each in measured]
    samples = [replace(each, median_s=each.median_s * factor) for each, factor in zip(measured, factors, strict=True)]
    assert main(["profile", "fit", str(written(folder / "s.parquet", samples)), "--out", str(out)]) == 4
    return out


@pytest.mark.usefixtures("unrendered")
def test_a_fit_that_predicts_nothing_says_so_and_is_refused_unless_asked_for(tmp_path, measured, capsys):
    out = fitted_to_noise(tmp_path, measured, "target", "draft")
    said = capsys.readouterr().out.splitlines()[-1]
    mapping = yaml.safe_load(out.read_text())
    table = {role: mapping[role]["held_out_error"][mapping["form"]] for role in ("target", "draft")}
    worst, kind, role = max((each["median"], kind, role) for role in table for kind, each in table[role].items())
    wrong = f"not fit for use: the median held-out error of {kind} is {100 * worst:.1f}% ({role}), above 10%"
    assert said.startswith(wrong)
    anew = f"to measure anew delete {tmp_path / 's.parquet'}, or give another --out"
    assert said.endswith(f"specsim refuses {out} unless any_fit=true; {anew}")
    words = ["run", "+scheduler=vllm_spec", "trace=poisson", "requests=3", f"profile={out}", f"out={tmp_path / 'run'}"]
    assert main(words) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith(f"profile={out}: {wrong}; expected another profile, or any_fit=true")
    assert main(["calibrate", "points.csv", "--profile", str(out), "--out", str(tmp_path / "engine.yaml")]) == 2
    assert capsys.readouterr().err.endswith(f"{wrong}; expected another profile\n")
    experiment = prepare(from_point({"trace": "poisson", "requests": "3", "profile": str(out), "any_fit": "true"}))
    assert any("not fit for use" in note for note in experiment.notes)


@pytest.mark.usefixtures("unrendered")
def test_a_drafter_that_is_not_the_profiles_is_not_refused_for_it(tmp_path, measured):
    point = {"trace": "poisson", "requests": "3", "profile": str(fitted_to_noise(tmp_path, measured, "draft"))}
    lookup = {"drafter": "lookup", "scheduler": "smartspec_lookup", "any_fit": "true"}
    assert prepare(from_point({**point, **lookup})).profiles[0].draft.misfit is None


def test_the_worse_form_of_a_good_fit_may_be_chosen(tmp_path, mapping):
    mapping = deepcopy(mapping)
    for role in ("target", "draft"):
        for error in mapping[role]["held_out_error"]["roofline"].values():
            error["median"] = 0.4
    (tmp_path / "m.yaml").write_text(yaml.safe_dump({**mapping, "form": "roofline"}))
    assert prepare(from_point({"trace": "poisson", "requests": "3", "profile": str(tmp_path / "m.yaml")}))


@pytest.mark.parametrize("name", MEASURED)
def test_a_measured_profile_names_its_samples_hardware_versions_and_date(name):
    profile = load_profile(shipped("conf") / "profile" / f"{name}.yaml")
    (entry,) = profile.provenance
    assert hashlib.sha256((RAW / entry["file"]).read_bytes()).hexdigest() == entry["sha256"]
    assert all(entry[key] for key in ("hardware", "driver", "versions", "measured", "attention", "ceilings"))
    for model in (profile.target, profile.draft):
        assert 0 < model.context_range[1] < float("inf")
        for error in model.fit_error.values():
            assert 0 < error["median"] <= error["p95"] <= error["worst"]


@pytest.mark.slow
@pytest.mark.parametrize("name", MEASURED)
def test_it_is_what_a_fit_of_its_samples_gives(name, monkeypatch):
    """The CPU's was fitted when passes of one token alone had an offset, `single_s`."""
    if name == CPU:
        monkeypatch.setattr(choice, "_chosen_offsets", lambda samples, fold: (("few_s",), 1))
    written = load_profile(shipped("conf") / "profile" / f"{name}.yaml")
    mapping, _ = profile_mapping(name, [RAW / f"{name}.samples.parquet"])
    again = profile_from_mapping(mapping, name)
    for batched, context in ((1, 512), (8, 4096), (256, 0)):
        shape = one(context, batched, batched * (context + 1))
        for role in ("target", "draft"):
            expected = getattr(written, role).seconds(shape)
            assert getattr(again, role).seconds(shape) == pytest.approx(expected, rel=1e-4)
