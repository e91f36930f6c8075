"""`specsim run --against`: what other schedulers attain of the same requests, beside a run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specsim import load_run, simulate
from specsim.cli import main

RUN = ["run", "trace=poisson", "requests=60", "rps=5", "seed=3", "replicas=2"]
SAME: dict[str, Any] = {"trace": "poisson", "requests": 60, "rps": 5, "seed": 3, "replicas": 2}


def lines_of(capsys: pytest.CaptureFixture[str], *words: str) -> list[str]:
    assert main([*RUN, *words]) == 0
    return capsys.readouterr().out.splitlines()


def test_each_has_a_column_of_the_same_requests_and_nothing_is_stored_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "run"
    lines = lines_of(capsys, "scheduler=adaserve", "--against", "vllm,vllm_spec", f"out={out}")
    (head,) = [line.split() for line in lines if line.startswith("class ")]
    assert head[2:5] == ["attained", "vllm", "vllm_spec"]
    metrics = {name: simulate(name, **SAME).metrics for name in ("adaserve", "vllm", "vllm_spec")}
    blocks = {name: each["specsim"] for name, each in metrics.items()}
    for name in ("chat", "coding", "summarization"):
        (row,) = [line.split() for line in lines if line.startswith(f"{name} ")]
        told = [f"{100 * block['classes'][name]['slo_attainment']:.1f}" for block in blocks.values()]
        assert [each.lstrip("*") for each in row[2:5]] == told
    (row,) = [line.split() for line in lines if line.startswith("all ")]
    assert [each.lstrip("*") for each in row[2:5]] == [
        f"{100 * each['slo_attainment']:.1f}" for each in blocks.values()
    ]
    assert [each.name for each in tmp_path.iterdir()] == ["run"]
    assert load_run(out).metrics == metrics["adaserve"]
