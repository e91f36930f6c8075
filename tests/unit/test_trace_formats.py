"""What each format's rows become, and what is said of damaged ones."""

import gzip
import json
import re

import numpy as np
import pytest

from specsim.workload.entry import How
from specsim.workload.published import read_adaserve_parquet
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file
from tests.made import refusal

SOURCE = TraceSource("made", "file")
AZURE = "TIMESTAMP,ContextTokens,GeneratedTokens"
GOOD = "2023-11-16 18:17:03.9799600,4808,10"
USER = "arrival_s,prompt_tokens,output_tokens"


def put(tmp_path, lines, name="t.csv", newline="\n"):
    file = tmp_path / name
    raw = newline.join(lines).encode("utf-8", "surrogateescape")
    file.write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    return file


def read(file, **kwargs):
    return read_user_file(file, SOURCE, How(**kwargs)).trace


def told(file, *args, read=read_user_file, **kwargs):
    return refusal(read, file, *args, SOURCE, **kwargs).removeprefix(f"{file}: ")


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("2023-11-16 18:17:04.1,3", "line 3: 2 cells where the header has 3"),
        ("NaT,3,8", "line 3: TIMESTAMP 'NaT' is no time like"),
        ("2023-11-16 18:17:04.1+00:00,3,8", "line 3: TIMESTAMP '2023-11-16 18:17:04.1+00:00' has a time zone"),
        ("\udcff,3,8", "line 3: TIMESTAMP '\ufffd' is no time like"),
    ],
)
def test_a_damaged_azure_row_is_told_with_its_line(tmp_path, row, said):
    message = told(put(tmp_path, [AZURE, GOOD, row, "2023-11-16 18:17:05,1,1"]))
    assert message.startswith("1 damaged row: " + said)


@pytest.mark.parametrize(
    ("header", "said"),
    [
        ("a,b,c", "line 1: no column arrival_s, prompt_tokens, output_tokens; if yours has another name"),
        ("TIMESTAMP,ContextToken,GeneratedTokens", "line 1: unknown column 'ContextToken'; did you mean 'ContextTok"),
    ],
)
def test_wrong_columns_name_the_nearest_or_the_needed_ones(tmp_path, header, said):
    assert told(put(tmp_path, [header, "1,1,1"])).startswith(said)


def test_no_file_empty_file_folder_and_header_alone(tmp_path):
    assert told(tmp_path / "none.csv") == "no such file"
    assert told(put(tmp_path, [])) == "empty file"
    assert told(put(tmp_path, ["", " "])) == "empty file"
    assert told(tmp_path) == "is a folder; expected a file"
    for header in (AZURE, USER):
        assert told(put(tmp_path, [header, ""])) == "no row"


def test_truncated_and_broken_gzip_tell_the_line_reached(tmp_path):
    rng = np.random.default_rng(0)
    rows = [f"{i},{p},1" for i, p in enumerate(rng.integers(1, 9999, 50_000))]
    whole = put(tmp_path, [USER, *rows], "t.csv.gz")
    assert len(read(whole)) == 50_000
    raw = whole.read_bytes()
    whole.write_bytes(raw[: len(raw) // 2])
    line = int(re.fullmatch(r"truncated gzip after line (\d+)", told(whole))[1])
    assert 20_000 < line < 30_000
    whole.write_bytes(raw[:-1])
    assert told(whole) == "truncated gzip after line 50000"
    flipped = bytearray(raw)
    flipped[-6] ^= 0xFF
    whole.write_bytes(bytes(flipped))
    assert "broken gzip after line" in told(whole)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"timestamp": 1, "input_length": 5', "not a JSON object"),
        ('{"timestamp": NaN, "input_length": 5, "output_length": 1}', "timestamp nan is not a number"),
        ('{"timestamp": 1, "input_length": 5}', "output_length None is not a whole number"),
        ('{"timestamp": 1, "input_length": true, "output_length": 1}', "input_length True is not a whole"),
    ],
)
def test_a_damaged_mooncake_line_is_told(tmp_path, line, said):
    good = '{"timestamp": 0, "input_length": 5, "output_length": 1}'
    message = told(put(tmp_path, [good, line, good[:14] + "9" + good[15:]]))
    assert message.startswith(f"1 damaged row: line 2: {said}")


def adaserve(**changes):
    row = {
        "emission_time_ms": 0.0,
        "input_length": 28,
        "output_length": 256,
        "prompt": "abc",
        "slo_ratio": -50.0,
    }
    return {**row, **changes}


def test_adaserve_json_keeps_the_authors_classes_and_slos(tmp_path):
    rows = [
        adaserve(slo_ratio=1.2),
        adaserve(emission_time_ms=1500.0),
        adaserve(emission_time_ms=1500.0, slo_ratio=-150),
    ]
    trace = read(put(tmp_path, [json.dumps(rows)], "e.json"))
    assert trace.arrival_s.tolist() == [0, 1.5, 1.5]
    assert [trace.slo_names[code] for code in trace.slo_class] == ["coding", "chat", "summarization"]
    assert trace.tpot_slo_ratio[0] == 1.2
    assert np.isnan(trace.tpot_slo_ratio[1:]).all()
    assert np.isnan(trace.tpot_slo_s[0])
    assert trace.tpot_slo_s[1:].tolist() == [0.05, 0.15]
    assert trace.prompt_tokens.tolist() == [28, 28, 28]
    assert trace.source.note is None


def test_adaserve_json_in_characters_is_turned_to_tokens_and_said(tmp_path):
    rows = [
        adaserve(prompt="x" * 46, input_length=46),
        adaserve(prompt="y" * 34, input_length=34, slo_ratio=1.2),
    ]
    trace = read(put(tmp_path, [json.dumps(rows)], "e.json"))
    assert trace.prompt_tokens.tolist() == [10, 10]
    assert "2 of 2 prompt lengths are estimated from characters" in trace.source.note


def test_adaserve_json_damage_is_told(tmp_path):
    bad = [adaserve(), adaserve(slo_ratio=-70), adaserve(slo_ratio=0), adaserve(emission_time_ms="x"), 5]
    message = told(put(tmp_path, [json.dumps([bad[0], 5])], "e.json"))
    assert message == "1 damaged row: entry 2: not a JSON object"
    message = told(put(tmp_path, [json.dumps(bad[:4])], "e.json"))
    assert message.startswith("3 damaged rows: entry 2: slo_ratio -70 is not above 0, -50 or -150, entry 3: ")
    cut = put(tmp_path, [json.dumps(bad[:4], indent=1)[:100]], "e.json")
    assert re.fullmatch(r"line \d+: not JSON, damaged or cut", told(cut))
    missing = put(tmp_path, [json.dumps([{"emission_time_ms": 0, "input_length": 1, "output_length": 1}])], "e.json")
    assert told(missing) == "no column slo_ratio"


def test_adaserve_parquet_picks_one_workload_and_its_known_tokens(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

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
    file = tmp_path / "r.parquet"
    pq.write_table(table, file)
    trace = read_adaserve_parquet(file, "b", SOURCE)
    assert trace.prompt_tokens.tolist() == [10, 77, 34]
    assert trace.row.tolist() == [0, 1, 2]
    assert "1 of 3 prompt lengths" in trace.source.note
    assert "no row of the workload 'c'" in told(file, "c", read=read_adaserve_parquet)
    pq.write_table(table.drop_columns(["trace"]), file)
    assert "no column 'trace'" in told(file, "b", read=read_adaserve_parquet)


def test_a_users_csv_with_every_column(tmp_path):
    header = f"output_tokens,slo_class,{USER.removesuffix(',output_tokens')},tpot_slo_s,tpot_slo_ratio,ttft_slo_s"
    rows = ["5,chat,1700000000,7,0.05,,1", '6,"code",1700000000.5,8,,1.2,']
    trace = read(put(tmp_path, ["\ufeff" + header, *rows, ""]))
    assert trace.arrival_s.tolist() == [0, 0.5]
    assert (trace.prompt_tokens.tolist(), trace.output_tokens.tolist()) == ([7, 8], [5, 6])
    assert trace.slo_names == ("chat", "code")
    assert trace.slo_class.tolist() == [0, 1]
    assert trace.tpot_slo_s[0] == 0.05
    assert trace.tpot_slo_ratio[1] == 1.2
    assert np.isnan([trace.tpot_slo_s[1], trace.tpot_slo_ratio[0], trace.ttft_slo_s[1]]).all()


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ("-1,1,1,a,,,", "arrival_s -1 is negative"),
        ("1,1,1,a,0,,", "tpot_slo_s '0' is not a number above 0"),
        ("1,1,1,,,,", "slo_class '' is not a name"),
        ("1,1,1,all,,,", "slo_class 'all' is what tables call all classes together"),
        ("1,1,1,\x1b[31mred,,,", "slo_class '\\x1b[31mred' is not a name of printable characters"),
        (f"1,1,1,{'x' * 101},,,", f"slo_class '{'x' * 56}... is a name of 101 characters; expected at most 100"),
        ("1,1,1,a,1,1,", "tpot_slo_s and tpot_slo_ratio are both given"),
    ],
)
def test_a_damaged_row_of_a_users_file_is_told(tmp_path, row, said):
    header = f"{USER},slo_class,tpot_slo_s,tpot_slo_ratio,ttft_slo_s"
    message = told(put(tmp_path, [header, "0,1,1,a,,,", row]))
    assert message.startswith(f"1 damaged row: line 3: {said}")


def test_a_users_parquet_tells_rows_from_one(tmp_path):
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = tmp_path / "t.parquet"
    columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [1, 2], "output_tokens": [3, 4]}
    pq.write_table(pa.table(columns), file)
    assert read(file).output_tokens.tolist() == [3, 4]
    pq.write_table(pa.table({**columns, "arrival_s": [0.0, float("nan")], "output_tokens": [None, 4]}), file)
    first, second = "output_tokens None is not a whole number", "arrival_s nan is not a number"
    assert told(file) == f"2 damaged rows: row 1: {first}, row 2: {second}"
    pq.write_table(pa.table({"arrival_s": [0.0]}), file)
    assert "no column prompt_tokens, output_tokens" in told(file)
    pq.write_table(pa.table(columns).slice(0, 0), file)
    assert told(file) == "no row"
    file.write_bytes(b"PAR1" + b"x" * 50)
    assert told(file) == "damaged or cut Parquet file"


def test_an_open_quote_is_an_error(tmp_path):
    assert "not CSV" in told(put(tmp_path, [USER, '0,1,"1']))
