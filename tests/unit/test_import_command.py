"""`specsim import`: what each file of a benchmark or a server holds, in specsim's own files, and what it lacks."""

import json
import re

import numpy as np
import pytest

from specsim.calibration.reading import read_points
from specsim.calibration.replay import BenchLoad
from specsim.cli import main
from specsim.files.yaml_file import read_yaml
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file


def result(clients, **more):
    """Return what `vllm bench serve` says of 20 requests of 100 + 10 tokens from clients that wait."""
    totals = {"completed": 20, "total_input_tokens": 2000, "total_output_tokens": 200, "request_throughput": 1.0}
    times = {"mean_ttft_ms": 50.0 + clients, "mean_tpot_ms": 10.0, "request_rate": "inf", "max_concurrency": clients}
    return {**totals, **times, "model_id": "meta-llama/Llama-3.1-8B-Instruct", **more}


DETAILS = {"input_lens": [100, 90], "output_lens": [10, 11], "start_times": [6.5, 5.0], "ttfts": [0.05, 0.05]}
SPEC = {
    "spec_decode_acceptance_rate": 60.0,
    "spec_decode_acceptance_length": 2.8,
    "spec_decode_num_drafts": 1000,
    "spec_decode_per_position_acceptance_rates": [0.8, 0.6, 0.4],
}
SCRAPE = 'vllm:spec_decode_num_drafts_total{engine="0"} 1000.0\n' + "".join(
    f'vllm:spec_decode_num_accepted_tokens_per_pos_total{{engine="0",position="{at}"}} {tokens}\n'
    for at, tokens in enumerate((800.0, 400.0))
)


def means(value):
    return {"successful": {"mean": value}}


def guidellm(strategy):
    """Return a report of one benchmark: 3 requests of 100 + 20 tokens, TTFT 40 ms, 9 ms between tokens."""
    row = {"prompt_tokens": 100, "output_tokens": 20}
    metrics = {"request_totals": {"successful": 3}, "prompt_token_count": means(100.0)}
    metrics |= {"output_token_count": means(20.0), "time_to_first_token_ms": means(40.0)}
    metrics |= {"inter_token_latency_ms": means(9.0)}
    requests = {"successful": [{"request_start_time": 1.7e9 + at, **row} for at in (0.5, 1.5, 4.5)]}
    return json.dumps({"benchmarks": [{"config": {"strategy": strategy}, "metrics": metrics, "requests": requests}]})


def imported(tmp_path, content, *words):
    (tmp_path / "given").write_text(content)
    assert main(["import", str(tmp_path / "given"), "--out", str(tmp_path / "out"), *words]) == 0
    return tmp_path / "out"


def trace_in(file):
    return read_user_file(file, TraceSource("t", "file")).trace


def points_in(out):
    return [(each.load, each.ttft_s, each.tpot_s) for each in read_points([out / "points.csv"], 1).points]


def test_a_result_of_a_server_that_speculates_is_an_acceptance_and_a_point(tmp_path, capsys):
    """Cumulative 0.8, 0.6, 0.4: conditional 0.8, 0.75, 0.667."""
    out = imported(tmp_path, json.dumps(result(4, **DETAILS, **SPEC)))
    keys = read_yaml(out / "acceptance.yaml")
    assert keys["categories"] == {"default": {"conditional": [0.8, 0.75, 0.6667]}}
    assert keys["pair"] == {"target": "meta-llama/Llama-3.1-8B-Instruct", "draft": "any"}
    load = BenchLoad(100, 10, 4, 20, drafts=3, acceptance_length=2.8)
    assert points_in(out) == [(load, pytest.approx(0.054), pytest.approx(0.01))]
    files = f"trace={out / 'trace.csv'}", f"acceptance={out / 'acceptance.yaml'}"
    assert main(["run", *files, "rps=4", f"out={out / 'r'}"]) == 0
    imported(tmp_path, json.dumps(result(5, **SPEC, spec_decode_draft_tokens=2400)), "--force")
    said = capsys.readouterr().out
    assert "600 tokens fewer drafted than k each: deep rates may be low" in said
    assert "no points: " in said
    assert "drafts of 2.4 tokens on average and up to 3; expected those of one" in said


CHAIN = {"speculative_num_steps": 3, "speculative_eagle_topk": 1}
TREE = CHAIN | {"speculative_eagle_topk": 4}
ADAPTS = CHAIN | {"speculative_adaptive": True}


@pytest.mark.parametrize(
    ("server", "lacks"),
    [
        *((CHAIN, ""), (TREE, "of trees (speculative_eagle_topk 4)")),
        (ADAPTS, "of steps that adapt"),
        (None, "but no server"),
    ],
)
def test_results_of_sglang_are_points_with_drafts_where_the_server_tells_its_k(tmp_path, capsys, server, lacks):
    spec = [result(clients, accept_length=2.9, server_info=server) for clients in (3, 4)]
    out = imported(tmp_path, "\n".join(map(json.dumps, [result(2, accept_length=None), *spec])))
    drafted = [] if lacks else [BenchLoad(100, 10, each, 20, drafts=3, acceptance_length=2.9) for each in (3, 4)]
    assert [load for load, _, _ in points_in(out)] == [BenchLoad(100, 10, 2, 20), *drafted]
    said = capsys.readouterr().out
    assert (lacks or "acceptance.yaml: 2.9 tokens a verification at k = 3") in said
    assert f"no trace: {tmp_path / 'given'}: 3 results without their requests" in said


def test_sglangs_own_log_and_metrics_tell_a_mean_length_and_its_log_the_k(tmp_path, capsys):
    log = "Decode batch. #running-req: 3, accept len: 2.75, x\nDecode batch, #running-req: 1, a, accept len: 1.00, x\n"
    runs = (3, log), (5, log.replace("1.00", "3.50")), (3, log)
    imported(tmp_path, "".join(f"Args(speculative_num_steps={k}, speculative_eagle_topk=1)\n{of}" for k, of in runs))
    told = "acceptance.yaml: 2.312 tokens a verification at k = 3; 2.938 tokens .* k = 5\nno trace: requests stand"
    assert re.search(told, capsys.readouterr().out)
    for text, length in ((log, 2.312), ('sglang:spec_accept_length{tp_rank="0"} 2.75\n', 2.75)):
        (file := tmp_path / "given").write_text(text)
        assert {main(each.split()) for each in (f"import {file} --out o", f"run trace=poisson acceptance={file}")} == {
            2
        }
        said = f"accept_length {length}, but no server_info.spec[^$]*SGLang's mean lengths are for `specsim import`"
        assert re.search(said, capsys.readouterr().err)


@pytest.mark.parametrize(
    ("strategy", "load"),
    [
        ({"type_": "concurrent", "streams": 2}, BenchLoad(100, 20, 2, 3)),
        ({"type_": "synchronous"}, BenchLoad(100, 20, 1, 3)),
        ({"type_": "poisson", "rate": 2.5}, BenchLoad(100, 20, 0, 3, rate=2.5)),
        ({"type_": "constant", "rate": 2.5}, None),
    ],
)
def test_a_report_of_guidellm_is_a_trace_and_a_point(tmp_path, capsys, strategy, load):
    out = imported(tmp_path, guidellm(strategy))
    waited = load is not None and load.concurrency > 0
    trace = trace_in(out / "trace.csv")
    assert (trace.source.timed, trace.arrival_s.tolist()) == (not waited, [0.0] * 3 if waited else [0.0, 1.0, 4.0])
    if load is None:
        assert "burstiness inf; expected 1, a Poisson process" in capsys.readouterr().out
    else:
        assert points_in(out) == [(load, pytest.approx(0.04), pytest.approx(0.009))]


CLIENTS, AT_A_RATE = BenchLoad(200, 50, 5, 10), BenchLoad(200, 50, 0, 10, rate=4.0)


@pytest.mark.parametrize(
    ("given", "load"),
    [
        *(({"loadgen": {"concurrency": 5}}, CLIENTS), ({"perf_analyzer": {"stimulus": {"concurrency": 5}}}, CLIENTS)),
        ({"concurrency": 5, "request_rate": None}, CLIENTS),
        ({"loadgen": {"request_rate": 4.0}}, AT_A_RATE),
        ({"loadgen": {"request_rate": 4.0, "arrival_pattern": "gamma", "arrival_smoothness": 0.5}}, "burstiness 0.5"),
        ({"loadgen": {"request_rate": 4.0, "request_rate_mode": "constant"}}, "burstiness inf; expected 1"),
        ({"perf_analyzer": {"stimulus": {"request_rate": 4.0}}}, "burstiness inf; expected 1"),
    ],
)
def test_a_summary_of_aiperf_or_genai_perf_is_a_point_of_clients_or_a_poisson_process(tmp_path, refused, given, load):
    summary = {"input_config": given, "request_count": {"avg": 10.0}}
    summary |= {"input_sequence_length": {"avg": 200.0}, "output_sequence_length": {"avg": 50.0}}
    summary |= {"time_to_first_token": {"avg": 70.0}, "inter_token_latency": {"avg": 8.0}}
    if isinstance(load, str):
        (tmp_path / "given").write_text(json.dumps(summary))
        assert load in refused("import", "given", "--out", "out")
        return
    out = imported(tmp_path, json.dumps(summary, indent=1))
    assert points_in(out) == [(load, pytest.approx(0.07), pytest.approx(0.008))]


CHATS = ((10**18, 10, 5, "a"), (10**18 + 15 * 10**8, 20, 6, "b"), (10**18 + 3 * 10**9, 30, 7, "a"))
NAMES = ("gen_ai.usage.input_tokens", "gen_ai.usage.output_tokens", "gen_ai.conversation.id")
SPANS = "\n".join([f"startTimeUnixNano,{','.join(NAMES)}", *(",".join(map(str, each)) for each in CHATS)])


def otlp(indent):
    """Return the same: attributes are lists of keys and typed values; a span of a database tells no tokens."""
    spans = [(10**18, {"db.system": {"stringValue": "redis"}})]
    for at, prompt, output, session in CHATS:
        values = {"intValue": str(prompt)}, {"intValue": str(output)}, {"stringValue": session}
        spans.append((at, dict(zip(NAMES, values, strict=True))))
    listed = [
        {"startTimeUnixNano": str(at), "attributes": [{"key": key, "value": each} for key, each in told.items()]}
        for at, told in spans
    ]
    return json.dumps({"resourceSpans": [{"scopeSpans": [{"spans": listed}]}]}, indent=indent)


def aiperf_record(at, prompt, output, session):
    told = {"request_start_ns": at, "conversation_id": "template", "x_correlation_id": session}
    lengths = {"input_sequence_length": prompt, "output_sequence_length": output}
    metrics = {name: {"value": tokens, "unit": "tokens"} for name, tokens in lengths.items()}
    return json.dumps({"metadata": told, "metrics": metrics})


RECORDS = "\n".join(aiperf_record(*each) for each in CHATS)


@pytest.mark.parametrize("content", [SPANS, otlp(None), otlp(1), RECORDS], ids=["csv", "lines", "indented", "aiperf"])
def test_spans_of_opentelemetry_and_records_of_aiperf_are_a_trace_with_sessions(tmp_path, capsys, content):
    trace = trace_in(imported(tmp_path, content) / "trace.csv")
    assert (trace.arrival_s.tolist(), trace.session.tolist()) == ([0.0, 1.5, 3.0], [0, 1, 0])
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([10, 20, 30], [5, 6, 7])
    assert ("left out 1 spans without gen_ai.usage.*" in capsys.readouterr().out) is ("resourceSpans" in content)


@pytest.mark.parametrize("hashed", [False, True])
def test_sessions_and_hashes_come_out_as_they_went_in(tmp_path, hashed):
    rows = [{"session_id": "s", "timestamp": 0, "input_length": 700, "output_length": 60, "hash_ids": [1, 2]}]
    rows += [{"session_id": "s", "delay": 1500, "input_length": 1000, "output_length": 40, "hash_ids": [1, 3]}]
    for row in rows:
        None if hashed else row.pop("hash_ids")
    out = imported(tmp_path, "\n".join(map(json.dumps, rows)))
    one, other = trace_in(tmp_path / "given"), trace_in(out / ("trace.parquet" if hashed else "trace.csv"))
    for name, column in one.columns().items():
        assert np.array_equal(column, other.columns()[name], equal_nan=True)
    assert (other.prefixes is not None) is hashed
    if one.prefixes is not None and other.prefixes is not None:
        assert one.prefixes.hashes.tolist() == other.prefixes.hashes.tolist()


def test_settings_of_a_trace_say_how_requests_are_read(tmp_path, refused):
    given = "timestamp,prompt_tokens,output_tokens\n0,10,5\n4000,20,6\n"
    (tmp_path / "given").write_text(given)
    assert "set trace.time_unit=" in refused("import", "given", "--out", "out")
    unknown = refused("import", "given", "--out", "out", "trace.window=[0,1]")
    assert "trace.window=[0,1]: expected one of trace.time_unit, trace.tick_s" in unknown
    assert trace_in(imported(tmp_path, given, "trace.time_unit=ms") / "trace.csv").arrival_s.tolist() == [0.0, 4.0]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("hello\nworld\n", "no column arrival_s, prompt_tokens, output_tokens"),
        ("arrival_s,prompt_tokens,output_tokens\n0,5,6\n1,x,6\n", "1 damaged row: line 3: prompt_tokens 'x'"),
        (json.dumps(result(30)), "requests 20 is below concurrency 30"),
        (json.dumps({"benchmarks": [{}, {}]}), "it must hold them, in benchmarks[].requests.successful"),
    ],
)
def test_a_file_that_holds_nothing_or_is_damaged_is_one_line_and_writes_nothing(tmp_path, refused, content, said):
    (tmp_path / "given").write_text(content)
    assert said in refused("import", "given", "--out", "out")


def test_a_result_that_no_calibration_takes_has_a_line_and_costs_no_other(tmp_path, capsys):
    for name, clients in (contents := {"few.json": 30, "good.json": 2}).items():
        (tmp_path / name).write_text(json.dumps(result(clients)))
    out = imported(tmp_path, SCRAPE, *(str(tmp_path / name) for name in contents))
    assert sorted(each.name for each in out.iterdir()) == ["acceptance.yaml", "points.csv"]
    assert [load.concurrency for load, _, _ in points_in(out)] == [2]
    told = "few.json: 1 damaged row: result 1: requests 20 is below concurrency 30\nno trace: .* and 1 more: a summary"
    assert re.search(told, capsys.readouterr().out)


def test_one_file_of_several_that_holds_nothing_is_an_error_with_its_hint_and_writes_nothing(tmp_path, refused):
    (tmp_path / "good.json").write_text(json.dumps(result(2, **SPEC)))
    (tmp_path / "log.csv").write_text("when,n_in,n_out\n0,5,6\n")
    said = refused("import", "good.json", "log.csv", "--out", "out")
    assert "log.csv: line 1: no column arrival_s" in said
    assert "'trace.columns={arrival_s: YOURS, prompt_tokens: YOURS, output_tokens: YOURS}'; slo_class, too, if" in said


def test_names_of_columns_are_of_the_file_that_has_them(tmp_path, capsys, refused):
    (tmp_path / "log.csv").write_text("when,n_in,n_out\n0,5,6\n")
    names = "trace.columns={arrival_s: when, prompt_tokens: n_in, output_tokens: n_out}"
    out = imported(tmp_path, json.dumps(result(2, **DETAILS)), str(tmp_path / "log.csv"), names)
    assert [len(trace_in(out / f"trace_{place}.csv")) for place in (1, 2)] == [2, 1]
    capsys.readouterr()
    assert "log.csv: trace.columns: arrival_s: no column 'whn'; did you mean 'when'?" in refused(
        "import", "given", "log.csv", "--out", "other", "trace.columns={arrival_s: whn}"
    )
    assert "given: trace.columns: arrival_s: no column 'whn'" in refused(
        "import", "given", "--out", "other", "trace.columns={arrival_s: whn}"
    )


@pytest.mark.parametrize("detailed_first", [True, False])
def test_two_results_of_one_run_count_once(tmp_path, capsys, detailed_first):
    run = {"date": "20261120-101010", "duration": 38.97825844051226}
    others = [result(2, **run, **SPEC), result(2, **run, **SPEC, **DETAILS)]
    one, other = map(json.dumps, reversed(others) if detailed_first else others)
    (tmp_path / "other").write_text(other)
    out = imported(tmp_path, one, str(tmp_path / "other"))
    assert sorted(each.name for each in out.iterdir()) == ["acceptance.yaml", "points.csv", "trace.csv"]
    plain, detailed = (tmp_path / name for name in (("other", "given") if detailed_first else ("given", "other")))
    said = capsys.readouterr().out
    assert f"{plain}: a result of the same run as one of {detailed}: counted once\n" in said
    assert "1,000 verifications" in said
    (tmp_path / "other").write_text(json.dumps(result(2, **run | {"duration": 40.0}, **SPEC)))
    imported(tmp_path, one, str(tmp_path / "other"), "--force")
    assert "2,000 verifications" in capsys.readouterr().out


def test_nothing_is_replaced_unless_asked(tmp_path, refused):
    content = "arrival_s,prompt_tokens,output_tokens\n0,5,6\n"
    (tmp_path / "given").write_text(content)
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "trace.csv").write_text("mine")
    assert "is there; expected another folder, or --force" in refused("import", "given", "--out", "out")
    assert (tmp_path / "out" / "trace.csv").read_text() == "mine"
    assert len(trace_in(imported(tmp_path, content, "--force") / "trace.csv")) == 1
