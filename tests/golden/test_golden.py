"""One small run of every scheduler against what it was: integers exactly, floats to 1e-9.

After a wanted change: `python -m tests.golden.make`, and read the difference.
"""

from __future__ import annotations

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


@pytest.mark.parametrize("name", NAMES)
def test_the_run_is_what_it_was(name: str) -> None:
    assert file_of(name).is_file(), f"no golden run yet: python -m tests.golden.make {name}"
    golden, found = json.loads(file_of(name).read_text()), columns_of(played(name))
    assert found.keys() == golden.keys()
    for part, columns in golden.items():
        assert found[part].keys() == columns.keys()
        for column, value in columns.items():
            assert_close(found[part][column], value, f"{part}.{column}")


def test_no_golden_file_is_left_over() -> None:
    assert {path.stem for path in DATA.glob("*.json")} == set(NAMES)


def test_the_scene_is_worth_playing() -> None:
    """It preempts, rejects, speculates, accepts and idles somewhere, or it would guard nothing."""
    records = {name: played(name) for name in NAMES}
    assert all((each.columns.rejected_reason > 0).sum() == 1 for each in records.values())
    assert sum(each.columns.preemptions.sum() > 0 for each in records.values()) >= 3
    assert all(
        each.columns.accepted_tokens.sum() > 10 for name, each in records.items() if name in ("vllm_spec", "adaserve")
    )
    assert all(each.totals.idle_s > 1 for each in records.values())
    assert (records["fcfs"].columns.output_tokens == 1).any()
