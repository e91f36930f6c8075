"""What a profile claims of its hardware, held against what the hardware can do."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from specsim.config.compose import compose
from specsim.config.points import points
from specsim.files.yaml_file import shipped
from specsim.latency.forms import Form, Linear, Roofline, Table
from specsim.latency.model import ModelLatency, Profile
from specsim.latency.peaks import implied, peak_notes, peak_of
from specsim.latency.profile import load_profile
from specsim.runs.prepare import prepare

SHIPPED = sorted(path.stem for path in (shipped("conf") / "profile").glob("*.yaml") if path.stem != "file")
HARDWARE = "NVIDIA H100 80GB HBM3"
SOUND = Roofline(delta_s=6e-3, gamma_s=1e-5, compute_delta_s=1e-3, compute_s=2e-5, alpha_s=5e-8, beta_s=5e-10)


def profile_of(form: Form, hardware: str = HARDWARE, gpus: int = 1, **draft: Any) -> Profile:
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
def test_an_impossible_coefficient_is_one_line(form: Form, told: str) -> None:
    notes = peak_notes(profile_of(form), "profile=made")
    assert notes[0].startswith(f"profile=made: {told}")
    assert all("\n" not in note for note in notes)


def test_reading_that_does_not_hide_behind_products_is_added() -> None:
    """A decode pass has as many pairs as context: what each costs on top slows the reading of the cache."""
    assert peak_notes(profile_of(replace(SOUND, alpha_s=3e-8, pair_s=2e-8)), "x") == ()
    assert peak_notes(profile_of(replace(SOUND, alpha_s=3e-8, beta_s=5e-8)), "x") == ()


def test_unknown_hardware_is_not_judged() -> None:
    for hardware in ("AMD EPYC", "NVIDIA GB200"):
        assert peak_notes(profile_of(Linear(0.0, 0.0, 1e-9), hardware), "x") == ()


@pytest.mark.parametrize(
    ("hardware", "terabytes"),
    [
        ("NVIDIA H100 PCIe", 2.0),
        ("2 x nvidia h200", 4.8),
        ("NVIDIA L40S", 0.864),
    ],
)
def test_hardware_is_known_by_cudas_name(hardware: str, terabytes: float) -> None:
    peak = peak_of(hardware)
    assert peak is not None
    assert peak.bytes_per_s == pytest.approx(terabytes * 1e12)


@pytest.mark.parametrize("name", SHIPPED)
def test_shipped_profiles_stay_below_the_peaks(name: str) -> None:
    """The draft of a shipped profile runs on one GPU alone, unless its assumptions name more."""
    profile = load_profile(name)
    peak = peak_of(profile.hardware)
    if peak is None:
        assert "NVIDIA" not in profile.hardware
        return
    said = re.search(r"the draft runs on (\d+) of", " ".join(profile.assumptions))
    for model, gpus in ((profile.target, profile.gpus), (profile.draft, int(said[1]) if said else 1)):
        rates = list(implied(model, peak, gpus))
        assert len(rates) >= 2
        assert [each for each in rates if each.rate > each.peak] == []


def test_a_run_says_so(tmp_path: Path) -> None:
    profile = load_profile("llama8b_1b_h100")
    form = profile.target.chosen
    assert isinstance(form, Roofline)
    text = (shipped("conf") / "profile" / "llama8b_1b_h100.yaml").read_text(encoding="utf-8")
    file = tmp_path / "fast.yaml"
    file.write_text(text.replace(f"alpha_s: {form.alpha_s}", "alpha_s: 2.0e-08", 1), encoding="utf-8")
    (point,) = points(["requests=2", "trace=poisson", f"profile={file}"], sweep=False)
    notes = prepare(compose(point)).notes
    assert [note for note in notes if "target.forms.roofline.alpha_s implies 6.554 TB/s" in note]
