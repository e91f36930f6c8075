"""A surrogate that ships is named above every table and below every figure, once, and nothing else is."""

import pytest

from specsim import find, iterations, simulate, sweep
from specsim.cli import main
from specsim.commands.tables import find_table
from specsim.figures.plots import run_figures, sweep_figures
from specsim.figures.slo import comparison
from specsim.metrics.sweep_table import axes_of
from specsim.metrics.tables import class_table, comparison_table, stand_in
from tests.unit.test_plots import caption

SAID = "azure_conv: the synthetic surrogate that ships"
SMALL = {"requests": 20, "profile": "llama8b_1b_h100"}
pytestmark = pytest.mark.usefixtures("empty_cache")


def test_a_run_s_table_begins_with_it_and_its_figures_say_it():
    run = simulate("adaserve", "azure_conv", passes=True, **SMALL)
    first, second = class_table(run.metrics).split("\n")[:2]
    assert first == f"{SAID}; `specsim trace fetch azure_conv` gets the original"
    assert second.startswith("class ")
    assert run.notes[0] == first
    assert f"; {len(run.notes)} notes; in memory>" in repr(run)
    assert run._repr_html_().count(SAID) == 1
    figures = run_figures(run)
    assert set(figures) == {"slo_by_class", "latency_cdf", "timeline"}
    assert all(f"{SAID}." in caption(figure) for figure in figures.values())
    (step,) = [each for each in iterations(run, [60]) if each.requests["decoding"].any()]
    assert caption(step.draw()) == f"{SAID}."


def test_the_tables_of_a_sweep_begin_with_it_and_its_figures_say_it_once(capsys, tmp_path):
    axes = {"scheduler": ["vllm", "fcfs"], "rps": [2, 4], "seed": range(2)}
    made = sweep(axes, trace="azure_conv", progress=False, **SMALL)
    each = comparison_table(made.labelled()).split("\n")
    assert each[0].startswith(SAID)
    assert sum("surrogate" in line for line in each) == 1
    assert made.notes[0] == each[0]
    html = made._repr_html_()
    assert html.index(SAID) < html.index("attained")
    assert html.count("surrogate") == 1
    frame = made.table.query("slo_class == 'all'")
    drawn = [*sweep_figures(frame, axes_of(frame)).values()]
    drawn.append(comparison([(str(number), run.metrics) for number, run in enumerate(made)]))
    assert [caption(figure).count("surrogate") for figure in drawn] == [1] * len(drawn)
    assert made.figure().caption.count("surrogate") == 1
    assert main(["run", "-m", "trace=azure_conv", "rps=2,4", "requests=20", f"out={tmp_path}"]) == 0
    assert capsys.readouterr().out.count("surrogate") == 1


def test_a_search_says_it():
    found = find({"scheduler": ["vllm"]}, rates=(1, 2), within=1.0, trace="azure_conv", seed=0, progress=False, **SMALL)
    assert next(iter(find_table(found))).startswith(SAID)
    assert f"{SAID}." in caption(found.figure())
    assert sum("surrogate" in note for note in found.notes()) == 1


def test_other_traces_say_nothing():
    run = simulate("vllm", "poisson", **SMALL)
    assert run.metrics["specsim"]["stand_in"] is None
    assert class_table(run.metrics).startswith("class ")
    assert all("that ships" not in caption(figure) for figure in run_figures(run).values())
    assert stand_in("azure_conv", "real") is None
