"""What is written beside a recording: a run can read it, the numbers are those of the rows."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import yaml

from profiler.acceptance.analysis import analyse, mapped
from profiler.acceptance.tape_file import write_tape
from specsim.world.curves import curves_from_mapping
from specsim.world.recorded import recording_from_mapping
from tests.profiler.acceptance.tapes import drawn_tape


def test_a_recording_is_summed_up_in_files_that_a_run_reads(tmp_path: Path) -> None:
    tape = drawn_tape(np.random.default_rng(0), sequences=12, tokens=60, confidence=np.array([0.3, 0.6, 0.9]))
    tape.about["tokens"] = {"chat": len(tape)}  # type: ignore[index]
    out = tmp_path / "mine.parquet"
    write_tape(out, tape)
    told = analyse(tape, out)
    assert told["categories"]["chat"]["top1_agreement"] == pytest.approx((tape.rank == 0).mean())
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "mine",
        "mine.parquet",
        "mine.yaml",
        "mine_curves.yaml",
    ]
    recorded = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert recorded["kind"] == "recorded"
    recording_from_mapping(recorded, "mine.yaml", tmp_path)
    curves = yaml.safe_load((tmp_path / "mine_curves.yaml").read_text())
    fitted = curves_from_mapping(curves, "mine_curves.yaml")
    assert fitted.curve("chat").agreement == pytest.approx((tape.rank == 0).mean(), rel=1e-4)
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["categories"]["chat"]["tokens"] == 720
    shapes = {(each["depth"], each["width"]) for each in summary["drawn_against_recorded"]["chat"]}
    assert shapes == {(depth, width) for depth in range(1, 9) for width in (1, 2, 3)}
    for name in ("confidence", "accepted_rejected", "requests", "lengths"):
        assert (tmp_path / "mine" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


def test_a_single_text_has_no_standard_error_and_no_spread(tmp_path: Path) -> None:
    tape = drawn_tape(np.random.default_rng(0), sequences=1, tokens=60, confidence=np.array([0.3, 0.6, 0.9]))
    tape.about["tokens"] = {"chat": len(tape)}  # type: ignore[index]
    told = analyse(tape, tmp_path / "mine.parquet")
    table = (tmp_path / "mine" / "summary.md").read_text()
    assert "| chat | 1 | 60 | " in table
    assert table.count(" +- - |") == 1 + len(told["drawn_against_recorded"]["chat"])
    assert "| - | - |\n" in table
    assert "+- 0.000" not in table
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    chat = summary["categories"]["chat"]
    assert chat["error"] is chat["requests_sd"] is chat["requests_sd_beyond_luck"] is None
    assert {each["error"] for each in summary["drawn_against_recorded"]["chat"]} == {None}


def test_a_lookup_is_compared_as_chains_alone(tmp_path: Path) -> None:
    tape = drawn_tape(np.random.default_rng(0), sequences=12, tokens=60, confidence=np.array([0.3, 0.6, 0.9]))
    tape.about["tokens"] = {"chat": len(tape)}  # type: ignore[index]
    tape.confidence[:, 1:] = 0.0
    told = analyse(tape, tmp_path / "mine.parquet")
    assert [each["width"] for each in told["drawn_against_recorded"]["chat"]] == [1] * 8
    assert yaml.safe_load((tmp_path / "mine_curves.yaml").read_text())["width"] == 1


def test_a_traces_spelling_stands_for_the_recorded_one() -> None:
    names = mapped(["code", "math", "summarisation"])
    assert names == {
        "coding": "code",
        "summarization": "summarisation",
        "code": "code",
        "math": "math",
        "summarisation": "summarisation",
        "default": "code",
    }
    assert mapped(["chat", "code"])["default"] == "chat"
    assert mapped(["poems"]) == {"poems": "poems", "default": "poems"}
