"""Every definition of docs/metrics.md against numbers computed by hand, and the terminal's tables of these numbers."""

import math
import re
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specsim import SpecsimError, simulate
from specsim.figures.plots import run_figures
from specsim.metrics.requests import PASS_COLUMNS, REQUEST_COLUMNS, SPENT_COLUMNS, RunTotals
from specsim.metrics.summary import percentile, summarise
from specsim.metrics.tables import WIDTH, class_table, comparison_table
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import requests, simulation, table_of

NAN = math.nan
# Request 0 meets its SLO exactly, 1 misses TPOT, 2 has one token, 3 is rejected, 4 misses only TTFT.
BY_HAND = {
    "slo_class": [1, 1, 0, 0, 0],
    "arrival_s": [0.0, 1.0, 2.0, 3.0, 4.0],
    "first_token_s": [1.0, 2.0, 2.5, NAN, 6.0],
    "finish_s": [3.0, 5.0, 2.5, NAN, 7.0],
    "first_decode_s": [1.0, 2.25, NAN, NAN, 6.5],
    "prompt_tokens": [10, 20, 30, 40, 50],
    "emitted_tokens": [5, 4, 1, 0, 3],
    "draft_tokens": [6, 2, 0, 0, 0],
    "accepted_tokens": [2, 0, 0, 0, 0],
    "verifications": [2, 3, 0, 0, 2],
    "speculations": [2, 1, 0, 0, 0],
    "preemptions": [0, 1, 0, 0, 0],
    "decoded_tokens": [4, 3, 0, 0, 2],
    "longest_pause_s": [1.0, 1.0, NAN, NAN, 0.5],
    "tpot_slo_s": [0.5, 0.5, 0.6, 0.6, 0.6],
    "ttft_slo_s": [NAN, NAN, 0.5, 0.5, 0.5],
}
REJECTED = {3: "never fits in memory"}


def made_table(rows=None, **changes):
    """The table of the requests above, or only of some of their rows, with columns changed."""
    rows = list(range(5)) if rows is None else rows
    given = {name: np.array(values)[rows] for name, values in (BY_HAND | changes).items()}
    rejected = {place: REJECTED[row] for place, row in enumerate(rows) if row in REJECTED}
    return table_of(("chat", "code"), rejected, **given)


def totals(**changes):
    given = {"iterations": 9, "draft_passes": 4, "out_of_range_passes": 3}
    given |= {"prefill_s": 1.0, "draft_s": 0.5, "selection_s": 0.25, "verify_s": 2.25, "idle_s": 1.0}
    return RunTotals(**(given | {"itl_s": np.array([1.0, 1.0, 1.0, 0.5, 0.5])} | changes))


TABLE = made_table()
METRICS = summarise(TABLE, totals())


def test_latencies_of_requests_and_the_verdict_on_each_objective():
    expected = {
        "ttft_s": [1.0, 1.0, 0.5, NAN, 2.0],
        "tpot_s": [0.5, 1.0, NAN, NAN, 0.5],
        "decode_tpot_s": [0.5, 2.75 / 3, NAN, NAN, 0.25],
        "e2el_s": [3.0, 4.0, 0.5, NAN, 3.0],
        "ttft_ok": [True, True, True, False, False],
        "tpot_ok": [True, False, True, False, True],
        "slo_ok": [True, False, True, False, False],
    }
    pd.testing.assert_frame_equal(TABLE[[*expected]], pd.DataFrame(expected), rtol=1e-12, atol=0)


def test_the_hole_before_the_first_decode_counts_in_tpot_and_not_in_adaserve_s_measure():
    """A request that decodes at 0.9167 s per token after a hole: 1 s per token since its first."""
    row = made_table(tpot_slo_s=[0.5, 0.92, 0.6, 0.6, 0.6]).iloc[1]
    assert tuple(row[["tpot_s", "tpot_ok", "slo_ok", "decode_tpot_ok"]]) == (1.0, False, False, True)


def test_exactly_at_the_slo_is_met_whatever_the_clock_lost():
    start_s = 101_351.671
    noisy = {"first_token_s": [start_s] * 5, "finish_s": [start_s + 2 * 0.036] * 5, "emitted_tokens": [3] * 5}
    row = made_table([0], **noisy, tpot_slo_s=[0.036] * 5).iloc[0]
    assert row["tpot_s"] > 0.036
    assert row["slo_ok"]
    assert not made_table([0], **noisy, tpot_slo_s=[0.036 * (1 - 1e-6)] * 5)["slo_ok"][0]


def test_without_slos_completed_attains_and_rejected_misses():
    free = made_table(tpot_slo_s=[NAN] * 5, ttft_slo_s=[NAN] * 5)
    assert free["slo_ok"].tolist() == [True, True, True, False, True]
    metrics = summarise(free, totals(), None)
    assert (metrics["request_goodput"], metrics["specsim"]["slo_attainment"]) == (None, 0.8)


def agree(found, **expected):
    assert {name: found[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_throughput_speculation_and_statistics_in_milliseconds():
    agree(METRICS, duration=7.0, completed=4, failed=1, total_input_tokens=110, total_output_tokens=13)
    agree(METRICS, request_throughput=4 / 7, request_goodput=2 / 7, output_throughput=13 / 7)
    agree(METRICS, total_token_throughput=123 / 7, max_concurrent_requests=3)
    agree(METRICS, mean_ttft_ms=1125.0, median_ttft_ms=1000.0, mean_itl_ms=800.0, median_itl_ms=1000.0)
    agree(METRICS, mean_tpot_ms=2000 / 3, median_tpot_ms=500.0, std_tpot_ms=1000 / math.sqrt(18), p99_tpot_ms=990.0)
    agree(METRICS, mean_e2el_ms=10500 / 4, spec_decode_num_drafts=3)
    agree(METRICS, spec_decode_acceptance_rate=25.0, spec_decode_acceptance_length=1 + 2 / 3)


def test_specsim_block():
    block = METRICS["specsim"]
    agree(block, schema_version=2, arrived=5, completed=4, preemptions=1, iterations=9, draft_passes=4)
    agree(block, slo_attainment=0.4, ttft_attainment=0.6, tpot_attainment=0.6, worst_class_attainment=1 / 3)
    agree(block, longest_pause_s=1.0, p99_ttft_s=METRICS["p99_ttft_ms"] / 1000, out_of_range_passes=3)
    # Both that attain, five tokens and one, have ended by 4 s, when the last request arrives.
    agree(block, slo_goodput_tokens_per_s=6 / 7, slo_goodput_in_arrivals_tokens_per_s=6 / 4)
    agree(block, generated_tokens_per_s=13 / 7, mean_decode_tpot_s=(0.5 + 2.75 / 3 + 0.25) / 3)
    agree(block, mean_tokens_per_verification=9 / 7, mean_draft_tokens_per_verification=8 / 7)
    assert (block["worst_class"], block["rejected"]) == ("chat", {"never fits in memory": 1})
    assert block["missed"] == {"ttft": 1, "tpot": 1, "rejected": 1}
    shares = {"prefill": 0.2, "draft": 0.1, "selection": 0.05, "verify": 0.45, "idle": 0.2}
    assert block["time_shares"] == pytest.approx(shares)
    assert sum(block["time_s"].values()) == 5.0


def test_classes_share_the_duration_of_the_run():
    classes = METRICS["specsim"]["classes"]
    assert list(classes) == ["chat", "code"]
    chat, code = classes["chat"], classes["code"]
    agree(chat, requests=3, completed=2, rejected=1, slo_attainment=1 / 3, slo_goodput_tokens_per_s=1 / 7)
    agree(chat, slo_tpot_s=0.6, slo_ttft_s=0.5)
    agree(code, slo_tpot_s=0.5, mean_tpot_s=0.75, mean_ttft_s=1.0, mean_e2el_s=3.5, p99_tpot_s=0.995)
    assert (code["slo_tpot_range_s"], code["slo_ttft_s"], code["slo_ttft_range_s"]) == ([0.5, 0.5], None, None)
    assert code["missed"] == {"ttft": 0, "tpot": 1, "rejected": 0}
    for name in ("slo_goodput_tokens_per_s", "generated_tokens_per_s"):
        assert chat[name] + code[name] == pytest.approx(METRICS["specsim"][name])


def test_what_ends_after_the_last_arrival_is_not_in_the_goodput_of_the_arrivals():
    late = made_table(finish_s=[3.0, 5.0, 2.5, NAN, 4.5], ttft_slo_s=[NAN] * 5)
    block = summarise(late, totals(), None)["specsim"]
    agree(block, slo_goodput_tokens_per_s=9 / 5, slo_goodput_in_arrivals_tokens_per_s=6 / 4)


def test_window_selects_by_arrival_and_both_ends_count_and_an_empty_one_names_the_span_of_the_arrivals():
    metrics = summarise(TABLE, totals(itl_s=np.array([1.0, 0.5, 0.5]), itl_window=(1.0, 4.0)), (1.0, 4.0))
    agree(metrics, completed=3, duration=6.0, mean_itl_ms=2000 / 3)
    agree(metrics["specsim"], arrived=4, slo_attainment=0.25, iterations=9)
    assert metrics["specsim"]["window"] == [1.0, 4.0]
    with pytest.raises(SpecsimError, match=r"warmup=\[8,9\] selects no request.* 0 s to 4 s$"):
        summarise(TABLE, totals(), (8.0, 9.0))


def test_latencies_of_another_window_are_left_absent():
    """Those of all requests are not those of a window, nor the reverse."""
    for kept, asked in ((None, (1.0, 4.0)), ((1.0, 4.0), None), ((1.0, 4.0), (1.0, 5.0))):
        assert summarise(TABLE, totals(itl_window=kept), asked)["mean_itl_ms"] is None
    assert summarise(TABLE, totals(itl_window=None), None)["mean_itl_ms"] == 800.0


def test_nothing_completed_leaves_rates_absent():
    metrics = summarise(made_table([3]), totals(itl_s=np.empty(0)), None)
    rates = ("duration", "request_throughput", "output_throughput", "mean_ttft_ms", "p99_itl_ms")
    assert [metrics[name] for name in rates] == [None] * 5
    block = metrics["specsim"]
    assert (block["slo_attainment"], block["slo_goodput_tokens_per_s"]) == (0.0, None)
    assert metrics["max_concurrent_requests"] == 0


@given(
    arrays(np.float64, st.integers(1, 20), elements=st.floats(0, 1e6) | st.just(NAN)),
    st.sampled_from((50, 99)) | st.floats(0, 100),
)
def test_a_percentile_of_few_values_is_that_of_numpy_to_the_last_bit(values, percent):
    there = values[~np.isnan(values)]
    assert percentile(values, percent) == (float(np.percentile(there, percent)) if len(there) else None)


def test_docs_name_every_column_and_key():
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    keys = {*REQUEST_COLUMNS, *SPENT_COLUMNS, *PASS_COLUMNS, *METRICS, *METRICS["specsim"]}
    keys |= {*METRICS["specsim"]["classes"]["chat"], *METRICS["specsim"]["time_s"]}
    bare = {re.sub(r"^(mean|median|std|p99)_(?=ttft|tpot|itl|e2el|decode)", "", key) for key in keys}
    assert bare - named == set()


def test_columns_are_summed_up_as_the_table_that_they_make_which_is_a_copy():
    """A write into the table is none into the simulation."""
    told = requests([0.0, 0.1], [5, 6], [7, 8])
    columns = run(simulation(told, [7, 8], factory_of("vllm_spec"))).table()
    table = columns.frame()
    assert summarise(columns, totals()) == summarise(table, totals())
    with pytest.raises(KeyError, match="e2e_s"):
        columns["e2e_s"]
    for name, field in product(table.columns, fields(told)):
        held = getattr(told, field.name)
        assert not (isinstance(held, np.ndarray) and np.shares_memory(table[name].to_numpy(), held)), (name, field.name)


GIVEN = {"scheduler": "continuous", "trace": "poisson", "rps": 4, "requests": 60, "profile": "llama8b_1b_h100"}


@pytest.mark.parametrize(("warmup", "seconds"), [(2.5, 2.5), ("12.5%", 59 / 32)])
def test_a_warmup_is_a_window_without_an_end(warmup, seconds):
    warm, window = simulate(**GIVEN, warmup=warmup), simulate(**GIVEN, warmup=[seconds, 1e6])
    counted, same = dict(warm.metrics["specsim"]), dict(window.metrics["specsim"])
    assert counted.pop("window") == pytest.approx([seconds, 59 / 4])
    assert same.pop("window") == [seconds, 1e6]
    assert counted == same
    assert {**warm.metrics, "specsim": None} == {**window.metrics, "specsim": None}
    left_out = int((warm.requests["arrival_s"] < seconds).sum())
    assert counted["arrived"] == 60 - left_out < 60
    assert f"warmup: {left_out} of 60 requests arrive in the first {seconds:g} s and are not counted" in warm.notes
    assert warm.why().set_index("slo_class").loc["all", "arrived"] == counted["arrived"]
    curves = [line.get_xdata() for line in run_figures(warm)["latency_cdf"].axes[1].lines if not line.is_dashed()]
    assert sum(map(len, curves)) == counted["arrived"] + 2 * len(curves), "a step a request between two ends"
    assert not any(note.startswith("warmup") for note in simulate(**GIVEN).notes)


def part(**changes):
    return METRICS["specsim"]["classes"]["code"] | changes


def shown(classes=None, **changes):
    """Return the metrics of a run that keeps up and that TPOT alone does not flatter."""
    calm = {"tpot_attainment": 0.45, "load": {"makespan_ratio": 1.04, "overloaded": False}}
    return METRICS | {"specsim": METRICS["specsim"] | calm | {"classes": classes or {"code": part()}} | changes}


def starved():
    """A run that starves: TPOT is perfect, hardly a request begins in time."""
    waits = {"slo_attainment": 0.064, "tpot_attainment": 1.0, "missed": {"ttft": 59, "tpot": 0, "rejected": 0}}
    load = {"makespan_ratio": 14.2, "overloaded": True}
    return shown({"code": part(**waits)}, **waits, worst_class_attainment=0.064, load=load)


def cells(text, row):
    (line,) = [line for line in text.splitlines() if line.split()[:1] == [row]]
    return line.split()


def test_class_table_shows_objectives_beside_what_was_reached_and_accounts_for_requests_and_time():
    on = {"gpus": 2, "output_throughput_per_gpu": 0.84}
    text = class_table(shown(missed={"ttft": 18, "tpot": 20, "rejected": 3}, prefix_cache_hit_rate=0.25, **on))
    assert cells(text, "code") == ["code", "2", "50.0", "0.7", "1.00", "none", "995.0", "500", "3.99", "1.00"]
    assert cells(text, "all") == ["all", "5", "40.0", "0.9", "1.97", "990.0", "3.97", "1.00"]
    missed = "missed TPOT 20, TTFT 18, rejected 3"
    assert {*text.splitlines()} >= {
        f"worst class chat 33.3%; {missed}; makespan 1.04 x the arrivals' span",
        "goodput up to the last arrival 1.5 tok/s; output 0.8 tok/s on each of 2 GPUs",
        "4 completed + 1 rejected = 5 arrived; 0.57 completed a second",
        "tokens per verification 1.29, 9 iterations, 1 preemptions, 25.0% of prompt tokens cached",
        "time: prefill 20.0%, draft 10.0%, selection 5.0%, verify 45.0%, idle 20.0%",
        "rejected: never fits in memory: 1",
    }
    plain = class_table(
        shown(
            missed=dict.fromkeys(("ttft", "tpot", "rejected"), 0), rejected={}, mean_draft_tokens_per_verification=0.0
        )
    )
    assert all(said in plain for said in ("no objective missed", "selection 5.0%, decode 45.0%"))
    ranges = cells(class_table(shown({"code": part(slo_tpot_range_s=[0.03, 0.05], slo_ttft_range_s=None)})), "code")
    assert (ranges[5], ranges[7]) == ("none", "30-50")


def test_class_table_marks_starvation():
    text = class_table(starved())
    assert cells(text, "all")[2] == "*6.4"
    assert "* TPOT alone would say 100.0%" in text
    assert any(line.startswith("OVERLOADED") for line in text.splitlines())
    ordinary = class_table(shown())
    assert not re.search(r"OVERLOADED|\*", ordinary)


@pytest.mark.parametrize("length", [4, 40, 400])
def test_tables_fit_the_terminal(length):
    classes = {"c" * length: part(slo_goodput_tokens_per_s=123456.7), "d" * length: part()}
    long = shown(classes, rejected={"r" * length: 3}, worst_class="c" * length)
    text = class_table(long)
    label = {"scheduler": "s" * length, "trace.path": "p" * length, "rps": 2}
    text += "\n" + comparison_table([(label, long), (label | {"rps": 4}, starved())])
    assert max(map(len, text.splitlines())) <= WIDTH


def test_comparison_has_a_row_per_run_led_by_the_swept_keys():
    runs = [({"scheduler": "fcfs", "slo.scale": 0.8}, starved()), ({"scheduler": "adaserve"}, shown())]
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
        ("x" * 90 + "-monday", "x" * 90 + "-friday"),
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
    short, limit = shown(load=load), shown(load=load | {"saturated": True})
    text = comparison_table([({"rps": 2}, short), ({"rps": 4}, limit), ({"rps": 6}, starved()), ({"rps": 8}, shown())])
    assert [cells(text, row)[-1] for row in "2468"] == ["short", "saturated", "OVERLOADED", "TTFT"]
    assert "too short: load or attainment are not known well enough" in text
    assert "too short" not in comparison_table([({"rps": 8}, shown())])


def test_an_objective_that_nobody_has_is_none_of_anything():
    without = shown({"code": part(slo_tpot_range_s=None, slo_ttft_range_s=[2.0, 2.0])})
    assert "objectives: code TTFT 2 s, TPOT none" in comparison_table([({"rps": 2}, without)])
    assert "none ms" not in comparison_table([({"rps": 2}, without)])
