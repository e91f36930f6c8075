"""One small run of every scheduler against what it was: integers exactly, floats to 1e-9.

After a wanted change: `python -m tests.golden.make`, and read the difference.
"""

import json
from typing import Any

import pytest

from tests.golden.make import DATA, file_of
from tests.golden.scene import columns_of, played
from tests.laws.subjects import NAMES


def assert_close(found: Any, golden: Any, where: str) -> None:
    if isinstance(golden, list):
        assert len(found) == len(golden), where
        for each, (mine, theirs) in enumerate(zip(found, golden, strict=True)):
            assert_close(mine, theirs, f"{where}[{each}]")
    elif isinstance(golden, float):
        assert found == pytest.approx(golden, rel=1e-9, abs=1e-9), where
    else:
        assert found == golden, where
        assert type(found) is type(golden), where


SAME = {
    frozenset({"adaserve", "adaserve_no_graphs", "adaserve_true_probability"}): (
        "the second's drafter launches its passes one by one; the third selects by the target's probabilities, "
        "which are the drafter's own where the text is drawn"
    ),
    frozenset({"trtllm_schedule", "vllm_spec"}): "at most four requests run at a time, for which the table says 4, too",
    frozenset({"sarathi", "vllm"}): "both mix prompts under a budget that this scene never fills",
    frozenset({"smartspec", "smartspec_lookup"}): "the second's drafter looks drafts up in the prompt",
}
"""Schedulers that decide alike in this scene, which has a drafter and a text of its own, and why: one golden run."""


@pytest.mark.parametrize("name", NAMES)
def test_the_run_is_what_it_was(name):
    assert file_of(name).is_file(), f"no golden run yet: python -m tests.golden.make {name}"
    golden, found = json.loads(file_of(name).read_text()), columns_of(played(name))
    assert found.keys() == golden.keys()
    for part, columns in golden.items():
        assert found[part].keys() == columns.keys()
        for column, value in columns.items():
            assert_close(found[part][column], value, f"{part}.{column}")


def test_schedulers_that_differ_have_golden_runs_that_differ():
    by_text: dict[str, set[str]] = {}
    for name in NAMES:
        by_text.setdefault(file_of(name).read_text(), set()).add(name)
    assert {frozenset(names) for names in by_text.values() if len(names) > 1} == set(SAME)


def test_no_golden_file_is_left_over():
    assert {path.stem for path in DATA.glob("*.json")} == set(NAMES)


def test_the_scene_is_worth_playing():
    """It preempts, rejects, speculates, accepts and idles somewhere, or it would guard nothing."""
    golden = {name: json.loads(file_of(name).read_text()) for name in NAMES}
    of_requests = {name: each["requests"] for name, each in golden.items()}
    assert all(sum(each != "" for each in columns["rejected_reason"]) == 1 for columns in of_requests.values())
    assert sum(any(columns["preemptions"]) for columns in of_requests.values()) >= 3
    assert all(sum(of_requests[name]["accepted_tokens"]) > 10 for name in ("vllm_spec", "adaserve"))
    assert all(each["totals"]["idle_s"] > 0.1 for each in golden.values())
    assert 1 in of_requests["fcfs"]["output_tokens"]
