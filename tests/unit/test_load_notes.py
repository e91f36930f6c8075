"""The block `load` from a request table by hand, and what is said of it in the notes."""

import re

import numpy as np
import pandas as pd
import pytest

from specsim.api import find, simulate
from specsim.figures.style import GLYPHS, HOLLOW
from specsim.latency.profile import load_profile
from specsim.metrics.load import _of_sessions, load, load_notes
from specsim.metrics.requests import RequestRows
from specsim.metrics.seeds import KEPT_UP, OVERLOADED, SATURATED, SHORT, depends_on_length, verdict_of, verdicts, worst
from specsim.metrics.summary import summarise
from specsim.metrics.tables import class_table, comparison_table
from specsim.runs.checks import first_wave
from specsim.server.admission import AdmissionControl
from specsim.simulation import run
from tests.laws.subjects import factory_of
from tests.made import hardware, requests, simulation
from tests.unit.test_metrics_summary import made_table, totals

FINE = load(RequestRows.of(made_table()), totals(), None)
FINE |= {"overloaded": False, "saturated": False, "steady": True, "too_short": False}
LONGER = "figures of a longer run would differ"


def test_the_block_by_hand_and_of_it_a_window_judges_the_attainment_of_those_it_counts():
    table = made_table()
    block, counted = load(RequestRows.of(table), totals(), None), load(RequestRows.of(table), totals(), (0.0, 2.0))
    told = {"makespan_ratio": 7 / 4, "arrival_span_s": 4.0, "drain_s": 3.0, "last_backlog": 2, "too_short": True}
    assert block == block | told | {"backlog_grows": None, "steady": None}
    assert (counted["makespan_ratio"], counted["last_backlog"]) == (7 / 4, 2)
    ends, every = np.array([True, False, True]), np.array([True, False, True, False, False])
    assert table["slo_ok"].tolist() == every.tolist()
    for met, found in ((every, block), (ends, counted)):
        share = (met.sum() + 2) / (len(met) + 4)
        expected = 1.959963984540054 * np.sqrt(share * (1 - share) / (len(met) + 4))
        assert found["attainment_half_width"] == pytest.approx(expected)
        assert found == summarise(table, totals(), None if found is block else (0.0, 2.0))["specsim"]["load"]


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        (
            {"steady": False, "backlog_trend_per_s": -0.3, "backlog_trend_interval_per_s": [-0.5, -0.1]},
            "not steady: the backlog falls by 0.3 requests/s (0.1 to 0.5, 95%);"
            " warmup=SECONDS leaves the beginning out",
        ),
        (
            {"saturated": True, "last_backlog": 535, "mean_backlog": 560.0, "alone_backlog": 20.0},
            "near saturation: the server was hardly idle, 535 requests were there at the last arrival, and there"
            " were 28 times as many as if each were served alone; attainment may fall as the run gets longer",
        ),
        (
            {"overloaded": True, "steady": False, "makespan_ratio": 1.0, "last_backlog": 9, "turned_away": 1945},
            "OVERLOADED: 1,945 requests were shed, or cancelled while others held them up",
        ),
        (
            {"overloaded": True, "backlog_grows": None, "makespan_ratio": 1.9, "last_backlog": 41},
            f"OVERLOADED: the queue for the first token grows; 41 requests are there at the last arrival; {LONGER}",
        ),
        (
            {"overloaded": True, "backlog_grows": False, "makespan_ratio": 3.5, "drain_s": 90.0},
            "OVERLOADED: the last request ends 90 s after the last arrival, which makes 3.5 times the arrivals' "
            f"span; {LONGER}",
        ),
        (
            {"too_short": True, "attainment_half_width": 0.046, "warm_up_requests": 1_210, "needed_requests": 3_300},
            "too short: slo_attainment is known to +-4.6 points (95%) with the warm-up of 1,210 requests; "
            "+-5 without it take about 3,300 requests",
        ),
    ],
)
def test_the_notes_say_what_is_wrong_and_how_long_is_long_enough(changes, said):
    assert load_notes(FINE, 40) == ()
    assert load_notes(FINE | {"needed_s": None} | changes, 40) == (said,)


def test_a_last_request_of_few_accepted_drafts_is_no_overload():
    """The others take 0.01 s a token, it takes 0.1 s: its own service, at their pace, is 6 of its 60 s."""
    arrival_s, last = np.arange(100) / 10, np.arange(100) == 99
    given = {"first_token_s": arrival_s + 0.1, "finish_s": arrival_s + np.where(last, 60.1, 1.1)}
    given |= {"output_tokens": np.where(last, 601, 101), "verifications": np.where(last, 600, 10)}
    spent = totals(iterations=1_600, verify_s=160.0, itl_s=np.array([0.1]))
    block = load(RequestRows.of(made_table([0] * 100).assign(arrival_s=arrival_s, **given)), spent, None)
    assert (block["longest_service_s"], block["drain_s"]) == pytest.approx((6.1, 60.1), abs=0.01)
    late = {name: given[name] + 80 for name in ("first_token_s", "finish_s")} | {"split.moving_s": 80.0}
    linked = load(RequestRows.of(made_table([0] * 100).assign(arrival_s=arrival_s, **given | late)), spent, None)
    assert (block["overloaded"], linked["overloaded"]) == (None, None)


def test_a_short_recording_is_told_apart_from_a_short_run(tmp_path):
    rows = "".join(f"{second / 2},200,100\n" for second in range(150))
    (tmp_path / "mine.csv").write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")

    def said(trace=tmp_path / "mine.csv", **settings):
        notes = simulate("continuous", trace, acceptance="bernoulli", **settings).notes
        (note,) = (each for each in notes if each.startswith("too short"))
        return note

    few = "more than the 150 requests that there are: "
    found = find({"scheduler": ["continuous"]}, trace=tmp_path / "mine.csv", rates=(1, 2), progress=False)
    (note,) = (each for each in found.notes() if "that there are" in each)
    assert note.endswith(f"{few}another trace or a mean over seeds with trace.resample=SECONDS can be judged")
    assert said().endswith(f"{few}a lower rate, {note.partition(few)[2]}")
    wider = "the 120 requests that there are: a wider trace.window, a lower rate, another trace or "
    assert wider in said(trace__window=[0, 60])
    assert all("that there are" not in each for each in (said("poisson", requests=40), said(trace__resample=20.0)))


@pytest.mark.usefixtures("empty_cache")
def test_40_requests_of_a_conversation_are_too_short_and_1000_overload_it():
    """The issue's case: at 9 requests/s the order of two schedulers turns round between 40 requests and 1,000."""
    short, long = (simulate("vllm_spec", "azure_conv", rps=9, requests=n) for n in (40, 1_000))
    (note,) = (each for each in short.notes if each.startswith("too short: 40 requests in 4.33 s"))
    assert note.endswith("expected 1,000 requests (110 s) or more")
    assert short.metrics["specsim"]["load"]["overloaded"] is None
    (note,) = (each for each in long.notes if each.startswith("OVERLOADED: the backlog grows by "))
    assert long.metrics["specsim"]["load"]["overloaded"] is True
    assert long.metrics["specsim"]["load"]["makespan_ratio"] > 1.1
    assert long.provenance["notes"] == list(long.notes)


COUNT = 300


def metrics(every_s, **more):
    """Return the metrics of requests that come every so many seconds, ten passes of 0.1 s each."""
    told = requests((every_s * np.arange(COUNT)).tolist(), [1] * COUNT, [10] * COUNT)
    one = factory_of("continuous", max_num_seqs=1)
    record = run(simulation(told, [10] * COUNT, one, truth=hardware(0.0, 0.0, 0.1), **more))
    return summarise(record.table(), record.totals)


@pytest.mark.parametrize("more", [{"timeout_s": 3.0}, {"admission_control": AdmissionControl(2)}, {"timeout_s": 0.75}])
def test_a_server_that_gives_up_a_third_of_what_comes_is_overloaded_and_one_with_time_to_spare_is_not(more):
    """Of the last, each request takes longer than its client waits: more or quicker servers alone would not help."""
    crowded, spare = (metrics(every_s, **more)["specsim"]["load"] for every_s in (0.67, 2.0))
    assert (spare["turned_away"], spare["overloaded"], spare["steady"]) == (0, False, True)
    if more != {"timeout_s": 0.75}:
        assert (crowded["overloaded"], crowded["steady"]) == (True, False)
        assert crowded["turned_away"] >= COUNT / 4


def test_sessions_overload_a_server_that_cannot_answer_their_turns_as_they_begin():
    """250 sessions of four turns, half a second between; the last turn of all ends with the run, whatever the rate."""
    first = np.arange(1000) % 4 == 0
    rows = pd.DataFrame({"session_id": np.arange(1000) // 4, "prompt_tokens": 4000, "output_tokens": 40})
    rows["arrival_s"], rows["delay_s"] = np.where(first, np.arange(1000), np.nan), np.where(first, np.nan, 0.5)
    how = {"profile": "llama8b_1b_h100", "trace__turns": "whole"}
    calm, over = (simulate("vllm", rows, rps=rate, **how) for rate in (8, 20))
    blocks = [each.metrics["specsim"]["load"] for each in (calm, over)]
    told = [(each["sessions"], each["overloaded"], each["steady"], each["warm_up_requests"]) for each in blocks]
    assert told == [(250, False, True, 4 * 35), (250, True, False, None)]
    assert re.search(r"OVERLOADED: .* by .* sessions/s .* \d+ sessions at the last session's start;", str(over.notes))
    assert load_notes(blocks[0] | {"steady": False}, 9)[0].endswith("95%)")
    unknown = blocks[0] | {"steady": None, "too_short": True, "needed_requests": 99}
    assert re.search("250 sessions that begin within .* last session's start: load", load_notes(unknown, 9)[0])
    assert "makespan over the span in which sessions begin" in comparison_table([({}, calm.metrics)])
    once = simulate("vllm", rows.assign(arrival_s=rows["arrival_s"] * 0)[:4], **how)
    assert re.search("sessions begin at once[^$]*too short: slo_att", f"{class_table(once.metrics)}{once.notes}")
    shed_first = ([0.0, 1.0], [np.nan, 3.0], [np.nan, 1.0], [np.nan, 2.0], [np.nan, 1.0])
    assert [each.item() for each in _of_sessions(np.zeros(2, int), *map(np.array, shed_first))] == [0, 3, 2, 2, 2]


def test_a_run_whose_last_request_is_cancelled_lasts_until_then():
    told = requests([0.0, 10.0], [1, 1], [2, 90])
    record = run(simulation(told, [2, 90], factory_of("continuous"), truth=hardware(0.0, 0.0, 0.1), timeout_s=5.0))
    found = summarise(record.table(), record.totals)
    assert found["duration"] == pytest.approx(15.0, abs=0.11)
    assert found["output_throughput"] == pytest.approx(2 / found["duration"])
    assert sum(found["specsim"]["time_s"].values()) == pytest.approx(found["duration"])
    last = summarise(record.table(), record.totals, (5.0, 10.0))
    assert (last["duration"], last["output_throughput"]) == (pytest.approx(5.0, abs=0.11), 0.0)


LOADS = {
    KEPT_UP: {"overloaded": False, "saturated": False, "too_short": False},
    SHORT: {"overloaded": None, "saturated": None, "too_short": True},
    SATURATED: {"overloaded": None, "saturated": True, "too_short": True},
    OVERLOADED: {"overloaded": True, "saturated": False, "too_short": False},
}


def test_a_load_has_one_verdict_a_table_those_of_its_rows_and_of_several_the_strongest_holds():
    for verdict, block in LOADS.items():
        assert verdict_of(block) == verdict
        assert depends_on_length(block) == (verdict in (SATURATED, OVERLOADED))
        assert (GLYPHS[verdict] == HOLLOW) == depends_on_length(block)
    table = pd.DataFrame(list(LOADS.values()), dtype=object).add_prefix("load.")
    assert list(verdicts(table)) == list(LOADS)
    assert worst(LOADS) == OVERLOADED
    assert worst([SATURATED, SHORT, KEPT_UP]) == SATURATED
    assert list(verdicts(table.drop(columns="load.saturated"))) == [KEPT_UP, SHORT, SHORT, OVERLOADED]


def short_runs(attained, varies="arrivals, acceptance", steady=True):
    load = {**LOADS[SHORT], "steady": steady, "overloaded": False}
    rows = [{f"load.{key}": value for key, value in load.items()} for _ in attained]
    return pd.DataFrame(rows, dtype=object).assign(point="a", varies_with_seed=varies, slo_attainment=attained)


def test_seeds_that_draw_arrivals_anew_judge_a_point_whose_runs_are_each_too_short():
    near, apart = [0.80, 0.82, 0.84, 0.82, 0.81], [0.60, 0.82, 0.95, 0.82, 0.81]
    assert set(verdicts(short_runs(near))) == {KEPT_UP}
    short = [short_runs(near[:4]), short_runs(near, "classes, acceptance"), short_runs(near, steady=None)]
    assert all(set(verdicts(each)) == {SHORT} for each in [short_runs(apart), *short])
    both = pd.concat([short_runs(near), short_runs(apart).assign(point="b")], ignore_index=True)
    assert list(verdicts(both)) == [KEPT_UP] * 5 + [SHORT] * 5


def test_a_run_says_that_it_is_a_closed_loop():
    done = simulate("continuous", "poisson", requests=25, concurrency=8)
    load = done.metrics["specsim"]["load"]
    assert (load["clients"], load["overloaded"], load["makespan_ratio"]) == (8, None, None)
    assert any("the trace's arrivals are not used" in note for note in done.notes)
    assert any(note.startswith("too short: slo_attainment is known to") for note in done.notes)
    assert simulate("continuous", "poisson", requests=9).metrics["specsim"]["load"]["clients"] is None
    rows = comparison_table([({"rps": 1}, done.metrics)]).splitlines()
    assert [f"{done.metrics['request_throughput']:.2f}" in rows[4], "served: requests" in rows[-2]] == [True] * 2
    how = {"slo": "one", "slo__ttft_s": 0.2, "profile": "llama8b_1b_h100"}
    crowd = simulate("vllm", "poisson", requests=300, concurrency=100, **how)
    assert any("83 of 83 misses are of the first requests of the 100 clients, who all" in note for note in crowd.notes)
    assert not list(first_wave(1, {"slo_ok": np.array([False]), "arrival_s": np.zeros(1)}))


def test_a_run_says_that_its_batch_slots_were_all_taken_while_requests_waited():
    said = "requests waited while all 2 batch slots of a replica (max_num_seqs) were taken"
    crowd = {"requests": 12, "rps": 100, "replicas": 2, "engine__max_num_seqs": 2}
    for more in ({}, {"timeout_s": 2}, {"split__prefill": 1, "split__link_gb_per_s": 50}):
        assert said in simulate("vllm", "poisson", **crowd, **more).notes
    sglang = {"engine": "sglang_0_5", "slo": "one", "requests": 60, "rps": 1000}
    fewer = "(max_num_seqs; 2,048 without drafts: engine.max_num_seqs makes both the same) were taken"
    assert any(fewer in note for note in simulate("vllm_spec", "poisson", **sglang).notes)
    for roomy in ({**crowd, "engine__max_num_seqs": 12}, {**crowd, "rps": 0.01}):
        assert not any("batch slots" in note for note in simulate("vllm", "poisson", **roomy).notes)


EIGHT = "llama8b_1b_h100"


def test_a_run_says_that_its_cache_was_full_while_requests_waited_and_whose():
    crowd = {"requests": 80, "rps": 400, "trace__prompt_tokens": 8000, "trace__output_tokens": 2048}
    split = {"replicas": 2, "split__prefill": 1, "split__link_gb_per_s": 50}
    for more, pool in (({}, ""), (split, "decode ")):
        notes = simulate("vllm", "poisson", **crowd, **more).notes
        wide, said = (note for note in notes if "extrapolated" in note or "KV cache" in note)
        assert " up to 8,192 batched tokens in a pass of the target, measured to 4,096" in wide
        assert [f" of a {pool}replica was full: " in said, said.endswith(" 9,024 tokens, their mean")] == [True] * 2
    reserved = crowd | {"engine__reserves": "max_tokens", "engine": "trtllm_1_2", "slo": "one", "rps": 4000}
    whole = " replica was full or reserved (engine.reserves=max_tokens): ", " 10,048 tokens, their mean with max_tokens"
    at_once = split | {"engine__max_num_batched_tokens": 10**6}
    for more, (full, mean) in (({}, whole), (at_once, (" prefill replica was full: ", " 8,000 tokens, their mean"))):
        (said,) = (each for each in simulate("vllm", "poisson", **reserved, **more).notes if "KV cache" in each)
        assert [full in said, said.endswith(mean)] == [True] * 2
    (said,) = (each for each in simulate("vllm_spec", "poisson", **crowd, profile=EIGHT).notes if "KV cache" in each)
    room = f"it holds {load_profile(EIGHT).usable_kv_tokens // 9024} requests of 9,024 tokens, their mean"
    assert room in said, "the drafter's cache is in it"
    for roomy in ({**crowd, "rps": 0.1, "requests": 8}, {**crowd, "replicas": 8}):
        assert not any("KV cache" in note for note in simulate("vllm", "poisson", **roomy).notes)


def test_recorded_hits_that_no_router_loses_are_noted():
    hits = pd.DataFrame({"arrival_s": [0.0, 1.0], "prompt_tokens": 128, "output_tokens": 8, "cached_tokens": 64})
    split = {"split__prefill": 1, "split__link_gb_per_s": 50}
    for more, noted in (({}, True), ({"router": "affinity"}, False), ({"replicas": 1}, False), (split, False)):
        notes = simulate("vllm", hits, **{"replicas": 2} | more).notes
        assert any("a recorded hit (cached_tokens) is taken" in note for note in notes) == noted
