"""Profiles that were measured here: each stands on raw samples that ship with it."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from profiler.latency import choice
from profiler.latency.profile_file import profile_mapping
from specsim.files.yaml_file import shipped
from specsim.latency.profile import load_profile, profile_from_mapping
from tests.made import one

RAW = Path(__file__).parents[3] / "results" / "profiles"
CPU, GPU = "smollm2_skip_cpu", ["qwen32b_05b_h200", "qwen1_5b_05b_h200"]
MEASURED = [CPU, *GPU]


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
        pairs = batched * (context + 1)
        for role in ("target", "draft"):
            expected = getattr(written, role).seconds(one(context, batched, pairs))
            assert getattr(again, role).seconds(one(context, batched, pairs)) == pytest.approx(expected, rel=1e-4)
