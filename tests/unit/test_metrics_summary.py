"""Every definition of docs/metrics.md against numbers computed by hand."""

import math
import re
from dataclasses import fields
from itertools import product
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from specsim.errors import SpecsimError
from specsim.metrics.requests import PASS_COLUMNS, REQUEST_COLUMNS, RunTotals
from specsim.metrics.summary import percentile, summarise
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
    given = {
        "iterations": 9,
        "draft_passes": 4,
        "prefill_s": 1.0,
        "draft_s": 0.5,
        "selection_s": 0.25,
        "verify_s": 2.25,
        "idle_s": 1.0,
        "itl_s": np.array([1.0, 1.0, 1.0, 0.5, 0.5]),
        "out_of_range_passes": 3,
    }
    return RunTotals(**(given | changes))


@pytest.fixture
def table():
    return made_table()


@pytest.fixture
def metrics(table):
    return summarise(table, totals(), None)


def same(actual, expected):
    np.testing.assert_allclose(np.asarray(actual, dtype=float), expected, rtol=1e-12)


def test_latencies_of_requests(table):
    same(table["ttft_s"], [1.0, 1.0, 0.5, NAN, 2.0])
    same(table["tpot_s"], [0.5, 1.0, NAN, NAN, 0.5])
    same(table["decode_tpot_s"], [0.5, 2.75 / 3, NAN, NAN, 0.25])
    same(table["e2el_s"], [3.0, 4.0, 0.5, NAN, 3.0])


def test_each_objective_is_judged_and_the_joint_verdict_needs_all(table):
    assert table["ttft_ok"].tolist() == [True, True, True, False, False]
    assert table["tpot_ok"].tolist() == [True, False, True, False, True]
    assert (table["slo_ok"] == table["ttft_ok"] & table["tpot_ok"]).all()


def test_the_hole_before_the_first_decode_counts_in_tpot_and_not_in_adaserve_s_measure():
    """A request that decodes at 0.9167 s per token after a hole: 1 s per token since its first."""
    row = made_table(tpot_slo_s=[0.5, 0.92, 0.6, 0.6, 0.6]).iloc[1]
    assert (row["tpot_s"], row["tpot_ok"], row["slo_ok"]) == (1.0, False, False)
    assert row["decode_tpot_ok"]


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
    assert metrics["request_goodput"] is None
    assert metrics["specsim"]["slo_attainment"] == 0.8


def test_throughput_and_statistics_in_milliseconds(metrics):
    expected = {
        "duration": 7.0,
        "completed": 4,
        "failed": 1,
        "total_input_tokens": 110,
        "total_output_tokens": 13,
        "request_throughput": 4 / 7,
        "request_goodput": 2 / 7,
        "output_throughput": 13 / 7,
        "total_token_throughput": 123 / 7,
        "max_concurrent_requests": 3,
        "mean_ttft_ms": 1125.0,
        "median_ttft_ms": 1000.0,
        "mean_tpot_ms": 2000 / 3,
        "median_tpot_ms": 500.0,
        "std_tpot_ms": 1000 / math.sqrt(18),
        "p99_tpot_ms": 990.0,
        "mean_itl_ms": 800.0,
        "median_itl_ms": 1000.0,
        "mean_e2el_ms": 10500 / 4,
    }
    assert {name: metrics[name] for name in expected} == pytest.approx(expected, rel=1e-12)


def test_speculation(metrics):
    assert metrics["spec_decode_num_drafts"] == 3
    assert metrics["spec_decode_acceptance_rate"] == 25.0
    assert metrics["spec_decode_acceptance_length"] == pytest.approx(1 + 2 / 3)
    assert metrics["specsim"]["mean_tokens_per_verification"] == pytest.approx(9 / 7)
    assert metrics["specsim"]["mean_draft_tokens_per_verification"] == pytest.approx(8 / 7)


def test_specsim_block(metrics):
    block = metrics["specsim"]
    assert block["schema_version"] == 2
    assert (block["arrived"], block["completed"], block["preemptions"]) == (5, 4, 1)
    assert block["rejected"] == {"never fits in memory": 1}
    assert block["slo_attainment"] == 0.4
    assert (block["ttft_attainment"], block["tpot_attainment"]) == (0.6, 0.6)
    assert block["missed"] == {"ttft": 1, "tpot": 1, "rejected": 1}
    assert (block["worst_class"], block["worst_class_attainment"]) == ("chat", pytest.approx(1 / 3))
    assert block["longest_pause_s"] == 1.0
    assert block["p99_ttft_s"] == pytest.approx(metrics["p99_ttft_ms"] / 1000)
    assert block["slo_goodput_tokens_per_s"] == pytest.approx(6 / 7)
    # Both that attain, five tokens and one, have ended by 4 s, when the last request arrives.
    assert block["slo_goodput_in_arrivals_tokens_per_s"] == pytest.approx(6 / 4)
    assert block["generated_tokens_per_s"] == pytest.approx(13 / 7)
    assert block["mean_decode_tpot_s"] == pytest.approx((0.5 + 2.75 / 3 + 0.25) / 3)
    assert (block["iterations"], block["draft_passes"], block["out_of_range_passes"]) == (9, 4, 3)
    shares = {"prefill": 0.2, "draft": 0.1, "selection": 0.05, "verify": 0.45, "idle": 0.2}
    assert block["time_shares"] == pytest.approx(shares)
    assert sum(block["time_s"].values()) == 5.0


def test_classes_share_the_duration_of_the_run(metrics):
    classes = metrics["specsim"]["classes"]
    assert list(classes) == ["chat", "code"]
    chat, code = classes["chat"], classes["code"]
    assert (chat["requests"], chat["completed"], chat["rejected"]) == (3, 2, 1)
    assert chat["slo_attainment"] == pytest.approx(1 / 3)
    assert chat["slo_goodput_tokens_per_s"] == pytest.approx(1 / 7)
    assert (chat["slo_tpot_s"], chat["slo_ttft_s"]) == (0.6, 0.5)
    assert (code["slo_tpot_s"], code["slo_ttft_s"]) == (0.5, None)
    assert (code["slo_tpot_range_s"], code["slo_ttft_range_s"]) == ([0.5, 0.5], None)
    assert code["missed"] == {"ttft": 0, "tpot": 1, "rejected": 0}
    assert (code["mean_tpot_s"], code["mean_ttft_s"], code["mean_e2el_s"]) == (0.75, 1.0, 3.5)
    assert code["p99_tpot_s"] == pytest.approx(0.995)
    for name in ("slo_goodput_tokens_per_s", "generated_tokens_per_s"):
        assert chat[name] + code[name] == pytest.approx(metrics["specsim"][name])


def test_what_ends_after_the_last_arrival_is_not_in_the_goodput_of_the_arrivals(table):
    late = made_table(finish_s=[3.0, 5.0, 2.5, NAN, 4.5], ttft_slo_s=[NAN] * 5)
    block = summarise(late, totals(), None)["specsim"]
    assert block["slo_goodput_tokens_per_s"] == pytest.approx(9 / 5)
    assert block["slo_goodput_in_arrivals_tokens_per_s"] == pytest.approx(6 / 4)


def test_window_selects_by_arrival_and_both_ends_count(table):
    metrics = summarise(table, totals(itl_s=np.array([1.0, 0.5, 0.5]), itl_window=(1.0, 4.0)), (1.0, 4.0))
    block = metrics["specsim"]
    assert block["window"] == [1.0, 4.0]
    assert (block["arrived"], metrics["completed"], metrics["duration"]) == (4, 3, 6.0)
    assert block["slo_attainment"] == 0.25
    assert metrics["mean_itl_ms"] == pytest.approx(2000 / 3)
    assert block["iterations"] == 9


def test_latencies_of_another_window_are_left_absent(table):
    """Those of all requests are not those of a window, nor the reverse."""
    for kept, asked in ((None, (1.0, 4.0)), ((1.0, 4.0), None), ((1.0, 4.0), (1.0, 5.0))):
        assert summarise(table, totals(itl_window=kept), asked)["mean_itl_ms"] is None
    assert summarise(table, totals(itl_window=None), None)["mean_itl_ms"] == 800.0


def test_empty_window_names_the_span_of_the_arrivals(table):
    with pytest.raises(SpecsimError, match=r"warmup=\[8,9\] selects no request.* 0 s to 4 s$"):
        summarise(table, totals(), (8.0, 9.0))


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


def test_docs_name_every_column_and_key(metrics):
    page = (Path(__file__).parents[2] / "docs" / "metrics.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`(\w+)`", page))
    keys = {*REQUEST_COLUMNS, *PASS_COLUMNS, *metrics, *metrics["specsim"]}
    keys |= {*metrics["specsim"]["classes"]["chat"], *metrics["specsim"]["time_s"]}
    bare = {re.sub(r"^(mean|median|std|p99)_(?=ttft|tpot|itl|e2el|decode)", "", key) for key in keys}
    assert bare - named == set()


def test_columns_are_summed_up_as_the_table_that_they_make_which_is_a_copy():
    """Who writes into the table does not write into the simulation."""
    told = requests([0.0, 0.1], [5, 6], [7, 8])
    columns = run(simulation(told, [7, 8], factory_of("vllm_spec"))).table()
    table = columns.frame()
    assert summarise(columns, totals()) == summarise(table, totals())
    with pytest.raises(KeyError, match="e2e_s"):
        columns["e2e_s"]
    for name, field in product(table.columns, fields(told)):
        held = getattr(told, field.name)
        assert not (isinstance(held, np.ndarray) and np.shares_memory(table[name].to_numpy(), held)), (name, field.name)
