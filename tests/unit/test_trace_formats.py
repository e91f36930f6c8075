"""What the rows of each format and of a DataFrame become; whatever was tolerated is said, what was not is told."""

import gzip
import json
import re
import tracemalloc

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsim import simulate
from specsim.files import yaml_file
from specsim.workload import readers
from specsim.workload.entry import How
from specsim.workload.published import read_adaserve_parquet
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file, trace_of
from tests.made import refusal

SOURCE = TraceSource("made", "file")
USER = "arrival_s,prompt_tokens,output_tokens\n"
BURST = "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
BURST_3 = "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
RESULT = {"request_throughput": 1.0, "total_input_tokens": 18, "input_lens": [5, 6, 7], "output_lens": [50, 0, 70]}


@pytest.fixture
def read(tmp_path):
    """Return a function from a file's content to its trace and what is said of it."""

    def reading(content, **options):
        file = tmp_path / "t"
        file.write_bytes(content if isinstance(content, bytes) else content.encode())
        return read_user_file(file, SOURCE, How(**options))

    return reading


@pytest.fixture
def refused(read, tmp_path):
    """Return a function from a file's content to the line that refuses it."""

    return lambda content: refusal(read, content).removeprefix(f"{tmp_path / 't'}: ")


def parquet(*columns):
    """Return the bytes of a Parquet file of the first of a user's columns."""
    file = pa.BufferOutputStream()
    pq.write_table(pa.table(dict(zip(USER.strip().split(","), columns, strict=False))), file)
    return file.getvalue().to_pybytes()


def rows(trace):
    return list(zip(trace.arrival_s.tolist(), trace.prompt_tokens.tolist(), trace.output_tokens.tolist(), strict=True))


def lines(*records):
    return "".join(json.dumps(record) + "\n" for record in records)


def test_burstgpt_with_and_without_sessions_leaves_failures_out_and_counts_them(read):
    trace, said = read(BURST + "5,ChatGPT,472,18,490,API log\n45,GPT-4,9,0,9,API log\n45,GPT-4,417,276,693,API log\n")
    assert rows(trace) == [(0, 472, 18), (40, 417, 276)]
    assert trace.row.tolist() == [0, 2]
    assert said.startswith("read as BurstGPT CSV: Timestamp, Request tokens, Response tokens; 2 requests in 40 s")
    assert "left out 1 of 3 requests (0 tokens: they failed)" in said
    assert said.endswith("not read: Model, Total tokens, Log Type")
    trace, said = read(BURST_3 + "19440110.0,1722ac82,43,GPT,906,446,1352,log\n19440161.0,d5,2,GPT,36,29,65,x\n")
    assert rows(trace) == [(0, 906, 446), (51, 36, 29)]
    assert trace.session.tolist() == [0, 1]
    assert "; 2 sessions; " in said
    assert said.endswith("not read: Elapsed time, Model, Total tokens, Log Type")


@pytest.mark.parametrize(
    ("stamps", "more", "unit", "why"),
    [
        ((0, 3053), {"chat_id": 5, "parent_chat_id": -1}, "s", "chat_id and parent_chat_id are Bailian's"),
        ((0, 0.25), {}, "s", "as milliseconds 4,000 requests/s"),
        ((1700000000000, 1700000003053), {}, "ms", "since 1970"),
    ],
)
def test_a_timed_traces_unit_is_read_from_its_content_and_said(read, stamps, more, unit, why):
    content = lines(*({"timestamp": stamp, "input_length": 7, "output_length": 1, **more} for stamp in stamps))
    trace, said = read(content)
    span = stamps[1] - stamps[0]
    assert trace.arrival_s.tolist() == [0, span if unit == "s" else span / 1000]
    assert said.startswith("read as Mooncake / vLLM timed trace JSON lines: timestamp, input_length, output_length; ")
    assert f"timestamp is in {unit} ({why}); trace.time_unit sets it" in said
    other = "ms" if unit == "s" else "s"
    trace, said = read(content, time_unit=other)
    assert trace.arrival_s.tolist() == [0, span if other == "s" else span / 1000]
    assert "timestamp is in" not in said


ONE_IN_51_MIN = "s (51 min, one request in 51 min)", "ms (3.05 s, one request in 3.05 s)"


@pytest.mark.parametrize(
    ("stamps", "more", "units"),
    [
        (range(0, 3360, 28), {}, ["s (56 min, one request in 28 s)", "ms (3.33 s, 35.7 requests/s)"]),
        ((0, 294e3), {}, ["ms (5 min, one request in 5 min)", "us (0.294 s, 3.4 requests/s)"]),
        ((0, 3053), {"hash_ids": [1]}, [*ONE_IN_51_MIN, "us (0.00305 s, 328 requests/s)"]),
    ],
)
def test_a_timestamp_that_makes_sense_in_several_units_asks_for_one(read, refused, stamps, more, units):
    row = {"input_length": 7, "output_length": 1, **more}
    content = lines(*({"timestamp": stamp, **row} for stamp in stamps))
    names = [each.split()[0] for each in units]
    said = f"timestamp may be in {' or '.join(units)}: set trace.time_unit={' or '.join(names)}"
    assert refused(content) == said
    for unit in names:
        trace = read(content, time_unit=unit).trace
        assert trace.arrival_s[-1] == pytest.approx(stamps[-1] / {"s": 1, "ms": 1e3, "us": 1e6}[unit])


def test_timestamps_are_exact_to_the_nanosecond(read):
    stamps = ("2024-05-10 23:59:59.999999999+00:00", "2024-05-11 02:00:00.000000001+02:00")
    assert read(USER + "".join(f"{stamp},1,1\n" for stamp in stamps)).trace.arrival_s.tolist() == [0, 2e-9]


@pytest.mark.parametrize(
    ("stamps", "said", "unit", "gap_s"),
    [
        ((1700000000000, 1700000000500), "arrival_s reaches 1.7e+12 s, the year 55,840; in ms 0.5 s", "ms", 0.5),
        (range(0, 3600000001, 36000000), "arrival_s spans 114 years in s; in us 60 min", "us or ns", 36.0),
    ],
)
def test_a_unit_that_makes_no_sense_is_refused_with_the_key_that_mends_it(read, refused, stamps, said, unit, gap_s):
    content = USER + "".join(f"{stamp},1,1\n" for stamp in stamps)
    told = refused(content)
    assert told.startswith(said)
    assert told.endswith(f": set trace.time_unit={unit}")
    assert read(content, time_unit=unit.partition(" ")[0]).trace.arrival_s[1] == gap_s


def test_a_unit_that_may_be_wrong_is_a_note_and_a_chosen_one_is_none(read):
    slow = USER + "0,1,1\n400,1,1\n800,1,1\n"
    assert "one request in 7 min: if arrival_s is in ms, set trace.time_unit=ms" in read(slow).said
    assert "time_unit" not in read(slow, time_unit="s").said
    assert read(slow, time_unit="ms").trace.arrival_s.tolist() == [0, 0.4, 0.8]
    called = (("arrival_s", "sent_ms"),)
    fast = lines(*({"sent_ms": i, "prompt_tokens": 9, "output_tokens": 1} for i in range(9)))
    assert "requests/s" not in read(fast, called=called).said
    fast = fast.replace('"sent_ms": 8', '"sent_ms": 7')
    assert "1,143 requests/s: if sent_ms is in s, set trace.time_unit=s" in read(fast, called=called).said


def test_coarse_stamps_are_said_and_spread_on_demand(read):
    content = USER + "".join(f"{3 * (i // 4)},1,1\n" for i in range(12))
    trace, said = read(content)
    assert said.endswith("; stamped every 3 s: trace.tick_s=3 spreads requests stamped alike")
    assert trace.arrival_s.tolist() == [0] * 4 + [3] * 4 + [6] * 4
    trace, said = read(content, tick_s=3)
    assert trace.arrival_s == pytest.approx(np.arange(12) * 0.75)
    assert "stamped every" not in said
    assert trace.source.note == "requests stamped alike are spread evenly over their tick of 3 s"
    assert "stamped every" not in read(USER + "0,1,1\n3,1,1\n3,1,1\n").said


def test_a_gzip_that_unpacks_beyond_all_measure_is_refused_early(tmp_path):
    file = tmp_path / "bomb.csv.gz"
    block = gzip.compress(b"0" * (32 << 20))
    file.write_bytes(block * 8)
    tracemalloc.start()
    assert "gzip unpacks to more than 64 MiB; expected less" in refusal(read_user_file, file, SOURCE)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 8 << 20


def test_a_parquet_that_states_too_many_rows_is_refused_unread(refused, monkeypatch):
    raw = parquet([0, 1], [1, 1], [1, 1])
    said = f"states 2 rows in {yaml_file.size(len(raw))}; expected at most "
    monkeypatch.setattr(yaml_file, "MOST_ROWS", 1)
    assert refused(raw) == f"{said}1"
    monkeypatch.undo()
    monkeypatch.setattr(yaml_file, "FREE_ROWS", 1)
    monkeypatch.setattr(yaml_file, "ROWS_PER_BYTE", 0)
    assert refused(raw) == f"{said}1"
    monkeypatch.undo()
    monkeypatch.setattr(readers, "MOST_RATIO", 0)
    monkeypatch.setattr(readers, "FREE_BYTES", 100)
    assert "Parquet unpacks to more than 100 bytes" in refused(raw)


def adaserve(**changes):
    row = {"emission_time_ms": 0.0, "input_length": 28, "output_length": 256, "prompt": "abc", "slo_ratio": -50.0}
    return row | changes


AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n"
MOONCAKE = '{"timestamp": 0, "input_length": 5, "output_length": 1}\n'
OWN = USER[:-1] + ",slo_class,tpot_slo_s,tpot_slo_ratio,ttft_slo_s\n0,1,1,a,,,\n"
BAD_ROWS = [adaserve(), adaserve(slo_ratio=-70), adaserve(slo_ratio=0), adaserve(emission_time_ms="x")]
QUOTED = "prompt," + USER + '"two\nlines",1,7,8\n'
NO_NUMBER = pa.array([], pa.int64())
OTHER = "total_tokens", "number_total_tokens", "max_tokens", "max_prompt_tokens", "prompt_chars", "prompt_token_ids"
UNEVEN = "its lists differ in length: 1 start_times, 3 input_lens, 3 output_lens\n"
NOTHING, NAN = "output_tokens None is not a whole number", "arrival_s nan is not a number"
DAMAGED = [
    ("startTime,prompt_tokens,completion_tokens\n0,1,2\n\n3,4,5\n", "line 3: a blank line where the header has 3"),
    (AZURE + "NaT,3,8", "line 3: TIMESTAMP 'NaT' is no time like"),
    (AZURE + "2023-11-16 18:17:04.1+00:00,3,8\n", "line 3: TIMESTAMP '2023-11-16 18:17:04.1+00:00' has a time zone"),
    (AZURE.encode() + b"\xff,3,8\n", "line 3: TIMESTAMP '\ufffd' is no time like"),
    (MOONCAKE + '{"timestamp": 1, "input_length": 5', "line 2: not a JSON object"),
    (MOONCAKE + MOONCAKE.replace("0", "NaN"), "line 2: timestamp nan is not a number"),
    (MOONCAKE + '{"timestamp": 1, "input_length": 5}', "line 2: output_length None is not a whole number"),
    (MOONCAKE + MOONCAKE.replace("5", "true"), "line 2: input_length True is not a whole"),
    (MOONCAKE + MOONCAKE.replace("5", f"{2**53 + 1}"), f"line 2: input_length {2**53 + 1} is not in 1..10000000"),
    (OWN + "-1,1,1,a,,,\n1,1,1,a,,,", "line 3: arrival_s -1 is negative"),
    (OWN + "1,1,1,a,0,,\n", "line 3: tpot_slo_s '0' is not a number above 0"),
    (OWN + "1,1,1,,,,", "line 3: slo_class '' is not a name"),
    (OWN + "1,1,1,all,,,", "line 3: slo_class 'all' is what tables call all classes together"),
    (OWN + "1,1,1,a,1,1,", "line 3: tpot_slo_s and tpot_slo_ratio are both given"),
    (USER.replace(",", ";") + "0,5;5;6\n", "line 2: arrival_s '0,5' holds a comma; expected a decimal"),
    (USER + "2024-05-10 10:00:00,5,6\n7,5,6\n", "line 3: arrival_s '7' is no time like 2024-05-10 "),
    (USER + "0,5," + "6" * 200_000 + "\n", "line 2: output_tokens '6666"),
    *((USER + f"0,{text},1", f"line 2: prompt_tokens '{text}' is not a whole number") for text in ("٣", "1_0", "+-1")),
    (QUOTED + '5" a,2,3,8\n6" b,2,x,8\n', "line 5: prompt_tokens 'x' is not a whole"),
    (QUOTED + "a,2,8\n", "line 4: 3 cells where the header has 4\n"),
    (json.dumps({**RESULT, "start_times": [1.0, None, None]}), "entry 3: start_times None is not a number\n"),
    (json.dumps({"Input_Lens": [5], "Output_Lens": [6], "Start_Times": ["x"]}), "entry 1: Start_Times 'x' is not a n"),
    (json.dumps([adaserve(), 5]), "entry 2: not a JSON object\n"),
]
REFUSED = [
    *((content, f"1 damaged row: {said}") for content, said in DAMAGED),
    (json.dumps(BAD_ROWS), "3 damaged rows: entry 2: slo_ratio -70 is not above 0, -50 or -150, entry 3: "),
    (json.dumps(BAD_ROWS, indent=1)[:100], "line 7: not JSON, damaged or cut\n"),
    (json.dumps([{"emission_time_ms": 0, "input_length": 1, "output_length": 1}]), "no column slo_ratio\n"),
    (json.dumps([RESULT]) + "\n{}", "line 2: more behind the first"),
    (json.dumps({**RESULT, "start_times": [1]}), UNEVEN),
    (BURST + "5,ChatGPT,472,0,472,API log\n", "every request has 0 tokens\n"),
    *((content, "empty file\n") for content in ("", "\n ")),
    *((content, "no row\n") for content in (USER, AZURE.splitlines()[0], parquet(NO_NUMBER, NO_NUMBER, NO_NUMBER))),
    (parquet([0.0, np.nan], [1, 2], [None, 4]), f"2 damaged rows: row 1: {NOTHING}, row 2: {NAN}\n"),
    (parquet([0.0]), "no column prompt_tokens, output_tokens"),
    (b"PAR1" + b"x" * 50, "damaged or cut Parquet file\n"),
    ("a,b,c\n1,1,1", "line 1: no column arrival_s, prompt_tokens, output_tokens; if yours has another name"),
    ("TIMESTAMP,ContextToken,n\n", "line 1: unknown column 'ContextToken'; did you mean 'ContextTokens' ('trace.colu"),
    ("arrival_s,input_toks_x,n\n", "line 1: no column prompt_tokens, output_tokens; if yours has another name: 'tra"),
    ("num_total_output_tokens,ts\n", "line 1: no column arrival_s, num_input_tokens; if yours has another name: 'tra"),
    *((f"arrival_s,{each},output_tokens\n", "line 1: no column prompt_tokens; if yours has another") for each in OTHER),
    *(
        (f"{each},isl,osl\n", f"line 1: unknown column '{each}'; if")
        for each in ("arrival_ms", "time_s", "createdAtMs")
    ),
    (b"PK\x03\x04xlsx", "a ZIP archive or an Excel sheet; expected CSV, JSON or Parquet, plain or gzip"),
    ("[" * 100_000, "line 1: not JSON, damaged or cut"),
    *((USER + f"0,1,{each}", "line 2: not CSV (") for each in ('"1', '"1"2')),
    (parquet(np.array(["0001", "9999"], "M8[s]"), [1, 1], [1, 1]), "arrival_s spans 9,998 years in s; expected less"),
    (",".join(f"c{i}" for i in range(1001)) + "\n0\n", "line 1: 1,001 columns; expected at most 1,000"),
    (USER[:-1] + ",slo_class\n" + "".join(f"{i},1,1,u{i}\n" for i in range(1001)), "slo_class names 1,001 classes"),
]


@pytest.mark.parametrize(("content", "said"), REFUSED, ids=[said for _, said in REFUSED])
def test_what_is_no_trace_says_what_it_is_and_a_damaged_row_is_told_with_its_line(refused, content, said):
    assert f"{refused(content)}\n".startswith(said)


def test_no_file_and_a_folder(tmp_path):
    for file, said in ((tmp_path / "none.csv", "no such file"), (tmp_path, "is a folder; expected a file")):
        assert refusal(read_user_file, file, SOURCE) == f"{file}: {said}"


def test_quoted_cells_may_hold_quotes_commas_and_line_breaks(read):
    quoted = QUOTED.replace('"two', '"a ""b"", c",0,5,6\n"two') + '5" d,2,3,4\n'
    assert rows(read(quoted).trace) == [(0, 5, 6), (1, 7, 8), (2, 3, 4)]


def test_truncated_and_broken_gzip_tell_the_line_reached(read, refused):
    rng = np.random.default_rng(0)
    whole = USER + "\n".join(f"{i},{p},1" for i, p in enumerate(rng.integers(1, 9999, 50_000)))
    raw = gzip.compress(whole.encode())
    assert len(read(raw).trace) == 50_000
    line = int(re.fullmatch(r"truncated gzip after line (\d+)", refused(raw[: len(raw) // 2]))[1])
    assert 20_000 < line < 30_000
    assert refused(raw[:-1]) == "truncated gzip after line 50000"
    assert "broken gzip after line" in refused(raw[:-6] + bytes([raw[-6] ^ 0xFF]) + raw[-5:])


def test_adaserve_json_keeps_the_authors_classes_and_slos_and_turns_characters_to_tokens(read):
    later = adaserve(emission_time_ms=1500.0)
    trace = read(json.dumps([adaserve(slo_ratio=1.2), later, later | {"slo_ratio": -150}])).trace
    assert trace.arrival_s.tolist() == [0, 1.5, 1.5]
    assert [trace.slo_names[code] for code in trace.slo_class] == ["coding", "chat", "summarization"]
    np.testing.assert_equal(trace.tpot_slo_ratio, [1.2, np.nan, np.nan])
    np.testing.assert_equal(trace.tpot_slo_s, [np.nan, 0.05, 0.15])
    assert (trace.prompt_tokens.tolist(), trace.source.note) == ([28] * 3, None)
    text, code = adaserve(prompt="x" * 46, input_length=46), adaserve(prompt="y" * 34, input_length=34, slo_ratio=1.2)
    trace = read(json.dumps([text, code])).trace
    assert trace.prompt_tokens.tolist() == [10, 10]
    assert "2 of 2 prompt lengths are estimated from characters" in trace.source.note


def test_adaserve_parquet_picks_one_workload_and_its_known_tokens(tmp_path):
    table = pa.table(
        {
            "trace": ["a", "b", "b", "b"],
            "emission_time_ms": [0.0, 0.0, 100.0, 200.0],
            "slo_ratio": [1.2, -50.0, -150.0, 1.2],
            "input_length": [9, 46, 460, 34],
            "input_length_unit": ["tokens", "chars", "chars", "tokens"],
            "input_tokens": pa.array([9, None, 77, 34], pa.int32()),
            "output_length": [256] * 4,
        }
    )
    pq.write_table(table, file := tmp_path / "r.parquet")
    trace = read_adaserve_parquet(file, "b", SOURCE)
    assert trace.prompt_tokens.tolist() == [10, 77, 34]
    assert trace.row.tolist() == [0, 1, 2]
    assert "1 of 3 prompt lengths" in trace.source.note
    assert "no row of the workload 'c'" in refusal(read_adaserve_parquet, file, "c", SOURCE)
    pq.write_table(table.drop_columns(["trace"]), file)
    assert "no column 'trace'" in refusal(read_adaserve_parquet, file, "b", SOURCE)


def test_a_users_csv_with_every_column(read):
    header = "output_tokens,slo_class,arrival_s,prompt_tokens,tpot_slo_s,tpot_slo_ratio,ttft_slo_s"
    trace = read(f'\ufeff{header}\n5,chat,1700000000,7,0.05,,1\n6,"code",1700000000.5,8,,1.2,\n').trace
    assert rows(trace) == [(0, 7, 5), (0.5, 8, 6)]
    assert (trace.slo_names, trace.slo_class.tolist()) == (("chat", "code"), [0, 1])
    slos = trace.tpot_slo_s, trace.tpot_slo_ratio, trace.ttft_slo_s
    np.testing.assert_equal(slos, [[0.05, np.nan], [np.nan, 1.2], [1, np.nan]])


SMALL = {"profile": "llama8b_1b_h100", "acceptance": "bernoulli"}
TIMES = pd.to_datetime(pd.Series(["2026-01-05T10:00:00.5", "2026-01-05T10:00:02.0"]))
ZONED = [TIMES.dt.tz_localize(zone) for zone in (None, "UTC", "Europe/Berlin")]
ZONED += [each.astype(object) for each in ZONED]


@pytest.mark.parametrize("times", [*ZONED, pd.to_timedelta([90.5, 92.0], unit="s")], ids=lambda each: str(each.dtype))
def test_times_in_a_zone_and_times_since_any_moment_are_times(times):
    trace = trace_of(pd.DataFrame({"arrival_s": times, "prompt_tokens": [5, 6], "output_tokens": [7, 8]}))
    assert trace.arrival_s.tolist() == [0.0, 1.5]


@pytest.mark.parametrize(("label", "said"), [(["a", "b"], "index 'b'"), ([7, 70], "index 70"), ([0, 1], "index 1")])
def test_a_damaged_row_is_named_by_the_index_of_its_frame(label, said):
    frame = pd.DataFrame({"arrival_s": [0, np.nan], "prompt_tokens": [5, 6], "output_tokens": [7, 8]}, index=label)
    assert refusal(trace_of, frame) == f"DataFrame: 1 damaged row: {said}: arrival_s nan is not a number"
    named = refusal(trace_of, frame.to_dict("list") | {"hash_ids": [[1], [2]]}, "mine")
    assert named == "mine: 1 damaged row: row 2: arrival_s nan is not a number"


def test_missing_cells_of_nullable_columns_and_columns_that_stand_twice():
    frame = pd.DataFrame({"arrival_s": [0, 1], "prompt_tokens": [5, 6], "output_tokens": [7, 8]}).astype("Int64")
    for missing in (pd.array([None, 2], "Int64"), pd.Series([pd.NA, 2], dtype=object)):
        assert trace_of(frame.assign(cached_tokens=missing)).cached_tokens.tolist() == [0, 2]
    assert refusal(trace_of, pd.concat([frame, frame], axis=1)) == "DataFrame: column 'arrival_s' is there twice"
    frame["prompt_tokens"] = pd.Series([5, pd.NA], dtype=object)
    assert "index 1: prompt_tokens <NA> is not a whole number" in refusal(trace_of, frame)


def in_ms(first=1700000000000):
    times = [first, first + 500000, first + 900000]
    return pd.DataFrame({"arrival_s": times, "prompt_tokens": [5, 6, 7], "output_tokens": [7, 8, 9]})


def test_advice_on_the_unit_can_be_followed():
    said = 'in ms 15 min: give simulate trace__time_unit="ms", or trace_of time_unit="ms"'
    assert refusal(simulate, "fcfs", in_ms(), **SMALL).endswith(said)
    assert refusal(trace_of, in_ms()).endswith(said)
    run = simulate("fcfs", in_ms(), trace__time_unit="ms", **SMALL)
    assert run.requests["arrival_s"].tolist() == [0, 500, 900]
    assert trace_of(in_ms(), time_unit="ms").arrival_s.tolist() == [0, 500, 900]
    assert not any("time_unit" in note for note in run.notes)


@pytest.mark.parametrize("given", [in_ms(), trace_of(in_ms(), time_unit="ms")], ids=["frame", "trace"])
def test_a_window_and_blocks_are_of_any_trace(given):
    unit = {"trace__time_unit": "ms"} if isinstance(given, pd.DataFrame) else {}
    late = simulate("fcfs", given, trace__window=[400, 1000], **unit, **SMALL)
    assert late.requests[["arrival_s", "trace_row"]].to_numpy().tolist() == [[0, 1], [400, 2]]
    assert late.config["trace"]["window"] == [400, 1000]
    drawn = [simulate("fcfs", given, trace__resample=450, seed=seed, **unit, **SMALL) for seed in range(4)]
    assert len({tuple(run.requests["arrival_s"]) for run in drawn}) > 1
    assert all((run.requests["prompt_tokens"] == run.requests["trace_row"] + 5).all() for run in drawn)
    assert "arrivals" in drawn[0].provenance["varies_with_seed"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"trace__time_unit": "minutes"}, "time_unit: 'minutes' is unknown"),
        ({"trace__window": [5, 1]}, "trace.window: [5, 1] is not [start_s, stop_s]"),
        ({"trace__rps": 2}, "trace.rps: trace is an object; expected the value in it"),
    ],
)
def test_a_setting_that_does_not_fit_a_frame_is_one_line(settings, said):
    assert said in refusal(simulate, "fcfs", in_ms(0), **{**settings, **SMALL})
