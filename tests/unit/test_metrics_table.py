"""The terminal's tables: their numbers, their width and what stands for an absent value."""

import pytest

from specsim.metrics.table import WIDTH, class_table, comparison_table


def part(**changes):
    given = {
        "requests": 60,
        "slo_attainment": 0.5,
        "slo_goodput_tokens_per_s": 120.04,
        "mean_tpot_s": 0.0312,
        "p99_tpot_s": 0.0521,
        "mean_decode_tpot_s": 0.0301,
        "p99_decode_tpot_s": 0.0499,
        "mean_ttft_s": 0.8,
        "p99_ttft_s": 3.21,
        "mean_e2el_s": 4.567,
        "slo_tpot_s": 0.036,
        "slo_tpot_measure": "tpot_s",
    }
    return given | changes


def metrics(classes=None, **changes):
    block = {
        "arrived": 63,
        "completed": 60,
        "rejected": {"never fits in memory": 2, "too long": 1},
        "slo_attainment": 0.476,
        "slo_goodput_tokens_per_s": 120.04,
        "generated_tokens_per_s": 240.5,
        "mean_tokens_per_verification": 2.345,
        "mean_decode_tpot_s": 0.0301,
        "p99_decode_tpot_s": 0.0499,
        "iterations": 1234,
        "preemptions": 5,
        "time_shares": {"prefill": 0.25, "draft": 0.125, "selection": 0.005, "verify": 0.5, "idle": 0.12},
        "classes": {"code": part()} if classes is None else classes,
    }
    latencies = {"mean_tpot_ms": 31.2, "p99_tpot_ms": 52.1, "mean_ttft_ms": 800.0, "p99_ttft_ms": 3210.0}
    return {**latencies, "mean_e2el_ms": 4567.0, "specsim": block | changes}


def cells(text, row):
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [row]]
    return line.split()


def test_class_table_shows_percent_and_milliseconds():
    text = class_table(metrics())
    assert cells(text, "code") == [
        "code",
        "60",
        "50.0",
        "120.0",
        "31.2",
        "52.1",
        "36.0",
        "800",
        "3210",
        "4.57",
    ]
    assert cells(text, "all") == ["all", "63", "47.6", "120.0", "31.2", "52.1", "800", "3210", "4.57"]


def test_class_table_shows_the_latency_that_the_slo_is_held_against():
    text = class_table(metrics({"code": part(slo_tpot_measure="decode_tpot_s")}))
    assert "decode TPOT" in text.splitlines()[0]
    assert cells(text, "code")[4:6] == ["30.1", "49.9"]
    assert cells(text, "all")[4:6] == ["30.1", "49.9"]


def test_class_table_accounts_for_every_request_and_for_the_time():
    lines = class_table(metrics()).splitlines()
    assert "60 completed + 3 rejected = 63 arrived" in lines
    assert "tokens per verification 2.35, 1234 iterations, 5 preemptions" in lines
    assert "time: prefill 25.0%, draft 12.5%, selection 0.5%, verify 50.0%, idle 12.0%" in lines
    assert "rejected: never fits in memory: 2; too long: 1" in lines


def test_no_line_on_rejections_without_any():
    assert "rejected:" not in class_table(metrics(rejected={}))


def test_absent_values_are_dashes():
    absent = {name: None for name in part() if name.startswith(("mean", "p99", "slo_tpot_s", "slo_good"))}
    text = class_table(metrics({"code": part(**absent)}, mean_tokens_per_verification=None))
    assert cells(text, "code") == ["code", "60", "50.0", "-", "-", "-", "-", "-", "-", "-"]
    assert "tokens per verification -" in text


@pytest.mark.parametrize("length", [4, 40, 400])
def test_tables_fit_the_terminal(length):
    classes = {"c" * length: part(slo_goodput_tokens_per_s=123456.7), "d" * length: part()}
    text = class_table(metrics(classes, rejected={"r" * length: 3}))
    label = {"scheduler": "s" * length, "trace.path": "p" * length, "rps": 2}
    text += "\n" + comparison_table([(label, metrics()), (label | {"rps": 4}, metrics())])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_comparison_has_a_row_per_run_led_by_the_swept_keys():
    runs = [({"scheduler": "fcfs", "slo.scale": 0.8}, metrics()), ({"scheduler": "adaserve"}, metrics())]
    text = comparison_table(runs)
    assert text.splitlines()[0].split()[:2] == ["scheduler", "scale"]
    assert cells(text, "fcfs") == ["fcfs", "0.8", "47.6", "120.0", "240.5", "31.2", "3210", "2.35"]
    assert cells(text, "adaserve")[:3] == ["adaserve", "-", "47.6"]


def test_comparison_keeps_the_ends_of_long_values():
    label = {"trace": "/" + "x" * 120 + "/azure.csv"}
    assert ".csv" in comparison_table([(label, metrics())])
