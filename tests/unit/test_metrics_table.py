"""The terminal's tables: their numbers, their width, what stands for an absent value, and what they warn of."""

import pytest

from specsim.metrics.summary import summarise
from specsim.metrics.sweep_text import comparison_table
from specsim.metrics.tables import WIDTH, class_table
from tests.unit.test_metrics_summary import made_table, totals

BY_HAND = summarise(made_table(), totals())


def part(**changes):
    return BY_HAND["specsim"]["classes"]["code"] | changes


def metrics(classes=None, **changes):
    """Return the metrics of a run that keeps up and that TPOT alone does not flatter."""
    calm = {"tpot_attainment": 0.45, "load": {"makespan_ratio": 1.04, "overloaded": False}}
    return BY_HAND | {"specsim": BY_HAND["specsim"] | calm | {"classes": classes or {"code": part()}} | changes}


OVERLOADED = {"makespan_ratio": 14.2, "overloaded": True}


def starved():
    """A run that starves: TPOT is perfect, hardly a request begins in time."""
    waits = {"slo_attainment": 0.064, "tpot_attainment": 1.0, "missed": {"ttft": 59, "tpot": 0, "rejected": 0}}
    return metrics({"code": part(**waits)}, **waits, worst_class_attainment=0.064, load=OVERLOADED)


def cells(text, row):
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [row]]
    return line.split()


def test_class_table_shows_every_objective_beside_what_was_reached():
    text = class_table(metrics())
    row = ["2", "50.0", "0.7", "1.00", "none", "995.0", "500", "3.99", "1.00"]
    assert cells(text, "code") == ["code", *row]
    assert cells(text, "all") == ["all", "5", "40.0", "0.9", "1.97", "990.0", "3.97", "1.00"]


def test_a_class_of_several_objectives_shows_their_range_and_one_without_says_none():
    text = class_table(metrics({"code": part(slo_tpot_range_s=[0.03, 0.05], slo_ttft_range_s=None)}))
    assert cells(text, "code")[5] == "none"
    assert cells(text, "code")[7] == "30-50"


def test_class_table_names_the_worst_class_and_what_failed_most_first():
    lines = class_table(metrics(missed={"ttft": 18, "tpot": 20, "rejected": 3})).splitlines()
    missed = "missed TPOT 20, TTFT 18, rejected 3"
    assert f"worst class chat 33.3%; {missed}; makespan 1.04 x the arrivals' span" in lines
    assert "goodput 1.5 tok/s while requests arrive" in lines
    calm = class_table(metrics(missed={"ttft": 0, "tpot": 0, "rejected": 0}, rejected={}))
    assert "no objective missed" in calm


def test_class_table_marks_starvation():
    text = class_table(starved())
    assert cells(text, "all")[2] == "*6.4"
    assert "* TPOT alone would say 100.0%" in text
    assert any(line.startswith("OVERLOADED") for line in text.splitlines())
    ordinary = class_table(metrics())
    assert "OVERLOADED" not in ordinary
    assert "*" not in ordinary


def test_class_table_accounts_for_every_request_and_for_the_time():
    lines = class_table(metrics()).splitlines()
    assert "4 completed + 1 rejected = 5 arrived" in lines
    assert "tokens per verification 1.29, 9 iterations, 1 preemptions" in lines
    assert "time: prefill 20.0%, draft 10.0%, selection 5.0%, verify 45.0%, idle 20.0%" in lines
    assert "rejected: never fits in memory: 1" in lines


@pytest.mark.parametrize("length", [4, 40, 400])
def test_tables_fit_the_terminal(length):
    classes = {"c" * length: part(slo_goodput_tokens_per_s=123456.7), "d" * length: part()}
    long = metrics(classes, rejected={"r" * length: 3}, worst_class="c" * length)
    text = class_table(long)
    label = {"scheduler": "s" * length, "trace.path": "p" * length, "rps": 2}
    text += "\n" + comparison_table([(label, long), (label | {"rps": 4}, starved())])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_comparison_has_a_row_per_run_led_by_the_swept_keys():
    runs = [({"scheduler": "fcfs", "slo.scale": 0.8}, starved()), ({"scheduler": "adaserve"}, metrics())]
    text = comparison_table(runs)
    heads = ["attained", "worst", "goodput", "TTFT", "end", "pause", "span", "mostly", "load"]
    assert text.splitlines()[0].split() == ["scheduler", "scale", *heads]
    assert text.splitlines()[1].split() == ["class", "to", "end", "missed"]
    shared = ["0.9", "1.97", "3.97", "1.00"]
    assert cells(text, "fcfs") == ["fcfs", "0.8", "*6.4", "6.4", *shared, "14.20", "TTFT", "OVERLOADED"]
    assert cells(text, "adaserve") == ["adaserve", "-", "40.0", "33.3", *shared, "1.04", "TTFT"]


@pytest.mark.parametrize(
    "values",
    [
        ("/data/" + "x" * 90 + "/monday.csv", "/data/" + "x" * 90 + "/friday.csv"),
        ("/data/" + "x" * 90 + "/monday/" + "y" * 90, "/data/" + "x" * 90 + "/friday/" + "y" * 90),
        ("x" * 45 + "a" + "x" * 5 + "b" + "x" * 45, "x" * 45 + "b" + "x" * 5 + "b" + "x" * 45),
    ],
)
def test_settings_that_have_no_room_beside_the_figures_stand_above_them(values):
    keys = ("scheduler.num_speculative_tokens", "seed")
    runs = [({"profile": value} | dict.fromkeys(keys, 31), starved()) for value in values]
    lines = comparison_table(runs).splitlines()
    assert all(f"profile={value}" in "".join(lines) for value in values)
    assert max(map(len, lines)) <= WIDTH


def test_comparison_marks_every_row_whose_figures_need_a_longer_run():
    load = {"makespan_ratio": 1.04, "overloaded": False, "too_short": True}
    short, limit = metrics(load=load), metrics(load=load | {"saturated": True})
    text = comparison_table(
        [({"rps": 2}, short), ({"rps": 4}, limit), ({"rps": 6}, starved()), ({"rps": 8}, metrics())]
    )
    ends = {row: cells(text, row)[-2:] for row in "2468"}
    assert ends["2"] == ["too", "short"]
    assert ends["4"][-1] == "saturated"
    assert ends["6"][-1] == "OVERLOADED"
    assert ends["8"][-1] == "TTFT"
    assert "too short: load or attainment are not known well enough" in text
    assert "too short" not in comparison_table([({"rps": 8}, metrics())])


def test_an_objective_that_nobody_has_is_none_of_anything():
    without = metrics({"code": part(slo_tpot_range_s=None, slo_ttft_range_s=[2.0, 2.0])})
    assert "objectives: code TTFT 2 s, TPOT none" in comparison_table([({"rps": 2}, without)])
    assert "none ms" not in comparison_table([({"rps": 2}, without)])
