"""The recordings that ship: valid, small, said where they come from, and without a word of text."""

from __future__ import annotations

import json
import math
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from profiler.acceptance.analysis import fit_curves, summary
from profiler.acceptance.curves import chain_table, confidence_table, on_path, rounds, shipped_recording
from profiler.acceptance.trace_file import read_acceptance_trace
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped

FOLDER = shipped("conf") / "acceptance"
RECORDED = sorted(FOLDER.glob("*.parquet"))
CATEGORIES = {
    "smollm2": ("chat", "code", "math", "rag", "summarisation", "translation"),
    "qwen1": ("chat", "code", "summarisation", "text_to_sql"),
}
"""By the beginning of a recording's name."""
recorded = cache(read_acceptance_trace)


def test_the_recordings_are_there_and_small() -> None:
    names = {"smollm2_skip", "smollm2_lookup", "qwen1_5b_05b"}
    assert names | {f"{name}_t07" for name in names} == {path.stem for path in RECORDED}
    assert sum(path.stat().st_size for path in RECORDED) < 10_000_000


@pytest.mark.parametrize("path", RECORDED, ids=lambda path: path.stem)
def test_a_recording_is_whole_says_where_it_comes_from_and_maps_the_categories_of_the_traces(path: Path) -> None:
    acceptance_trace, mapping = recorded(path), yaml.safe_load(path.with_suffix(".yaml").read_text())
    about = acceptance_trace.about
    categories = CATEGORIES[path.stem.partition("_")[0]]
    assert acceptance_trace.categories == categories
    assert mapping["path"] == path.name
    assert {"coding", "chat", "summarization", "default", *categories} == set(mapping["categories"])
    assert acceptance_trace.confidence.shape[1] == 8
    assert about["hardware"]
    assert set(about["versions"]) == {"specsim", "torch", "transformers"}
    assert len(about["date"]) == 10
    assert "/" not in json.dumps(about)
    for code, name in enumerate(acceptance_trace.categories):
        mine = acceptance_trace.on_path & (acceptance_trace.category == code)
        assert mine.sum() == about["tokens"][name] > 1000
        assert len(np.unique(acceptance_trace.sequence[mine])) == about["sequences"][name] >= 16


@pytest.mark.slow
@pytest.mark.parametrize("name", ["smollm2_skip", "qwen1_5b_05b", "qwen1_5b_05b_t07"])
def test_the_shipped_curves_are_those_fitted_to_the_recording(name: str) -> None:
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
def test_the_shipped_numbers_are_those_of_the_rows(path: Path) -> None:
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
    chat = on_path(acceptance_trace, "chat")
    for each in table[table["category"] == "chat"].itertuples():
        assert each.accepted_tokens == pytest.approx(rounds(chat, each.draft_tokens).accepted)


def test_confidences_are_those_of_the_recording_which_is_one_that_ships():
    table, acceptance_trace = confidence_table(PAIR), shipped_recording(PAIR)
    on = acceptance_trace.on_path
    sure, right = acceptance_trace.confidence[on, 0], acceptance_trace.rank[on] == 0
    assert table["proposals"].sum() == len(sure)
    assert (table["accepted"] * table["proposals"]).sum() == pytest.approx(right.sum())
    assert (table["confidence"] * table["proposals"]).sum() == pytest.approx(sure.sum(), rel=1e-6)
    assert set(table["temperature"]) == {0.0}
    with pytest.raises(SpecsimError, match=r"no recording 'llama70b_1b' ships; expected one of qwen1_5b_05b, "):
        confidence_table("llama70b_1b")
