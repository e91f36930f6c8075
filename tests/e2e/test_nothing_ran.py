"""A run in which no request was served: every table, figure and search of it ends in lines, none in a traceback."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from specsim import Run, SpecsimError, find, iterations, load_run, load_sweep, simulate, sweep
from specsim.cli import main
from specsim.metrics.tables import class_table

SMALL: Mapping[str, Any] = {"trace": "poisson", "requests": 6, "profile": "llama8b_1b_h100"}
TOO_LONG = {"distribution": "fixed", "mean": 900_000, "cv": None, "low": None, "high": None}
CASES: Mapping[str, Mapping[str, Any]] = {
    "rejected": {"trace__prompt_tokens": TOO_LONG},
    "cancelled": {"timeout_s": 1e-6, "replicas": 2},
    "rejected, apart": {
        "trace__prompt_tokens": TOO_LONG,
        "replicas": 2,
        "split__prefill": 1,
        "split__link_gb_per_s": 50,
    },
}
RUNS = [*product(["rejected", "cancelled"], ["vllm_spec", "laps_sd"]), ("rejected, apart", "continuous")]


@pytest.fixture(params=CASES)
def settings(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    monkeypatch.chdir(tmp_path)
    return {**SMALL, **CASES[request.param]}


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(("settings", "scheduler"), RUNS, indirect=["settings"])
def test_a_run(scheduler: str, settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    made = simulate(scheduler, **settings, passes=True, out="run")
    runs: list[Any] = [made, load_run("run")]
    assert [file.stem for file in made.plot("figures") if file.suffix == ".png"] == ["slo_by_class", "latency_cdf"]
    for run in runs:
        assert len(run.requests) == 6
        assert len(run.passes) == 0
        assert "nothing ran: every request was rejected or cancelled" in class_table(run.metrics)
        assert "%" not in class_table(run.metrics).partition("nothing ran")[2]
        with pytest.raises(SpecsimError, match="iterations: no request was served: the run has none"):
            iterations(run, [0])
    assert isinstance(made, Run)
    assert main(["plot", "run"]) == 0
    assert capsys.readouterr().out.startswith("note: no timeline: no request was served\n")
    assert main(["compare", "run", "run"]) != 0
    assert "nothing ran in A and B: every request was rejected or cancelled" in capsys.readouterr().err


@pytest.mark.usefixtures("unrendered")
def test_a_sweep(settings: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    axes = {"scheduler": ["continuous", "fcfs"], "rps": [1, 2], "seed": [0, 1]}
    sweep(axes, out="sweep", keep="summary", **settings)
    runs = load_sweep("sweep")
    assert len(runs.table)
    assert main(["sweep", "status", "sweep"]) == 0
    assert main(["plot", "sweep"]) == 0
    said = capsys.readouterr()
    assert str(Path("sweep", "figures", "attainment.png")) in said.out
    assert "Traceback" not in said.err


def test_a_search_says_that_nothing_ran_and_makes_no_run_longer(settings: dict[str, Any]) -> None:
    settings.pop("requests")
    found = find({"scheduler": ["continuous"]}, rates=(1, 4), of="chat", longest=300, progress=False, **settings)
    assert found.table["keeps_rps"].isna().all()
    notes = list(found.notes())
    (said,) = (note for note in notes if "nothing ran" in note)
    assert said.startswith(
        "scheduler=continuous: nothing ran in 5 of 5 runs at 1 requests/s, 5 of 5 runs at 2 requests/s"
    )
    assert said.endswith(": every request was rejected or cancelled")
    assert not any("would do" in each for each in notes)
    assert found.figure().axes
