"""SpecServe's windows: arrivals from the file, lengths from the seed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pytest
import yaml

from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.workload.load import load_trace
from specsim.workload.trace import Trace

NAMES = ("specserve_code", "specserve_conv", "specserve_mooncake")


@pytest.fixture(autouse=True)
def place(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    monkeypatch.setenv("SPECSIM_DATA", str(tmp_path))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path


def entry(name: str = NAMES[0], **changes: Any) -> dict[str, Any]:
    return {**yaml.safe_load((shipped("conf") / "trace" / f"{name}.yaml").read_text()), **changes}


def loaded(place: Path, text: str, seed: int = 1, **changes: Any) -> Trace:
    (place / "code.csv").write_text(text)
    return load_trace(entry(sha256=hashlib.sha256(text.encode()).hexdigest(), **changes), seed=seed)


def test_arrivals_are_the_files_sorted_and_the_first_at_zero(place: Path) -> None:
    trace = loaded(place, "Timestamp\n73.5\n72.0\n90.25\n")
    assert trace.source.origin == "real"
    assert trace.arrival_s.tolist() == [0.0, 1.5, 18.25]


def test_the_seed_draws_the_lengths_alone(place: Path) -> None:
    text = "Timestamp\n" + "".join(f"{i / 4}\n" for i in range(400))
    one, same, other = (loaded(place, text, seed) for seed in (1, 1, 2))
    assert one.prompt_tokens.tolist() == same.prompt_tokens.tolist()
    assert one.prompt_tokens.tolist() != other.prompt_tokens.tolist()
    assert one.arrival_s.tolist() == other.arrival_s.tolist()
    assert 200 < one.prompt_tokens.mean() < 400
    assert set(one.output_tokens.tolist()) == {256}


def test_damage_is_refused_in_one_line(place: Path) -> None:
    with pytest.raises(SpecsimError, match="line 3") as caught:
        loaded(place, "Timestamp\n0\nsoon\n")
    assert "\n" not in str(caught.value)
