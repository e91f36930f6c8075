"""Trace events of a run: what Perfetto's importer asks for, and the run's own numbers in it."""

import json
from collections import defaultdict
from itertools import pairwise

import pytest

from specsim import load_run, simulate
from specsim.cli import main

RUN = {"trace": "poisson", "rps": 20, "requests": 40, "scheduler": "vllm_spec", "replicas": 2, "progress": False}
NEEDED = {"X": {"ts", "dur"}, "C": {"ts", "args"}, "M": {"args"}, "i": {"ts", "s"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs") / "one"
    simulate(**RUN, passes=True, out=place, timeout_s=2)
    assert main(["trace-events", str(place)]) == 0
    return place


@pytest.fixture(scope="module")
def events(folder):
    return json.loads((folder / "trace_events.json").read_text())["traceEvents"]


def test_every_event_has_what_the_format_asks_for_slices_of_a_row_do_not_overlap_and_each_row_has_a_name(events):
    assert {event["ph"] for event in events} == {"X", "C", "M", "i"}
    rows = defaultdict(list)
    for event in events:
        assert NEEDED[event["ph"]] | {"name", "pid", "tid"} <= event.keys()
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in rows.values():
        assert all(start < end for start, end in slices)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(sorted(slices)))
    assert rows.keys() <= {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}


def test_counters_and_rows_have_the_run_s_numbers(folder, events):
    run = load_run(folder)
    counted = [event["args"] for event in events if event["ph"] == "C" and "accepted" in event["args"]]
    done = run.requests
    assert sum(each["accepted"] for each in counted) == done["accepted_tokens"].sum() > 0
    assert sum(each["rejected"] for each in counted) == (done["draft_tokens"] - done["accepted_tokens"]).sum() > 0
    cancelled = [event["name"] for event in events if event["ph"] == "i"]
    assert cancelled == done["rejected_reason"][done["rejected_reason"] != ""].tolist()
    first = next(event for event in events if event["name"] == "first token")
    assert first["dur"] == pytest.approx(1e6 * done["ttft_s"][first["tid"]])


def test_a_run_without_passes_says_what_it_lacks(tmp_path, capsys):
    simulate(**RUN, out=tmp_path / "one")
    assert main(["trace-events", str(tmp_path / "one")]) == 2
    assert "expected a run with passes=true" in capsys.readouterr().err
    assert not (tmp_path / "one" / "trace_events.json").exists()
