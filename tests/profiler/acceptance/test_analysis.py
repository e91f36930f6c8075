"""What is written beside a recording: a run can read it, the numbers are those of the rows."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import yaml

from profiler.acceptance.analysis import analyse
from profiler.acceptance.trace_file import RecordedTrace, write_acceptance_trace
from specsim.acceptance.curves import Acceptance
from specsim.acceptance.loading import acceptance_from_mapping
from tests.profiler.acceptance.traces import drawn_trace


def twelve_texts() -> RecordedTrace:
    """Return a recording of 12 texts of 60 tokens."""
    return drawn_trace(np.random.default_rng(0), sequences=12, tokens=60, confidence=np.array([0.3, 0.6, 0.9]))


@pytest.mark.slow
def test_a_recording_is_summed_up_in_files_that_a_run_reads(tmp_path: Path) -> None:
    acceptance_trace = twelve_texts()
    out = tmp_path / "mine.parquet"
    write_acceptance_trace(out, acceptance_trace)
    told = analyse(acceptance_trace, out)
    assert told["categories"]["chat"]["top1_agreement"] == pytest.approx((acceptance_trace.rank == 0).mean())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "mine.parquet", "mine.yaml", "mine_curves.yaml"]
    recorded = yaml.safe_load((tmp_path / "mine.yaml").read_text())
    assert recorded["kind"] == "recorded"
    acceptance_from_mapping(recorded, "mine.yaml", tmp_path)
    curves = yaml.safe_load((tmp_path / "mine_curves.yaml").read_text())
    fitted = acceptance_from_mapping(curves, "mine_curves.yaml")
    assert isinstance(fitted, Acceptance)
    assert fitted.curves["chat"].agreement == pytest.approx((acceptance_trace.rank == 0).mean(), rel=1e-4)
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["categories"]["chat"]["tokens"] == 720
    shapes = {(each["depth"], each["width"]) for each in summary["drawn_against_recorded"]["chat"]}
    assert shapes == {(depth, width) for depth in range(1, 9) for width in (1, 2, 3)}
    for name in ("confidence", "accepted_rejected", "requests", "lengths"):
        assert (tmp_path / "mine" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unrendered")
def test_a_lookup_is_compared_as_chains_alone(tmp_path: Path) -> None:
    acceptance_trace = twelve_texts()
    acceptance_trace.confidence[:, 1:] = 0.0
    told = analyse(acceptance_trace, tmp_path / "mine.parquet")
    assert [each["width"] for each in told["drawn_against_recorded"]["chat"]] == [1] * 8
    assert yaml.safe_load((tmp_path / "mine_curves.yaml").read_text())["width"] == 1


def lookup_trace() -> RecordedTrace:
    """Return a recording in which nothing is proposed at every third position."""
    acceptance_trace = twelve_texts()
    none = acceptance_trace.position % 3 == 0
    acceptance_trace.confidence[none] = 0.0
    acceptance_trace.rank[none] = acceptance_trace.confidence.shape[1]
    return acceptance_trace


@pytest.mark.usefixtures("unrendered")
def test_positions_without_a_proposal_are_neither_accepted_nor_rejected(tmp_path: Path) -> None:
    truth = lookup_trace().target_probability.copy()
    truth[3, 0] = 0.25
    acceptance_trace = replace(lookup_trace(), target_probability=truth)
    told = analyse(acceptance_trace, tmp_path / "mine.parquet")["categories"]["chat"]
    made = (acceptance_trace.position % 3 != 0) | (np.arange(len(acceptance_trace)) == 3)
    assert told["positions_without_proposal"] == 239
    assert told["top1_agreement"] == pytest.approx((acceptance_trace.rank == 0).mean())
    assert told["agreement_where_proposed"] == pytest.approx((acceptance_trace.rank[made] == 0).mean())
    assert told["mean_confidence"] == pytest.approx(acceptance_trace.confidence[made, 0].mean())
    table = (tmp_path / "mine" / "summary.md").read_text()
    assert f"| 239 | {told['agreement_where_proposed']:.3f} +- {told['error_where_proposed']:.3f} |" in table


@pytest.mark.usefixtures("unrendered")
def test_a_lookup_that_never_found_anything_has_numbers_all_the_same(tmp_path: Path) -> None:
    acceptance_trace = lookup_trace()
    acceptance_trace.confidence[:] = 0.0
    acceptance_trace.rank[:] = acceptance_trace.confidence.shape[1]
    told = analyse(acceptance_trace, tmp_path / "mine.parquet")["categories"]["chat"]
    assert told["positions_without_proposal"] == 720
    assert told["agreement_where_proposed"] is told["calibration_error"] is told["mean_confidence"] is None
    assert "| 720 | - +- - |" in (tmp_path / "mine" / "summary.md").read_text()
