"""`specsim sweep FILE.yaml` and `specsim sweep status DIR`, and the line that a sweep shows while it runs."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from specsim import load_sweep
from specsim.cli import main
from specsim.runs.processes import SweepProgress, Worst
from specsim.store.summaries import Failure, append_row, read_rows, settle

FILE = """
run: {trace: poisson, requests: 8, profile: llama8b_1b_h100}
grid: {scheduler: [fcfs, continuous], rps: "2,4"}
seeds: 2
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    (tmp_path / "sweep.yaml").write_text(FILE)
    return tmp_path / "sweep.yaml"


def told(root: Path, capsys: pytest.CaptureFixture[str]) -> list[str]:
    capsys.readouterr()
    assert main(["sweep", "status", str(root)]) == 0
    return capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("keep", ["runs", "summary"])
def test_the_status_counts_what_is_done_and_what_is_left(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], keep: str
) -> None:
    root = tmp_path / "all"
    assert main(["sweep", str(file), f"out={root}", "--keep", keep]) == 0
    first, worst = told(root, capsys)
    assert first == f"{root}: 8 of 8 runs done, 0 failed, 0 left"
    lowest = min(run.metrics["specsim"]["worst_class_attainment"] for run in load_sweep(root))
    assert re.fullmatch(rf"worst class \w+ {100 * lowest:.1f}%", worst)
    if keep == "runs":
        next(root.glob("*/metrics.json")).write_text("{")
    else:
        settle(root, {next(iter(read_rows(root).runs)): None})
    first, rate, stored, _ = told(root, capsys)
    assert first == f"{root}: 7 of 8 runs done, 0 failed, 1 left"
    assert re.fullmatch(r"[\d.]+ runs/s: \d\d:\d\d left if it runs", rate)
    assert re.fullmatch(r"the last run was stored \d+ s ago", stored)


def test_the_status_of_a_damaged_note_is_refused(
    file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = tmp_path / "out"
    assert main(["sweep", str(file), f"out={root}", "--keep", "summary"]) == 0
    for content in ("{}", "{"):
        (root / ".sweep.json").write_text(content)
        assert main(["sweep", "status", str(root)]) != 0
        assert ".sweep.json' is damaged" in capsys.readouterr().err


def test_the_status_names_runs_that_failed(file: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    root = tmp_path / "all"
    assert main(["sweep", str(file), f"out={root}", "--keep", "summary"]) == 0
    key, run = next(iter(read_rows(root).runs.items()))
    settle(root, {key: None})
    append_row(root, Failure(run.config, {"rps": "2"}, "at last", name=run.name))
    lines = told(root, capsys)
    assert lines[0] == f"{root}: 7 of 8 runs done, 1 failed, 0 left"
    assert lines[-1] == f"failed: {run.name}: at last"


def test_a_plain_line_tells_done_failed_rate_time_left_and_the_worst_class(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = [100.0]
    monkeypatch.setattr("specsim.runs.processes.time.monotonic", lambda: now_s[0])
    tally = SweepProgress(20, None, speaks=True)
    tally.add(Worst(0.5, "chat"), stood=True)
    for worst in (Worst(0.9, "coding"), None, Worst(0.417, "coding")):
        now_s[0] += 4.0
        tally.add(worst)
    assert capsys.readouterr().err == (
        "4 of 20 runs done, 1 failed, 0.25 runs/s, 01:04 left, worst class coding 41.7%\n"
    )
    SweepProgress(20, None, speaks=False).add(None)
    assert capsys.readouterr().err == ""
