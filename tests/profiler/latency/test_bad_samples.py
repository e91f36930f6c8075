"""A fit of samples that are not what a finished sweep wrote: one line each."""

from __future__ import annotations

import json
import shutil

import pytest

from profiler.latency.points import Point
from profiler.latency.samples import METADATA, SampleFile, read_samples
from specsim.cli import main
from specsim.errors import SpecsimError
from tests.profiler.latency.made import FACTS, sample

ONE = Point("decode", 1, 128, 1)


def written(path, facts=FACTS, **changes):
    file = SampleFile(path, facts)
    file.add(sample(ONE, **changes))
    file.write()
    return path


def with_metadata(path, text):
    """Replace the metadata of a samples file."""
    import pyarrow.parquet as pq

    pq.write_table(pq.read_table(path).replace_schema_metadata({METADATA: text}), path)


def with_null(path, key):
    """Replace one column of a samples file by nulls."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    place = table.schema.names.index(key)
    field = table.schema.field(place)
    pq.write_table(table.set_column(place, field, pa.nulls(len(table), field.type)), path)


def fit_says(capsys, *paths):
    assert main(["profile", "fit", *map(str, paths), "--out", str(paths[0].with_name("x.yaml"))]) == 2
    err = capsys.readouterr().err
    assert err.count("\n") == 1
    return err


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("median_s", float("nan"), "row 0: median_s: nan; expected a number above 0 where the status is ok"),
        ("median_s", 0.0, "row 0: median_s: 0.0; expected a number above 0"),
        ("all_reduce_s", -1.0, "row 0: all_reduce_s: -1.0; expected a number of 0 or more"),
        ("sample_s", float("inf"), "row 0: sample_s: inf; expected a number of 0 or more"),
        ("kind", "catchup", "row 0: kind: 'catchup'; expected one of decode, verify, prefill, mixed"),
        ("role", "drafter", "row 0: role: 'drafter'; expected one of target, draft"),
        ("mode", "captured", "row 0: mode: 'captured'; expected one of graph, eager"),
    ],
)
def test_numbers_that_are_none(tmp_path, capsys, key, value, told):
    assert told in fit_says(capsys, written(tmp_path / "s.parquet", **{key: value}))


def test_nulls(tmp_path, capsys):
    with_null(written(tmp_path / "s.parquet"), "median_s")
    assert "row 0: median_s: null; expected a value" in fit_says(capsys, tmp_path / "s.parquet")


def test_a_skipped_point_needs_no_numbers(tmp_path):
    path = written(tmp_path / "s.parquet", median_s=float("nan"), status="out of memory")
    assert [each.status for each in read_samples(path)[1]] == ["out of memory"]


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"models": {}}, "metadata: models.target.name: missing; expected a finished sweep of both models"),
        ({"models": {"target": FACTS["models"]["target"]}}, "metadata: models.draft.name: missing"),
        ({"attention_error": {"target": 0.1}}, "metadata: attention_error.draft: missing"),
        ({"knee_tokens": None}, "metadata: knee_tokens: missing"),
    ],
)
def test_facts_that_are_missing(tmp_path, capsys, changes, told):
    assert told in fit_says(capsys, written(tmp_path / "s.parquet", {**FACTS, **changes}))


@pytest.mark.parametrize(
    ("text", "told"), [("{", "metadata is not JSON: "), ("[1]", "samples of another version of specsim")]
)
def test_metadata_that_is_none(tmp_path, capsys, text, told):
    with_metadata(written(tmp_path / "s.parquet"), text)
    assert told in fit_says(capsys, tmp_path / "s.parquet")


def test_a_column_of_another_type(tmp_path):
    import pyarrow.parquet as pq

    path = written(tmp_path / "s.parquet")
    table = pq.read_table(path)
    place = table.schema.names.index("median_s")
    pq.write_table(table.set_column(place, "median_s", table["median_s"].cast("string")), path)
    with pytest.raises(SpecsimError, match="holds no latency samples"):
        read_samples(path)


def test_the_same_samples_twice(tmp_path, capsys):
    path = written(tmp_path / "s.parquet")
    shutil.copy(path, tmp_path / "copy.parquet")
    for again in (path, tmp_path / "copy.parquet"):
        told = fit_says(capsys, path, again)
        assert f"{again}: target {ONE.key} was in a file before; expected each samples file once" in told


def test_metadata_is_written_as_it_is_read(tmp_path):
    import pyarrow.parquet as pq

    path = written(tmp_path / "s.parquet")
    assert json.loads(pq.read_schema(path).metadata[METADATA]) == {"format": 3, **FACTS}
