"""docs/overload.md: its commands run, each reason is in rows, metrics and notes, and what cannot be is refused."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest

from specsim import SpecsimError, load_run, simulate
from specsim.cli import main
from specsim.runs.execute import REASONS
from specsim.server.admission import TIMEOUT, TTFT, WAITING

PAGE = (Path(__file__).parents[2] / "docs" / "overload.md").read_text(encoding="utf-8")
BUSY: dict[str, Any] = {"scheduler": "continuous", "trace": "poisson", "rps": 40, "requests": 120}


def test_the_commands_of_the_page_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    commands = re.findall(r"^\$ specsim (.*)$", PAGE, re.MULTILINE)
    found = []
    for place, command in enumerate(commands):
        assert main([*shlex.split(command), f"out=run{place}"]) == 0
        run = load_run(f"run{place}")
        block, rows = run.metrics["specsim"], run.requests
        assert sum(block["rejected"].values()) + block["completed"] == block["arrived"] == 300
        assert rows["rejected_reason"].value_counts().drop("").to_dict() == block["rejected"]
        assert not rows[rows["rejected_reason"] != ""]["slo_ok"].any()
        assert all(any(REASONS[reason] in note for note in run.notes) for reason in block["rejected"])
        found.append(set(block["rejected"]))
    assert TIMEOUT in found[0]
    assert WAITING in found[1]
    assert TTFT in found[2]


def test_every_reason_is_told_on_the_page_and_in_a_note() -> None:
    assert set(REASONS) == {"kv_capacity", "context_length", TIMEOUT, WAITING, TTFT}
    assert all(f"`{reason}`" in PAGE for reason in REASONS)


def test_an_objective_that_nobody_has_is_not_shed_by(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text("max_tokens: 64\nclasses:\n  only: {share: 1.0, tpot_s: 0.05}\n")
    with pytest.raises(SpecsimError, match=r"shed\.ttft=true: changes nothing: no request has a TTFT objective"):
        simulate(**BUSY, shed__ttft=True, slo=tmp_path / "mine.yaml")
