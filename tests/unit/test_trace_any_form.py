"""Laws of reading: one trace reads to the same arrays however it was written; any bytes read or are one line."""

import csv
import gzip
import io
import json
from datetime import UTC, datetime, timedelta
from math import ceil

import numpy as np
import pandas as pd
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.errors import SpecsimError
from specsim.workload.entry import How
from specsim.workload.trace import TraceSource
from specsim.workload.user_file import read_user_file

SOURCE = TraceSource("made", "file")
DAY = datetime(2024, 5, 12, 23, 59, 58, tzinfo=UTC)
TOKENS = st.integers(1, 50_000)
# Distinct milliseconds, so that a shuffled file has one order only.
REQUESTS = st.lists(st.tuples(st.integers(1, 60_000), TOKENS, TOKENS), min_size=2, max_size=12).map(
    lambda each: [
        (sum(gap for gap, _, _ in each[1 : i + 1]), prompt, output) for i, (_, prompt, output) in enumerate(each)
    ]
)
SHUFFLED = REQUESTS.flatmap(st.permutations)
ENCODINGS = ("utf-8", "utf-8-sig", "utf-16", "utf-16-le", "utf-16-be", "utf-32")
SLOW = {"deadline": None, "suppress_health_check": [HealthCheck.function_scoped_fixture]}
SEVERAL = settings(max_examples=100, **SLOW)
FEW = settings(max_examples=20, **SLOW)
MANY = settings(max_examples=400, **SLOW)


def stamp(ms, zone="", digits=6):
    moment = DAY + timedelta(milliseconds=ms)
    fraction = f".{moment.microsecond:06d}".ljust(digits + 1, "0") if moment.microsecond else ""
    return f"{moment:%Y-%m-%d %H:%M:%S}{fraction}{zone}"


CSVS = {
    "specsim": ("arrival_s,prompt_tokens,output_tokens", lambda t, p, o: (t / 1000, p, o)),
    "specsim with floats": ("arrival_s,prompt_tokens,output_tokens", lambda t, p, o: (t / 1000, float(p), f"{o}e0")),
    "specsim with stamps": (
        "output_tokens,prompt_tokens,arrival_s",
        lambda t, p, o: (o, p, stamp(t, "+02:00", 9).replace(" ", "T")),
    ),
    "specsim with an index": (
        ",arrival_s,model,prompt_tokens,output_tokens",
        lambda t, p, o: (7, t / 1000, "a b", p, o),
    ),
    "Azure 2023": ("TIMESTAMP,ContextTokens,GeneratedTokens", lambda t, p, o: (stamp(t, digits=7), p, o)),
    "Azure 2024": ("TIMESTAMP,ContextTokens,GeneratedTokens", lambda t, p, o: (stamp(t, "+00:00"), p, o)),
    "Azure 2025": ("TIMESTAMP,NumImages,ContextTokens,GeneratedTokens", lambda t, p, o: (stamp(t, digits=7), 2, p, o)),
    "BurstGPT": (
        "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type",
        lambda t, p, o: (t / 1000, "GPT-4", p, o, p + o, "API log"),
    ),
    "BurstGPT 3": (
        "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type",
        lambda t, p, o: (t / 1000, "1722ac82-0a46", 43, "ChatGPT", p, o, p + o, "Conversation log"),
    ),
    "Mooncake": ("timestamp,input_length,output_length", lambda t, p, o: (1_700_000_000_000 + t, p, o)),
}
RECORDS = {
    "specsim": lambda t, p, o: {"arrival_s": t / 1000, "prompt_tokens": p, "output_tokens": o, "model": "m"},
    "specsim in quotes": lambda t, p, o: {"arrival_s": f"{t / 1000}", "prompt_tokens": f"{p}", "output_tokens": f"{o}"},
    "Mooncake": lambda t, p, o: {"timestamp": t, "input_length": p, "output_length": o, "hash_ids": ids(p, 512)},
    "Bailian": lambda t, p, o: {"timestamp": t / 1000, "input_length": p, "output_length": o, "hash_ids": ids(p, 16)},
    "AdaServe": lambda t, p, o: {
        **{"emission_time_ms": float(t), "input_length": p, "output_length": o},
        **{"prompt": "abc" + "d" * (p == 3), "slo_ratio": 1.2},
    },
}


def ids(tokens, block):
    return list(range(ceil(tokens / block)))


def same(tmp_path, raw, requests, packed, **options):
    file = tmp_path / "any"
    file.write_bytes(gzip.compress(raw, 1) if packed else raw)
    trace = read_user_file(file, SOURCE, How(**options)).trace
    ordered = sorted(requests)
    assert trace.arrival_s.tolist() == [t / 1000 for t, _, _ in ordered]
    assert trace.prompt_tokens.tolist() == [prompt for _, prompt, _ in ordered]
    assert trace.output_tokens.tolist() == [output for _, _, output in ordered]
    assert trace.row.tolist() == [requests.index(each) for each in ordered]


@SEVERAL
@given(
    requests=SHUFFLED,
    kind=st.sampled_from(sorted(CSVS)),
    separator=st.sampled_from(",;\t|"),
    encoding=st.sampled_from(ENCODINGS),
    end=st.sampled_from(["\n", "\r\n", "\r"]),
    quoting=st.sampled_from([csv.QUOTE_MINIMAL, csv.QUOTE_ALL]),
    packed=st.booleans(),
)
def test_every_csv_reads_alike(tmp_path, requests, kind, separator, encoding, end, quoting, packed):
    header, row = CSVS[kind]
    text = io.StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator=end, quoting=quoting)
    writer.writerows([header.split(","), *(row(*each) for each in requests)])
    same(tmp_path, text.getvalue().encode(encoding), requests, packed)


@SEVERAL
@given(
    requests=SHUFFLED,
    kind=st.sampled_from(sorted(RECORDS)),
    shape=st.sampled_from(["lines", "list", "pretty list", "lists"]),
    encoding=st.sampled_from(ENCODINGS),
    packed=st.booleans(),
)
def test_every_json_reads_alike(tmp_path, requests, kind, shape, encoding, packed):
    records = [RECORDS[kind](*each) for each in requests]
    unit = {"Mooncake": "ms", "Bailian": "s"}.get(kind)
    text = {
        "lines": "".join(json.dumps(record) + "\n" for record in records),
        "list": json.dumps(records),
        "pretty list": json.dumps(records, indent=2),
        "lists": json.dumps({name: [record[name] for record in records] for name in records[0]}),
    }[shape]
    same(tmp_path, text.encode(encoding), requests, packed, time_unit=unit)


@SEVERAL
@given(requests=SHUFFLED, failed=st.integers(0, 3), indent=st.sampled_from([None, 1]), waits=st.booleans())
def test_every_benchmark_result_reads_alike(tmp_path, requests, failed, indent, waits):
    rows = [*requests, *[(0, 5, 0)] * failed]
    arrival_ms, prompts, outputs = zip(*rows, strict=True)
    result = {"request_throughput": 1.0, "total_input_tokens": 5, "input_lens": prompts, "output_lens": outputs}
    result["start_times"] = [t / 1000 for t in arrival_ms]
    more = {"queue_times": [0.0] * len(rows), "max_concurrency": 8} if waits else {}
    same(tmp_path, json.dumps({**result, **more}, indent=indent).encode(), requests, False)


@FEW
@given(requests=SHUFFLED, kind=st.sampled_from(["s", "timestamps", "zoned", "ns"]), index=st.booleans())
def test_every_parquet_reads_alike(tmp_path, requests, kind, index):
    ms = np.array([t for t, _, _ in requests])
    stamps = pd.to_datetime(DAY.replace(tzinfo=None)) + pd.to_timedelta(ms, unit="ms")
    arrivals = {
        "s": ms / 1000,
        "timestamps": stamps,
        "zoned": stamps.tz_localize("Asia/Tokyo"),
        "ns": 1_700_000_000_000_000_000 + ms * 1_000_000,
    }[kind]
    _, prompts, outputs = zip(*requests, strict=True)
    columns = {"arrival_s": arrivals, "prompt_tokens": prompts, "output_tokens": outputs}
    buffer = io.BytesIO()
    pd.DataFrame(columns).rename_axis("id").to_parquet(buffer, index=index)
    same(tmp_path, buffer.getvalue(), requests, False, time_unit="ns" if kind == "ns" else None)


def whole(kind):
    header, row = CSVS[kind]
    rows = (row(700 * i, 40 + i, 9) for i in range(4))
    return "\n".join([header, *(",".join(map(str, each)) for each in rows)]).encode()


VALID = [
    *(whole(kind) for kind in sorted(CSVS)),
    *("\n".join(json.dumps(make(700 * i, 40, 9)) for i in range(3)).encode() for make in RECORDS.values()),
    json.dumps([make(0, 40, 9) for make in RECORDS.values()]).encode(),
    b'{"input_lens": [1, 2], "output_lens": [3, 4], "start_times": [5, 6.5], "queue_times": [0, 0.5]}',
    gzip.compress(whole("specsim")),
    whole("Azure 2023").decode().encode("utf-16"),
]


@MANY
@given(data=st.data(), unit=st.sampled_from([None, "s", "ms", "us", "ns"]), tick_s=st.sampled_from([None, 0.5, 3.0]))
def test_any_bytes_read_or_are_one_line(tmp_path, data, unit, tick_s):
    raw = bytearray(data.draw(st.sampled_from(VALID)))
    for _ in range(data.draw(st.integers(0, 4))):
        at = data.draw(st.integers(0, len(raw)))
        until = data.draw(st.integers(at, min(len(raw), at + 12)))
        raw[at:until] = data.draw(st.sampled_from(HOSTILE) | st.binary(max_size=6))
    file = tmp_path / "any"
    file.write_bytes(bytes(raw))
    said, trace = reading(file, time_unit=unit, tick_s=tick_s)
    assert len(said.splitlines()) == 1
    assert len(said) < 1500
    if trace is None:
        assert said.startswith(f"{file}: ")
    else:
        assert trace.arrival_s[0] == 0
        assert np.isfinite(trace.arrival_s).all()


def reading(file, **options):
    try:
        trace, said = read_user_file(file, SOURCE, How(**options))
    except SpecsimError as error:
        return str(error), None
    return said, trace


HOSTILE = [
    *(b"", b"\n", b"\r", b"\x00", b"9" * 30, b"9" * 400, b"9" * 5000, b"[[[[", b"PAR1", b"\x1f\x8b"),
    *(b"\xff\xfe", b"\xef\xbb\xbf", b"\xff", b"\xe2\x80\xa8", b"\x1b[31m", b"2024-05-12 00:00:00"),
    *(b"9999-12-31 23:59:59+00:00", b"0001-01-01 00:00"),
    *b', ; " { [ ] } : null NaN Infinity true -1 1e999 1e308 0.5 1,5 "a" {} [] -0 00 1700000000'.split(),
    b"1700000000000000000",
]
