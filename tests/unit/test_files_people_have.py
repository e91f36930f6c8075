"""Files of other simulators, load generators and gateways: read under their own names, or told what to do."""

import json
import re

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.workload.entry import How
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file
from tests.made import refusal

SOURCE = TraceSource("made", "file")
SMALL = {"profile": "llama8b_1b_h100", "acceptance": "bernoulli", "scheduler": "continuous"}
ROWS = [(0.3, 653, 214), (0.6, 600, 165), (1.2, 604, 136)]


def csv(header, row=lambda t, p, o: (t, p, o)):
    return "\n".join([header, *(",".join(map(str, row(*each))) for each in ROWS)])


def lines(row):
    return "".join(json.dumps(row(*each)) + "\n" for each in ROWS)


def iso(seconds):
    return f"2026-01-05T10:00:0{seconds:.3f}"


READ = {
    "vidur CSV": csv("arrived_at,num_prefill_tokens,num_decode_tokens"),
    "splitwise-sim CSV": csv("arrival_timestamp,batch_size,prompt_size,token_size", lambda t, p, o: (t, 1, p, o)),
    "BLIS CSV": csv("slo_class,input_tokens,output_tokens,arrival_time_us", lambda t, p, o: ("", p, o, t * 1e6)),
    "LLMServingSim JSON lines": lines(
        lambda t, p, o: {"input_toks": p, "output_toks": o, "arrival_time_ns": round(t * 1e9), "input_tok_ids": [1, 2]}
    ),
    "aiperf records JSON lines": lines(
        lambda t, p, o: {
            "metadata": {"session_num": 4, "request_start_ns": 1_764_000_000_000_000_000 + round(t * 1e9)},
            "metrics": {"input_sequence_length": {"value": p}, "output_sequence_length": {"value": o, "unit": "t"}},
        }
    ),
    "inference-perf records JSON": json.dumps(
        [{"start_time": 9e5 + t, "info": {"input_tokens": p, "output_tokens": o}} for t, p, o in ROWS]
    ),
    "gateway log CSV": csv("startTime,input_tokens,output_tokens", lambda t, p, o: (iso(t), p, o)) + f"\n{iso(9)},5,",
    "gateway log JSON lines": lines(
        lambda t, p, o: {"created": 1_764_000_000 + t, "usage": {"prompt_tokens": p, "completion_tokens": o}}
    )
    + json.dumps({"created": 1_764_000_009, "usage": {"prompt_tokens": None}, "error": "timeout"}),
}


@pytest.mark.parametrize("kind", READ)
def test_usual_names_are_known(tmp_path, kind):
    (tmp_path / "t").write_text(READ[kind])
    trace, said = read_user_file(tmp_path / "t", SOURCE)
    assert trace.arrival_s == pytest.approx([0, 0.3, 0.9], abs=1e-6)
    assert [trace.slo_class, *trace.prompt_tokens, *trace.output_tokens] == [None, 653, 600, 604, 214, 165, 136]
    assert said.startswith(f"read as {kind}: ")
    assert ("left out 1 of 4 requests (no or 0 tokens: they failed)" in said) is kind.startswith("gateway")


def test_any_other_names_are_given(tmp_path):
    file = tmp_path / "t.csv"
    file.write_text(csv("sent_ms,in,out,of", lambda t, p, o: (round(t * 1000), p, o, "a")))
    how = How(called=(("arrival_s", "sent_ms"), ("prompt_tokens", "in"), ("output_tokens", "out"), ("slo_class", "of")))
    trace, said = read_user_file(file, SOURCE, how)
    assert (trace.arrival_s, trace.slo_names) == (pytest.approx([0, 0.3, 0.9]), ("a",))
    assert said.startswith("read as specsim CSV: sent_ms, in, out; 3 requests in 0.9 s")
    for lengths, named in (("in,out", how.called[1:]), ("prompt_tokens,output_tokens", ())):
        nano = csv(f"startTimeUnixNano,{lengths},of", lambda t, p, o: (round((1.764e9 + t) * 1e9), p, o, "a"))
        (tmp_path / "nano.csv").write_text(nano)
        assert read_user_file(tmp_path / "nano.csv", SOURCE, How(called=named)).trace.arrival_s[2] == 0.9
    file.write_text(file.read_text() + "\nx,1,2,a")
    assert "1 damaged row: line 5: sent_ms 'x' is not a number" in refusal(read_user_file, file, SOURCE, how)


LENGTHS_CALLED = {"prompt_tokens": "usage.prompt_tokens", "output_tokens": "usage.completion_tokens"}
LENGTHS_NAMED = ",".join(LENGTHS_CALLED.values())
KNOWN_TIMES = "time,isl,osl", "arrival_time,Isl,OSL", "start,number_input_tokens,output_len", "REQUEST_TIME,isl,osl"
KNOWN_TIMES += "Timestamp,prompt_tokens,osl", "Timestamp,gen_ai.usage.input_tokens,gen_ai.usage.output_tokens"


@pytest.mark.parametrize(
    ("header", "called"),
    [
        ("t,prompt_tokens,output_tokens", {"arrival_s": "t"}),
        *((f"{each},{LENGTHS_NAMED}", LENGTHS_CALLED) for each in ("start_time", "Timestamp")),
        ("start_time,in,out", {"prompt_tokens": "in", "output_tokens": "out"}),
        *((each, {}) for each in KNOWN_TIMES),
    ],
)
def test_a_unit_that_no_name_tells_is_asked_for(tmp_path, header, called):
    (tmp_path / "t.csv").write_text(f"{header}\n0,5,6\n28,5,6\n")
    how = How("s", called=tuple(called.items()))
    said = refusal(read_user_file, tmp_path / "t.csv", SOURCE, How(called=how.called))
    assert re.search(f"{header.partition(',')[0]} may be in s .* or ms", said)
    assert read_user_file(tmp_path / "t.csv", SOURCE, how).trace.arrival_s.tolist() == [0, 28]


def test_names_that_do_not_fit_are_one_line(tmp_path, refused):
    (tmp_path / "t.csv").write_text("arrival_s,in,out\n0,5,6\n")
    wrong = "trace.columns={prompt_tokens: inn, output_tokens: out}"
    assert "trace.columns: prompt_tokens: no column 'inn'; did you mean 'in'?" in refused("run", "trace=t.csv", wrong)
    said = "no column prompt_tokens, output_tokens; if yours has another name: 'trace.columns={prompt_tokens: YO"
    assert said in refused("run", "trace=t.csv", "trace.columns=null")
    (tmp_path / "t.yaml").write_text("args: {}\nbenchmarks: []\n")
    assert "trace=./t.yaml: a report of GuideLLM in CSV or YAML" in refused("run", "trace=./t.yaml")


def test_lengths_alone_run_in_a_closed_loop_as_with_any_arrivals(tmp_path):
    alone, timed = tmp_path / "alone.csv", tmp_path / "timed.csv"
    alone.write_text(csv("start_timestamp,num_input_tokens,num_total_output_tokens"))
    timed.write_text(csv("arrival_s,prompt_tokens,output_tokens"))
    runs = [simulate(trace=file, concurrency=2, **SMALL) for file in (alone, timed)]
    assert runs[0].metrics == runs[1].metrics
    assert "arrivals" not in runs[0].provenance["varies_with_seed"]
    assert any("3 requests, no arrivals" in note for note in runs[0].notes)
    (tmp_path / "whole.csv").write_text(csv("time,prompt_tokens,output_tokens", lambda t, p, o: (round(10 * t), p, o)))
    for of_unit in (tmp_path / "whole.csv", pd.read_csv(tmp_path / "whole.csv")):
        assert simulate(trace=of_unit, concurrency=2, **SMALL).metrics == runs[1].metrics
        rates = [simulate(trace=each, rps=3, **SMALL).requests["arrival_s"].tolist() for each in (of_unit, timed)]
        assert rates[0] == pytest.approx(rates[1])
        for asked in ({}, {"rps": 3, "trace__tick_s": 1}, {"rps": 3, "trace__window": [0, 9]}):
            assert "time may be in s (9 s, one " in refusal(simulate, trace=of_unit, **asked, **SMALL)


def test_lengths_alone_arrive_as_poisson_at_a_rate(tmp_path):
    frame = pd.DataFrame({"request_num_prefill_tokens": [50] * 400, "request_num_decode_tokens": 4})
    one, again, other = (simulate(trace=frame, rps=5, seed=seed, **SMALL) for seed in (0, 0, 1))
    gaps_s = np.diff(one.requests["arrival_s"])
    assert (gaps_s.mean(), gaps_s.std()) == (pytest.approx(1 / 5), pytest.approx(1 / 5, rel=0.15))
    assert one.requests["arrival_s"].tolist() == again.requests["arrival_s"].tolist()
    assert one.requests["arrival_s"].tolist() != other.requests["arrival_s"].tolist()
    assert "arrivals" in one.provenance["varies_with_seed"]
    assert any(note.startswith("arrivals: Poisson at rps=5, drawn by the seed") for note in one.notes)
    shorter = simulate(trace=frame, rps=5, requests=100, **SMALL)
    long_s, short_s = one.requests["arrival_s"][:100].to_numpy(), shorter.requests["arrival_s"].to_numpy()
    assert short_s * (long_s[-1] / short_s[-1]) == pytest.approx(long_s)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({}, "has no arrivals; expected concurrency=N (clients that wait) or rps=R (Poisson arrivals), or the name of"),
        ({"trace__window": [0, 5], "rps": 2}, "trace.window: trace 't.csv' has no arrivals"),
        ({"trace__time_unit": "ms", "rps": 2}, "trace.time_unit=ms changes nothing: it has no arrivals"),
    ],
)
def test_what_needs_arrivals_is_refused_for_lengths_alone(tmp_path, settings, said):
    (tmp_path / "t.csv").write_text("ts,num_input_tokens,num_output_tokens\n0,5,6\n1,7,8\n")
    assert said in refusal(simulate, trace=tmp_path / "t.csv", **settings, **SMALL)


VLLM = {"request_throughput": 1.0, "total_input_tokens": 12, "completed": 2}
SGLANG = {**VLLM, "total_output_tokens_retokenized": 9, "backend": "sglang"}
OF_SGLANG = VLLM | {"backend": "sglang-oai"}
LENGTHS = {"input_lens": [5, 7], "output_lens": [6, 0]}
APPENDED = f"{json.dumps({**VLLM, **LENGTHS, 'start_times': [0, 1]})}\n" * 2


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (json.dumps(VLLM), "a summary of `vllm bench serve` without its requests: expected one that --save-det"),
        (APPENDED, "results of several benchmarks, a line each: `specsim import` makes a trace of each"),
        (json.dumps({"input_config": {}}, indent=1), "a summary of aiperf or genai-perf without its requests: aip"),
        ("created,input_tokens,output_tokens\n1,5,6\n2,5,\n3,5,", "2 of 3 requests have no output_tokens; expected"),
        (json.dumps({"service_kind": "openai", "experiments": []}), "genai-perf's texts and times, without counts of"),
        (json.dumps({"world_info": {}, "request_info": {}}, indent=1), "a report of trtllm-bench, which does not say"),
        (json.dumps({"load_summary": {}, "successes": {}}), "a summary of inference-perf without its requests: exp"),
        *((json.dumps({each: "hi", "output_tokens": 5}), "a dataset of texts, not of") for each in ("prompt", "text")),
        *((json.dumps({"prompt": each, "output_tokens": 5}), "no column arrival_s, prompt_t") for each in ("", None)),
        (json.dumps({"metadata": {}, "benchmarks": [{}]}), "a report of GuideLLM: `specsim import` makes a trace of"),
        ("Run Info,Run Info,Benchmark\nRun ID,Profile,Type\n", "a report of GuideLLM in CSV or YAML: expected its ben"),
        ("args:\n  data: []\nbenchmarks:\n- type_: x\n", "a report of GuideLLM in CSV or YAML: expected its ben"),
        ("isl,osl,concurrency,ttft_ms,tpot_ms\n5,6,1,9,9\n", "points of a server, for `specsim calibrate`: expected"),
        *((json.dumps(OF_SGLANG, indent=at), "a summary of sglang.bench_serving without its req") for at in (None, 1)),
        (lines(lambda t, p, o: {"arrival_time_ns": t, "sub_requests": [{}]}), "sessions of LLMServingSim"),
    ],
)
def test_files_of_another_kind_are_told_what_to_do(tmp_path, content, said):
    (tmp_path / "t").write_text(content)
    assert refusal(read_user_file, tmp_path / "t", SOURCE).startswith(f"{tmp_path / 't'}: {said}")


@pytest.mark.parametrize("result", [{**SGLANG, **LENGTHS}, {**VLLM, **LENGTHS, "max_concurrency": 8}])
def test_a_result_with_lengths_and_no_start_times_is_a_file_of_lengths(tmp_path, result):
    (tmp_path / "t").write_text(json.dumps(result))
    trace, said = read_user_file(tmp_path / "t", SOURCE)
    assert not trace.source.timed
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([5], [6])
    assert said.startswith("read as benchmark result JSON: input_lens, output_lens; 1 requests, no arrivals; left")
