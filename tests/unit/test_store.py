"""The run folder: same bytes for same inputs, never half a run, errors a person can act on; its trace events."""

import json
import os
import shutil
import subprocess
import sys
from collections import defaultdict
from itertools import pairwise
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from specsim import load_run, simulate
from specsim.cli import main
from specsim.config.configured import Configured
from specsim.errors import SpecsimError
from specsim.files.staging import DAY_S, in_one_step, remove_stale, staging_path
from specsim.metrics.requests import PASS_COLUMNS, REQUEST_COLUMNS, SPENT_COLUMNS
from specsim.store import runs
from specsim.store.runs import damage, is_run, read_run, remove_run, run_folders, write_run
from tests.files import contents
from tests.made import columns_of, refusal

FILES = {"metrics.json", "requests.parquet", "config.yaml", "provenance.json"}


def table(rows=3):
    emitted, nothing = np.array([3, 1, 5])[:rows], np.full(rows, np.nan)
    first_s = 0.5 + np.arange(rows)
    told = {"arrival_s": first_s - 0.5, "prompt_tokens": np.full(rows, 7), "tpot_slo_s": nothing, "ttft_slo_s": nothing}
    done = {"emitted_tokens": emitted, "first_token_s": first_s, "finish_s": first_s + 0.03 * (emitted - 1)}
    return columns_of(("chat",), {rows - 1: "kv_capacity"}, **told, **done, longest_pause_s=nothing)


def passes(rows=4):
    return {name: np.arange(rows) % 2 for name in PASS_COLUMNS}


def parts(**changes):
    given = {
        "table": table(),
        "metrics": {"completed": 3, "mean_tpot_ms": None, "specsim": {"schema_version": 2, "classes": {}}},
        "made_of": Configured({}, {"seed": 0, "choices": {"scheduler": "adaserve"}}),
        "provenance": {"host": "here", "iterations_per_wall_s": 1234.5},
        "passes": None,
    }
    return given | changes


@pytest.fixture
def run(tmp_path):
    write_run(tmp_path / "run", **parts())
    return tmp_path / "run"


def test_tables_written_in_parts_are_read_as_one_and_have_the_types_of_the_schema(tmp_path, monkeypatch):
    monkeypatch.setattr(runs, "GROUP_ROWS", 2)
    monkeypatch.chdir(tmp_path)
    folder = Path("a:b/run")
    write_run(folder, **parts(passes=passes()))
    for name, types in (("requests.parquet", REQUEST_COLUMNS | SPENT_COLUMNS), ("passes.parquet", PASS_COLUMNS)):
        schema = pq.read_schema(folder / name)
        on_disk = {field.name: str(field.type).replace("double", "float64") for field in schema}
        assert list(on_disk.items()) == list(types.items())
        assert schema.metadata == {b"specsim_schema_version": b"2"}
        assert pq.read_metadata(folder / name).num_row_groups == 2
    stored = read_run(folder)
    pd.testing.assert_frame_equal(stored.requests, table().frame(), check_dtype=False)
    pd.testing.assert_frame_equal(stored.passes, pd.DataFrame(passes()), check_dtype=False)


def test_replacing_a_run_keeps_foreign_files_and_drops_old_passes(tmp_path):
    folder = tmp_path / "run"
    write_run(folder, **parts(passes=passes()))
    (folder / "notes.txt").write_text("mine")
    write_run(folder, **parts(table=table(2)))
    assert {path.name for path in folder.iterdir()} == FILES | {"notes.txt"}
    assert len(read_run(folder).requests) == 2


@pytest.mark.parametrize("existing", [False, True])
def test_failure_while_writing_changes_nothing(tmp_path, monkeypatch, existing):
    folder = tmp_path / "run"
    if existing:
        write_run(folder, **parts())
    before = contents(folder) if existing else None
    with pytest.raises(SpecsimError, match=r"metrics\.json cannot hold NaN"):
        write_run(folder, **parts(metrics={"completed": float("nan")}))
    monkeypatch.setattr(pq.ParquetWriter, "write_table", Mock(side_effect=OSError(28, "No space left on device")))
    with pytest.raises(SpecsimError, match=r"cannot write run folder '.*run': No space left on device$"):
        write_run(folder, **parts(metrics={"specsim": {"schema_version": 2, "classes": {}}}))
    assert (contents(folder) if existing else None) == before
    assert [path.name for path in tmp_path.iterdir()] == (["run"] if existing else [])


def test_interruption_while_replacing_leaves_no_mixture(run, monkeypatch):
    replace, placed = Path.replace, []

    def interrupted(self, target):
        if placed:
            raise KeyboardInterrupt
        placed.append(target)
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_run(run, **parts(table=table(2)))
    assert (len(placed), is_run(run), list(run.glob(".*"))) == (1, False, [])


def test_a_flipped_bit_of_provenance_is_found_wherever_it_is(run):
    """It holds the checksum of all its own content but that checksum; what does not parse is damaged, too."""
    path = run / "provenance.json"
    whole = path.read_bytes()
    assert damage(run) is None
    for place in range(len(whole)):
        path.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert damage(run) == "provenance.json is damaged", whole[place:]
        path.write_bytes(whole)


@pytest.mark.parametrize("name", sorted(FILES))
def test_a_pipe_in_the_place_of_a_file_does_not_hang(run, name):
    (run / name).unlink()
    os.mkfifo(run / name)
    assert name in refusal(read_run, run)


def test_parquet_damaged_since_the_run_was_read_is_found_at_access(run):
    stored, path = read_run(run), run / "requests.parquet"
    path.write_bytes(path.read_bytes()[:-100])
    assert "requests.parquet' is damaged: not a Parquet file" in refusal(lambda: stored.requests)


NOW_S = 1_000_000_000.0


def test_a_file_takes_its_place_whole_or_not_at_all(tmp_path):
    file = tmp_path / "new" / "table.csv"
    with in_one_step(file) as partial:
        partial.write_text("one")
        assert not file.exists()
    assert file.read_text() == "one"
    with pytest.raises(ZeroDivisionError), in_one_step(file) as partial:
        partial.write_text(f"tw{1 / 0}")
    with pytest.raises(SpecsimError, match=r"^.*table.csv: cannot be written: No space left"), in_one_step(file):
        raise OSError(28, "No space left on device")
    assert (file.read_text(), list(file.parent.iterdir())) == ("one", [file])


def test_metrics_of_something_else(run):
    (run / "metrics.json").write_text("[1]")
    assert "holds list; expected a mapping of keys to values" in refusal(read_run, run)
    (run / "metrics.json").write_text('{"specsim": {"schema_version": 3}}')
    assert "has schema_version 3; this specsim reads 2" in refusal(read_run, run)
    (run / "metrics.json").write_text("[" * 100_000)
    assert "metrics.json' is damaged: maximum recursion depth" in refusal(read_run, run)


def test_a_removed_run_leaves_files_of_others(run):
    (run / "mine.txt").write_text("mine")
    remove_run(run)
    assert [path.name for path in run.iterdir()] == ["mine.txt"]
    (run / "mine.txt").unlink()
    write_run(run, **parts())
    remove_run(run)
    assert not run.exists()


def left(folder, pid, host=None):
    """Leave a complete run as a kill between writing and renaming does, begun just now."""
    path = staging_path(folder)
    word, here, _, rest = path.name.split("-", 3)
    path = path.with_name(f"{word}-{host or here}-{pid}-{rest}")
    write_run(folder / "whole", **parts())
    shutil.move(folder / "whole", path)
    os.utime(path, (NOW_S, NOW_S))
    return path


def test_what_a_process_left_is_removed_once_it_is_gone_or_if_of_another_host_after_a_day(tmp_path):
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()
    write_run(tmp_path / "run", **parts())
    alive, stays = left(tmp_path, os.getpid()), {tmp_path / "run"}
    for name in (".mine.tmp", "specsim-a-1-00000000.tmp", ".specsim-notes"):
        (tmp_path / name).write_text("mine")
        stays.add(tmp_path / name)
    left(tmp_path, process.pid)
    inside, elsewhere = left(tmp_path / "run", process.pid), left(tmp_path, process.pid, host="elsewhere")
    remove_stale(tmp_path, NOW_S + DAY_S - 1)
    assert not inside.exists()
    assert {*tmp_path.iterdir()} == stays | {alive, elsewhere}
    assert run_folders(tmp_path) == [tmp_path / "run"]
    for later_s in (NOW_S + DAY_S + 1, NOW_S * 100):
        remove_stale(tmp_path, later_s)
        assert {*tmp_path.iterdir()} == stays


RUN = {"trace": "poisson", "rps": 20, "requests": 40, "scheduler": "vllm_spec", "replicas": 2, "progress": False}
NEEDED = {"X": {"ts", "dur"}, "C": {"ts", "args"}, "M": {"args"}, "i": {"ts", "s"}}


def test_trace_events_have_what_the_format_asks_for_and_the_run_s_numbers(tmp_path):
    simulate(**RUN, passes=True, out=tmp_path / "one", timeout_s=2)
    assert main(["trace-events", str(tmp_path / "one")]) == 0
    events = json.loads((tmp_path / "one" / "trace_events.json").read_text())["traceEvents"]
    assert {event["ph"] for event in events} == {"X", "C", "M", "i"}
    rows = defaultdict(list)
    for event in events:
        assert NEEDED[event["ph"]] | {"name", "pid", "tid"} <= event.keys()
        if event["ph"] == "X":
            rows[event["pid"], event["tid"]].append((event["ts"], event["ts"] + event["dur"]))
    for slices in rows.values():
        assert all(start < end for start, end in slices)
        assert all(end <= start + 1e-3 for (_, end), (start, _) in pairwise(sorted(slices))), "slices do not overlap"
    assert rows.keys() <= {(event["pid"], event["tid"]) for event in events if event["name"] == "thread_name"}
    done = load_run(tmp_path / "one").requests
    counted = [event["args"] for event in events if event["ph"] == "C" and "accepted" in event["args"]]
    assert sum(each["accepted"] for each in counted) == done["accepted_tokens"].sum() > 0
    assert sum(each["rejected"] for each in counted) == (done["draft_tokens"] - done["accepted_tokens"]).sum() > 0
    cancelled = [event["name"] for event in events if event["ph"] == "i"]
    assert cancelled == done["rejected_reason"][done["rejected_reason"] != ""].tolist()
    first = next(event for event in events if event["name"] == "first token")
    assert first["dur"] == pytest.approx(1e6 * done["ttft_s"][first["tid"]])


def test_a_run_without_passes_says_what_it_lacks(run, capsys):
    assert main(["trace-events", str(run)]) == 2
    assert "expected a run with passes=true" in capsys.readouterr().err
    assert {path.name for path in run.iterdir()} == FILES
