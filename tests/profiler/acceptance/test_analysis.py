"""Recordings that ship: valid, small, without a word of text; and the numbers and files that are written beside one."""

import json
import math
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from profiler.acceptance.analysis import analyse, fit_curves, summary
from profiler.acceptance.curves import chain_table, confidence_table, on_path, shipped_recording
from profiler.acceptance.figures import confidence_figure
from profiler.acceptance.trace_file import RecordedTrace, read_acceptance_trace, write_acceptance_trace
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.files.yaml_file import shipped
from tests.made import refusal
from tests.profiler.acceptance.traces import drawn_trace

FOLDER = shipped("conf") / "acceptance"
RECORDED = sorted(FOLDER.glob("*.parquet"))
CATEGORIES = {
    "smollm2": ("chat", "code", "math", "rag", "summarisation", "translation"),
    "qwen1": ("chat", "code", "summarisation", "text_to_sql"),
}
"""By the beginning of a recording's name."""
recorded = cache(read_acceptance_trace)


def test_the_recordings_are_there_and_small():
    names = {"smollm2_skip", "smollm2_lookup", "qwen1_5b_05b"}
    assert names | {f"{name}_t07" for name in names} == {path.stem for path in RECORDED}
    assert sum(path.stat().st_size for path in RECORDED) < 10_000_000


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recording_is_whole_says_where_it_comes_from_and_maps_the_categories_of_the_traces(path):
    acceptance_trace, mapping = recorded(path), yaml.safe_load(path.with_suffix(".yaml").read_text())
    about = acceptance_trace.about
    categories = CATEGORIES[path.stem.partition("_")[0]]
    assert (acceptance_trace.categories, mapping["path"]) == (categories, path.name)
    assert {"coding", "chat", "summarization", "default", *categories} == set(mapping["categories"])
    assert acceptance_trace.confidence.shape[1] == 8
    assert about["hardware"]
    assert (set(about["versions"]), len(about["date"])) == ({"specsim", "torch", "transformers"}, 10)
    assert "/" not in json.dumps(about)
    for code, name in enumerate(acceptance_trace.categories):
        mine = acceptance_trace.on_path & (acceptance_trace.category == code)
        assert mine.sum() == about["tokens"][name] > 1000
        assert len(np.unique(acceptance_trace.sequence[mine])) == about["sequences"][name] >= 16


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2_skip", "qwen1_5b_05b", "qwen1_5b_05b_t07"])
def test_the_shipped_curves_are_those_fitted_to_the_recording(name):
    fitted = fit_curves(read_acceptance_trace(FOLDER / f"{name}.parquet"))
    stated = yaml.safe_load((FOLDER / f"{name}_curves.yaml").read_text())["categories"]
    for name, curve in fitted.curves.items():
        for key in ("agreement", "concentration", "spread", "tail", "stretch_tokens", "stretch_spread"):
            assert stated[name][key] == pytest.approx(getattr(curve, key), rel=1e-3, abs=1e-3), (name, key)


def flat(told: dict[str, Any]) -> dict[str, Any]:
    parts = ((key, each if isinstance(each, dict) else {"": each}) for key, each in told.items())
    return {
        f"{key} {name}": math.nan if value is None else value for key, part in parts for name, value in part.items()
    }


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_the_shipped_numbers_are_those_of_the_rows(path):
    kept = Path(__file__).parents[3] / "results" / "acceptance" / path.stem / "summary.json"
    if not kept.is_file():
        pytest.skip("results/ is not part of this installation")
    stated, acceptance_trace = json.loads(kept.read_text())["categories"], recorded(path)
    for name in acceptance_trace.categories:
        assert flat(stated[name]) == pytest.approx(flat(summary(acceptance_trace, name)), abs=1e-5, nan_ok=True), name


PAIR = "qwen1_5b_05b"


def test_longer_chains_accept_more_in_fewer_rounds():
    table, acceptance_trace = chain_table(PAIR), shipped_recording(PAIR)
    assert set(table["category"]) == set(acceptance_trace.categories)
    assert len(table) == 8 * len(acceptance_trace.categories)
    assert (table["accepted_tokens"] <= table["draft_tokens"]).all()
    for _, rows in table.groupby("category"):
        assert rows["accepted_tokens"].is_monotonic_increasing
        assert rows["rounds"].is_monotonic_decreasing


def test_confidences_are_those_of_the_recording_which_is_one_that_ships():
    table, acceptance_trace = confidence_table(PAIR), shipped_recording(PAIR)
    on = acceptance_trace.on_path
    sure, right = acceptance_trace.confidence[on, 0], acceptance_trace.rank[on] == 0
    assert table["proposals"].sum() == len(sure)
    assert (table["accepted"] * table["proposals"]).sum() == pytest.approx(right.sum())
    assert (table["confidence"] * table["proposals"]).sum() == pytest.approx(sure.sum(), rel=1e-6)
    assert set(table["temperature"]) == {0.0}
    said = "no recording 'llama70b_1b' ships; expected one of qwen1_5b_05b, "
    assert said in refusal(confidence_table, "llama70b_1b")


def twelve_texts() -> RecordedTrace:
    """Return a recording of 12 texts of 60 tokens."""
    return drawn_trace(np.random.default_rng(0), sequences=12, tokens=60, confidence=np.array([0.3, 0.6, 0.9]))


@pytest.mark.slow
def test_a_recording_is_summed_up_in_files_that_a_run_reads(tmp_path):
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
    assert fitted.curves["chat"].agreement == pytest.approx((acceptance_trace.rank == 0).mean(), rel=1e-4)
    summary = json.loads((tmp_path / "mine" / "summary.json").read_text())
    assert summary["categories"]["chat"]["tokens"] == 720
    shapes = {(each["depth"], each["width"]) for each in summary["drawn_against_recorded"]["chat"]}
    assert shapes == {(depth, width) for depth in range(1, 9) for width in (1, 2, 3)}
    for name in ("confidence", "accepted_rejected", "requests", "lengths"):
        assert (tmp_path / "mine" / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.usefixtures("unrendered")
def test_a_lookup_is_compared_as_chains_alone(tmp_path):
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
def test_positions_without_a_proposal_are_neither_accepted_nor_rejected(tmp_path):
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
def test_a_lookup_that_never_found_anything_has_numbers_all_the_same(tmp_path):
    acceptance_trace = lookup_trace()
    acceptance_trace.confidence[:] = 0.0
    acceptance_trace.rank[:] = acceptance_trace.confidence.shape[1]
    told = analyse(acceptance_trace, tmp_path / "mine.parquet")["categories"]["chat"]
    assert told["positions_without_proposal"] == 720
    assert told["agreement_where_proposed"] is told["calibration_error"] is told["mean_confidence"] is None
    assert "| 720 | - +- - |" in (tmp_path / "mine" / "summary.md").read_text()
    (legend,) = confidence_figure({"chat": on_path(acceptance_trace, "chat")}).legends
    assert [each.get_text() for each in legend.texts] == ["confidence = acceptance"]
