"""Published figures: what an experiment YAML may hold, gaps and verdicts by hand, the page and the files behind it."""

from __future__ import annotations

import os
from pathlib import Path

import pandas as pd
import pytest

from specsim.commands.reproduce import OUT
from specsim.errors import SpecsimError
from specsim.files.paths import shipped
from specsim.published.comparison import COLUMNS, Compared, compared, gap_of, read_rows, write_rows
from specsim.published.experiment import Experiment, experiments, read_experiment
from specsim.published.page import page
from specsim.published.verdict import FigureGap, figure_gap, system_gaps
from tests.published import TINY, tiny

ROOT = shipped("conf").parent

MISTAKES = {
    'paper: "A paper"\n': ("", "paper: missing key"),
    "seeds: [0, 1]": ("seeds: [0, 0]", r"seeds: \[0, 0\] is not a list in which each seed stands once"),
    "seeds: [0, 1] ": ("sedes: [0, 1]", "sedes: unknown key; did you mean 'seeds'"),
    "[1, 2, 4]}\nseeds": ("[1, 2, 2]}\nseeds", r"axis.values: \[1, 2, 2\] is not a list of finite numbers, each above"),
    "values: [1, 2, 4]}": ("values: [1, 2, .nan]}", "axis.values: .* is not a list of finite numbers"),
    "key: rps": ("key: seed", "axis.key: 'seed' is not a key of a run other than out, seed and requests"),
    "values: [1, 4]": ("values: [1, 3]", r"quick.values: \[1, 3\] is not a list of values of the axis"),
    "requests: 10": ("requests: 0", "quick.requests: 0 is not a whole number"),
    "common: [trace": ("common: [seed=3, trace", "common: seed=3: seed is the experiment's own; expected another key"),
    "[scheduler=fcfs]": ("scheduler=fcfs", "systems.One by one: 'scheduler=fcfs' is not a list of settings key=value"),
    "{Batches: [99": ("{Batch: [99", "figures.tiny_attainment.values.Batch: no such system; did you mean 'Batches'"),
    "[99, 98, 90]": ("[99, 98]", r"values.Batches: \[99, 98\] is not a list of 3 numbers of at least 0, one for each"),
    "[99, 98, 90] ": ("[null, null, null]", "values.Batches: .* is not a list of 3 numbers"),
    "[99, 98, 90]  ": ("[99, true, 90]", "values.Batches: .* is not a list of 3 numbers"),
    "gap: percent": ("gap: percent\n    speedup_over: One by one", "One by one: has a speedup over itself of 1"),
    "gap: percent ": ("gap: percent\n    speedup_over: Batch", "speedup_over: 'Batch' is unknown; did you mean"),
    "gap: points": ("gap: point", "gap: 'point' is unknown; did you mean 'points'"),
    "scale: 100": ("scale: 0", "figures.tiny_attainment.scale: 0 is not a finite number above 0"),
    "by one: [1, 2, 4]": ("by one: [0, 2, 4]", "values: a published value of 0 has no gap in percent"),
    'notes: ["Its': ('notes: "Its', "notes: .* is not a list of sentences"),
}


@pytest.mark.parametrize("there", MISTAKES)
def test_a_mistake_in_an_experiment_is_one_line_that_names_file_and_key(there: str, tmp_path: Path) -> None:
    instead, said = MISTAKES[there]
    assert there.strip(" ") in TINY
    text = TINY.replace(there.strip(" "), instead)
    if "notes" in there:
        text = text.replace('longer."]', 'longer."')
    with pytest.raises(SpecsimError, match=said) as error:
        read_experiment(tiny(tmp_path, text))
    assert str(error.value).startswith(str(tmp_path / "tiny.yaml"))
    assert "\n" not in str(error.value)


def test_experiments_are_named_by_file_figure_or_path(tmp_path: Path) -> None:
    (one,) = experiments(("adaserve_fig9_llama",))
    assert one.name == "adaserve_fig8_llama"
    assert experiments(("adaserve_fig8_llama", "adaserve_fig12_llama")) == (one,)
    assert one in experiments()
    assert experiments((str(tiny(tmp_path)),))[0].systems["Batches"] == ("scheduler=continuous",)
    with pytest.raises(SpecsimError, match="reproduce adaserve_fig7_llama: unknown; did you mean 'adaserve_fig"):
        experiments(("adaserve_fig7_llama",))


def test_every_shipped_figure_has_a_name_of_its_own() -> None:
    names = [figure.name for each in experiments() for figure in each.figures]
    assert len(set(names)) == len(names) > 3


def by_hand(experiment: Experiment) -> dict[str, pd.DataFrame]:
    """Return two seeds of runs at each rate: attainments and latencies that are easily added up."""
    runs = [(x, seed) for x in (1.0, 2.0, 4.0) for seed in (0, 1)]
    columns = {"x": [x for x, _ in runs], "seed": [seed for _, seed in runs]}
    batches = {"slo_attainment": [0.99, 0.99, 0.95, 0.97, 0.70, 0.80], "mean_e2el_s": [1.0] * 6}
    single = {"slo_attainment": [0.90, 0.90, 0.40, 0.40, 0.90, 0.70], "mean_e2el_s": [1.1, 1.1, 2.0, 2.0, 3.0, 5.0]}
    return {"Batches": pd.DataFrame(columns | batches), "One by one": pd.DataFrame(columns | single)}


def figures_by_hand(folder: Path) -> list[Compared]:
    experiment = read_experiment(tiny(folder))
    found = by_hand(experiment)
    return [compared(experiment, figure, found, quick=False) for figure in experiment.figures]


def test_rows_hold_means_intervals_and_gaps(tmp_path: Path) -> None:
    attainment, latency = figures_by_hand(tmp_path)
    assert list(attainment.rows.columns) == list(COLUMNS)
    row = attainment.rows.query("system == 'Batches' and x == 2").iloc[0]
    assert (row["theirs"], row["seeds"]) == (98, 2)
    assert row["ours"] == pytest.approx(96)
    assert row["gap"] == pytest.approx(-2)
    # Two seeds: Student's t with one degree of freedom is 12.706, the standard error of 95 and 97 is 1.
    assert row["ours_half_width"] == pytest.approx(12.706, abs=1e-3)
    assert list(latency.rows["system"].unique()) == ["One by one"]
    assert list(latency.rows["gap"]) == pytest.approx([10, 0, 0])


def test_gaps_of_systems_and_the_order_by_hand(tmp_path: Path) -> None:
    attainment, latency = figures_by_hand(tmp_path)
    one, batches = system_gaps(attainment)
    assert (one.system, one.verdict) == ("One by one", "far")
    # 90, 40, 80 against 90, 50, 20.
    assert one.gap == pytest.approx((0 - 10 + 60) / 3)
    assert one.mean_gap == pytest.approx(70 / 3)
    assert (one.worst_x, one.worst_gap) == (4, pytest.approx(60))
    # 99, 96, 75 against 99, 98, 90.
    assert batches.mean_gap == pytest.approx(17 / 3)
    whole = figure_gap(attainment)
    # At 4 requests/s the published order, 90 above 20, has turned: 75 below 80.
    assert (whole.pairs, whole.kept) == (3, 2)
    assert whole.mean_gap == pytest.approx(87 / 6)
    assert whole.verdict == "not reproduced"
    assert figure_gap(latency) == (pytest.approx(10 / 3), 0, 0)
    assert figure_gap(latency).verdict == "reproduced"


@pytest.mark.parametrize(
    ("gap", "verdict"),
    [
        (FigureGap(4.0, 5, 5), "reproduced"),
        (FigureGap(4.0, 5, 4), "level only"),
        (FigureGap(4.1, 5, 5), "order only"),
        (FigureGap(4.1, 5, 4), "not reproduced"),
        (FigureGap(4.1, 0, 0), "not reproduced"),
    ],
)
def test_a_verdict_follows_the_rule(gap: FigureGap, verdict: str) -> None:
    assert gap.verdict == verdict


def test_a_speedup_is_that_of_each_seed_and_what_is_not_published_has_no_gap(tmp_path: Path) -> None:
    text = TINY.replace("gap: percent", "gap: percent\n    speedup_over: Batches")
    experiment = read_experiment(tiny(tmp_path, text.replace("by one: [1, 2, 4]", "by one: [1, null, 0.5]")))
    one = compared(experiment, experiment.figures[1], by_hand(experiment), quick=False)
    # 1 s over 3 and 5 s; of the means it would be 1 / 4.
    assert list(one.rows["ours"]) == pytest.approx([1 / 1.1, 0.5, (1 / 3 + 1 / 5) / 2])
    assert list(one.rows["gap"].isna()) == [False, True, False]
    (gap,) = system_gaps(one)
    assert gap.theirs == pytest.approx(0.75)
    assert gap.ours == pytest.approx((1 / 1.1 + 4 / 15) / 2)
    assert gap.mean_gap == pytest.approx((100 * (1 - 1 / 1.1) + 100 * (0.5 - 4 / 15) / 0.5) / 2)
    assert "| One by one | 1.00 / 0.91 | - / 0.50 | 0.50 / 0.27 |" in page([one], tmp_path)
    assert read_rows(experiment, one.figure, write_rows(one, tmp_path).parent) is not None


def test_a_pair_counts_only_if_it_is_apart(tmp_path: Path) -> None:
    attainment, _ = figures_by_hand(tmp_path)
    close = attainment.rows.assign(theirs=[50.0, 53.5, 90.0, 53.5, 50.1, 90.0])
    # 3.5 and 3.4 points are too close, and equal values have no order.
    assert figure_gap(attainment._replace(rows=close)).pairs == 0
    further = close.assign(theirs=[50.0, 53.5, 90.0, 53.6, 50.1, 90.0])
    assert figure_gap(attainment._replace(rows=further)).pairs == 1


def test_a_gap_is_in_points_or_in_percent_of_theirs(tmp_path: Path) -> None:
    attainment, latency = read_experiment(tiny(tmp_path)).figures
    assert gap_of(attainment, 80, 60) == -20
    assert gap_of(latency, 80, 60) == -25


def test_rows_are_read_as_they_were_written_until_the_experiment_changes(tmp_path: Path) -> None:
    attainment, _ = figures_by_hand(tmp_path)
    experiment, figure = attainment.experiment, attainment.figure
    assert read_rows(experiment, figure, tmp_path) is None
    path = write_rows(attainment, tmp_path)
    again = read_rows(experiment, figure, tmp_path)
    assert again is not None
    pd.testing.assert_frame_equal(again.rows, attainment.rows, check_dtype=False)
    assert not again.quick
    told = read_experiment(tiny(tmp_path, TINY.replace("Batches attain more", "Batches win")))
    assert read_rows(told, told.figures[0], tmp_path) is not None
    for old, new in (("[99, 98, 90]", "[99, 98, 91]"), ("scheduler=fcfs", "scheduler=sarathi"), ("[0, 1]", "[0, 2]")):
        other = read_experiment(tiny(tmp_path, TINY.replace(old, new)))
        with pytest.raises(SpecsimError, match=r"tiny.yaml has changed since it was written; `specsim reproduce tiny`"):
            read_rows(other, other.figures[0], tmp_path)
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(SpecsimError, match=r"tiny_attainment.parquet: cannot be read"):
        read_rows(experiment, figure, tmp_path)


def test_the_page_has_the_largest_gaps_first_and_a_verdict_only_of_the_whole_form(tmp_path: Path) -> None:
    both = figures_by_hand(tmp_path)
    text = page(both, tmp_path)
    figures = [line for line in text.splitlines() if line.startswith("| [A paper, Fig.") and "pairs" in line]
    assert [line.split(" | ")[-3:] for line in figures] == [
        ["14.5 points", "2 of 3 pairs", "not reproduced |"],
        ["3.3 %", "0 of 0 pairs", "reproduced |"],
    ]
    assert "| Batches | 95.7 % | 90.0 ± 25.4 % | -5.7 points | 5.7 points | -15.0 at 4 | far |" in text
    assert "[tiny.yaml](tiny.yaml), 2 seeds" in text
    assert "- Its prompts were longer." in text
    assert "- The paper names no lengths: those of trace=poisson." in text
    quick = page([each._replace(quick=True) for each in both], tmp_path)
    assert "none (quick)" in quick
    assert not [line for line in quick.splitlines() if line.startswith("| [") and "reproduced" in line]


def test_the_committed_page_is_what_the_committed_files_say() -> None:
    """Held to the files, not to their runs: those take minutes and a trace that does not ship."""
    read = [read_rows(each, figure, ROOT / OUT) for each in experiments() for figure in each.figures]
    there = [each for each in read if each is not None]
    assert len(there) == len(read)
    assert not any(each.quick for each in there)
    docs = ROOT / "docs"
    assert (docs / "reproduction.md").read_text(encoding="utf-8") == page(there, docs)
    assert all((docs / "figures" / f"{each.figure.name}.png").is_file() for each in there)


def test_the_published_values_are_those_of_the_data() -> None:
    """Where the project's data is there, the YAML repeats its table of what was read from the paper."""
    found = [
        Path(each) / "adaserve/paper_figures.csv" for each in os.environ.get("SPECSIM_DATA", "").split(":") if each
    ]
    file = next((each for each in found if each.is_file()), None)
    if file is None:
        pytest.skip("no paper_figures.csv")
    table = pd.read_csv(file).query("model == 'Llama-3.1-70B-Instruct'").set_index(["figure", "system", "x"])["y"]
    (experiment,) = experiments(("adaserve_fig8_llama",))
    for figure in experiment.figures:
        number = figure.name.split("_")[1]
        each = {system: zip(experiment.axis.values, ys, strict=True) for system, ys in figure.values.items()}
        read = {(number, system, x): y for system, points in each.items() for x, y in points}
        assert read == table.loc[[number]].to_dict()
