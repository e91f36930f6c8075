"""A run in which no request was served: every table, figure and search of it ends in lines, none in a traceback."""

from itertools import product
from pathlib import Path

import pytest

from specsim import find, iterations, load_run, load_sweep, simulate, sweep
from specsim.cli import main
from specsim.metrics.tables import class_table
from tests.made import refusal

SMALL = {"trace": "poisson", "requests": 6, "profile": "llama8b_1b_h100"}
TOO_LONG = {"distribution": "fixed", "mean": 900_000, "cv": None, "low": None, "high": None}
SPLIT = {"replicas": 2, "split__prefill": 1, "split__link_gb_per_s": 50}
CASES = {
    "rejected": {"trace__prompt_tokens": TOO_LONG},
    "cancelled": {"timeout_s": 1e-6, "replicas": 2},
    "rejected, apart": {"trace__prompt_tokens": TOO_LONG, **SPLIT},
}
RUNS = [*product(["rejected", "cancelled"], ["vllm_spec", "laps_sd"]), ("rejected, apart", "continuous")]


@pytest.fixture(params=CASES)
def settings(request, here):
    return {**SMALL, **CASES[request.param]}


@pytest.mark.usefixtures("unrendered")
@pytest.mark.parametrize(("settings", "scheduler"), RUNS, indirect=["settings"])
def test_a_run(scheduler, settings, capsys):
    made = simulate(scheduler, **settings, passes=True, out="run")
    assert [file.stem for file in made.plot("figures") if file.suffix == ".png"] == ["slo_by_class", "latency_cdf"]
    for run in (made, load_run("run")):
        assert len(run.requests) == 6
        assert len(run.passes) == 0
        assert "nothing ran: every request was rejected or cancelled" in class_table(run.metrics)
        assert "%" not in class_table(run.metrics).partition("nothing ran")[2]
        assert "iterations: no request was served: the run has none" in refusal(iterations, run, [0])
    assert main(["plot", "run"]) == 0
    assert capsys.readouterr().out.startswith("note: no timeline: no request was served\n")
    assert main(["compare", "run", "run"]) != 0
    assert "nothing ran in A and B: every request was rejected or cancelled" in capsys.readouterr().err


@pytest.mark.usefixtures("unrendered")
def test_a_sweep(settings, capsys):
    axes = {"scheduler": ["continuous", "fcfs"], "rps": [1, 2], "seed": [0, 1]}
    sweep(axes, out="sweep", keep="summary", **settings)
    runs = load_sweep("sweep")
    assert len(runs.table)
    assert main(["sweep", "status", "sweep"]) == 0
    assert main(["plot", "sweep"]) == 0
    said = capsys.readouterr()
    assert str(Path("sweep", "figures", "attainment.png")) in said.out
    assert "Traceback" not in said.err


def test_a_search_says_that_nothing_ran_and_makes_no_run_longer(settings):
    settings.pop("requests")
    found = find({"scheduler": ["continuous"]}, rates=(1, 4), of="chat", longest=300, progress=False, **settings)
    assert found.table["keeps_rps"].isna().all()
    notes = list(found.notes())
    (said,) = (note for note in notes if "nothing ran" in note)
    runs = "nothing ran in 5 of 5 runs at 1 requests/s, 5 of 5 runs at 2 requests/s"
    assert said.startswith(f"scheduler=continuous: {runs}")
    assert said.endswith(": every request was rejected or cancelled")
    assert not any("would do" in each for each in notes)
    assert found.figure().axes
