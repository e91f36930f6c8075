"""Files of samples: kept, gone on with, and refused in one line where they are not what a finished sweep wrote."""

import json
import math
import shutil
from dataclasses import asdict
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profiler.latency.points import GridPoint
from profiler.latency.samples import SampleFile, read_samples
from specsim.errors import SpecsimError
from tests.made import refusal
from tests.profiler.latency.made import FACTS, sample, written

ONE, TWO = GridPoint("decode", 1, 128, 1), GridPoint("verify", 2, 128, 4)
OF_ONE = [sample(ONE)]


def test_what_is_added_is_found_by_the_next_sweep(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    path = Path("a:b/s.parquet")
    first = SampleFile(path, FACTS)
    first.add(sample(ONE, host_s=0.001))
    first.add(sample(TWO, status="out of memory", seconds=float("nan")))
    first.write()
    again = SampleFile(path, FACTS)
    assert again.names == {("target", ONE.key, "graph"), ("target", TWO.key, "graph")}
    assert again.samples[0] == first.samples[0]
    assert math.isnan(again.samples[1].median_s)


def test_samples_reach_the_disk_without_being_told(tmp_path):
    seconds = iter([0.0, 1.0, 2.5, 2.6])
    file = SampleFile(tmp_path / "s.parquet", FACTS, clock=lambda: next(seconds))
    file.add(sample(ONE))
    assert not file.path.exists()
    file.add(sample(TWO))
    assert (len(read_samples(file.path)[1]), [each.name for each in tmp_path.iterdir()]) == (2, ["s.parquet"])


@pytest.mark.parametrize(("key", "value"), [("target", "bigger"), ("hardware", "Other card")])
def test_samples_of_another_pair_or_hardware_are_refused(tmp_path, key, value):
    path = written(tmp_path / "s.parquet", OF_ONE)
    with pytest.raises(SpecsimError, match=rf"holds samples of {key} .*, not '{value}'; expected another --samples"):
        SampleFile(path, {**FACTS, key: value})


def test_another_driver_is_a_line_and_both_are_recorded_and_what_a_sweep_found_is_kept(tmp_path, capsys):
    path = written(tmp_path / "s.parquet", OF_ONE)
    for driver in ("1.3", "1.2", "1.3"):
        file = SampleFile(path, {**FACTS, "driver": driver, "host": "EPYC, Linux 6"})
        assert file.facts["host"] == "EPYC, Linux 6"
        file.add(sample(TWO))
        file.write()
    assert read_samples(path)[0]["driver"] == "1.2; 1.3"
    assert capsys.readouterr().err == f"note: {path}: samples of driver '1.2' are joined by those of '1.3'\n"
    written(path, OF_ONE, assumptions=["before"])
    again = SampleFile(path, {**FACTS, "assumptions": ["now"], "models": {}})
    assert (again.facts["assumptions"], again.facts["models"]) == (["now"], FACTS["models"])


def test_files_that_are_none_or_of_another_version(tmp_path, monkeypatch):
    assert "no such samples file" in refusal(read_samples, tmp_path / "none.parquet")
    (tmp_path / "torn.parquet").write_bytes(b"PAR1 torn")
    assert "cannot be read as Parquet" in refusal(read_samples, tmp_path / "torn.parquet")
    pq.write_table(pa.table({"a": [1]}), tmp_path / "a.parquet")
    said = refusal(read_samples, tmp_path / "a.parquet")
    assert "holds no latency samples; expected a file of `specsim profile latency`" in said
    monkeypatch.setattr("profiler.latency.samples.FORMAT", 1)
    written(tmp_path / "s.parquet", OF_ONE)
    monkeypatch.undo()
    assert "samples of another version of specsim; expected format 3" in refusal(read_samples, tmp_path / "s.parquet")


def test_samples_without_means_are_read_and_their_means_are_unknown(tmp_path):
    written(tmp_path / "s.parquet", OF_ONE)
    table = pq.read_table(tmp_path / "s.parquet")
    told = json.loads(table.schema.metadata[b"specsim"]) | {"format": 2}
    old = table.drop_columns(["mean_s"]).replace_schema_metadata({b"specsim": json.dumps(told)})
    pq.write_table(old, tmp_path / "old.parquet")
    (now,), (then,) = (read_samples(tmp_path / name)[1] for name in ("s.parquet", "old.parquet"))
    assert math.isnan(then.mean_s)
    assert {**asdict(then), "mean_s": now.mean_s} == pytest.approx(asdict(now), nan_ok=True)


def test_a_sweep_that_measured_nothing_leaves_nothing_and_an_empty_file_is_anybodys(tmp_path):
    path = tmp_path / "s.parquet"
    SampleFile(path, FACTS).write()
    assert list(tmp_path.iterdir()) == []
    written(path, OF_ONE)
    pq.write_table(pq.read_table(path).slice(0, 0), path)
    assert SampleFile(path, {**FACTS, "target": "other", "flops_per_s": 1.0}).facts["flops_per_s"] == 1.0


@pytest.mark.parametrize(
    ("columns", "facts", "told"),
    [
        ({"median_s": float("nan")}, {}, "row 0: median_s: nan; expected a number above 0 where the status is ok"),
        ({"all_reduce_s": -1.0}, {}, "row 0: all_reduce_s: -1.0; expected a number of 0 or more"),
        ({"kind": "catchup"}, {}, "row 0: kind: 'catchup'; expected one of decode, verify, prefill, mixed"),
        ({}, {"models": {}}, "metadata: models.target.name: missing; expected a finished sweep of both models"),
        ({}, {"knee_tokens": None}, "metadata: knee_tokens: missing"),
    ],
)
def test_numbers_that_are_none_and_facts_that_are_missing(tmp_path, refused, columns, facts, told):
    written(tmp_path / "s.parquet", [sample(ONE, **columns)], **facts)
    (line,) = refused("profile", "fit", "s.parquet", "--out", "x.yaml").splitlines()
    assert told in line


def test_the_same_samples_twice(tmp_path, refused):
    shutil.copy(written(tmp_path / "s.parquet", OF_ONE), tmp_path / "copy.parquet")
    for again in ("s.parquet", "copy.parquet"):
        (told,) = refused("profile", "fit", "s.parquet", again, "--out", "x.yaml").splitlines()
        assert f"{again}: target {ONE.key} was in a file before; expected each samples file once" in told
