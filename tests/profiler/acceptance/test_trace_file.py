"""The file goes out and comes back; a reader that needs no torch refuses what is not a recording."""

import json
import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from profiler.acceptance.rows import AcceptanceRows, RecordedBatches
from profiler.acceptance.trace_file import RecordedTrace, read_acceptance_trace, write_acceptance_trace
from tests.made import refusal
from tests.profiler.acceptance.traces import COLUMNS, small_trace


def test_what_is_written_is_read(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    acceptance_trace, file = small_trace(), Path("a:b.parquet/c.parquet")
    write_acceptance_trace(file, acceptance_trace)
    back = read_acceptance_trace(file)
    assert (back.about, back.categories) == (acceptance_trace.about, acceptance_trace.categories)
    for name in ("category", "sequence", "position", "path", "rank"):
        assert np.array_equal(getattr(back, name), getattr(acceptance_trace, name))
    assert np.allclose(back.confidence, acceptance_trace.confidence, atol=1e-3)
    assert np.allclose(back.target_probability, acceptance_trace.target_probability, atol=1e-3)
    assert np.array_equal(back.overlap, acceptance_trace.overlap.astype(np.float32), equal_nan=True)
    assert list(file.parent.iterdir()) == [file]


def changed(name: str, row: int | list[int], value: object) -> RecordedTrace:
    column = getattr(small_trace(), name).copy()
    column[row] = value
    return replace(small_trace(), **{name: column})


def swapped() -> RecordedTrace:
    order = [1, 0, *range(2, len(small_trace()))]
    return replace(small_trace(), **{name: getattr(small_trace(), name)[order] for name in COLUMNS})


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        (changed("confidence", 0, [2.0, 0.1, 0.0]), "confidence: .* expected probabilities"),
        (changed("confidence", 0, [0.1, 0.2, 0.0]), "confidence: .* expected the likeliest first"),
        (changed("rank", 0, 4), "rank: 4; expected 0 to 3"),
        (changed("path", [3, 4], 1), "category: expected rows of each"),
        (changed("path", -1, -2), "path: -2; expected -1, or 1, 2, ..."),
        (changed("path", -1, 4), "path: expected -1 or 1 to 3"),
        (changed("rank", -1, 0), "rank: expected 3 off the path"),
        (swapped(), "expected them sorted"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_row_that_cannot_be_is_refused(wrong, said, tmp_path):
    write_acceptance_trace(tmp_path / "a.parquet", wrong)
    assert re.search(said, refusal(read_acceptance_trace, tmp_path / "a.parquet"))


def test_files_that_are_no_recordings_are_refused(tmp_path):
    path = tmp_path / "a.parquet"
    write_acceptance_trace(path, small_trace())
    table = pq.read_table(path)

    def said(content: pa.Table) -> str:
        pq.write_table(content, path)
        return refusal(read_acceptance_trace, path)

    def told(about: object) -> str:
        return said(table.replace_schema_metadata({b"specsim": json.dumps(about).encode()}))

    about = json.loads(table.schema.metadata[b"specsim"])
    assert "is no recording" in said(table.replace_schema_metadata({}))
    assert "is no recording" in said(table.replace_schema_metadata({b"specsim": b"[" * 100_000}))
    assert "format 9; this specsim reads format 1" in told(about | {"format": 9})
    assert "metadata lacks 'drafter'" in told({key: about[key] for key in about if key != "drafter"})
    assert "column 'rank' is missing" in said(table.drop_columns(["rank"]))
    assert "columns are not those of" in said(table.drop_columns(["overlap"]))
    assert "holds no rows" in said(table.slice(0, 0))
    absent = refusal(read_acceptance_trace, tmp_path / "b.parquet")
    assert absent.endswith(f"no such recording; did you mean '{path}'?")


def rows(tokens: int) -> AcceptanceRows:
    count = np.arange(tokens)
    none = np.zeros((tokens, 2))
    return AcceptanceRows(count, count - count - 1, none + 0.5, count % 3, none, np.full(tokens, np.nan), count)


def same(ours: AcceptanceRows, theirs: AcceptanceRows) -> bool:
    return all(np.array_equal(mine, other, equal_nan=True) for mine, other in zip(ours, theirs, strict=True))


def test_a_part_with_a_byte_flipped_is_whole_or_passed_over(tmp_path):
    kept = {("chat", 0): rows(5), ("code", 3): rows(2)}
    parts = RecordedBatches(tmp_path / "a.parquet", {"seed": 0})
    parts.add({("math", 7): rows(3)})
    parts.add(kept)
    (file,) = parts.folder.glob("*1.npz")
    whole, passed_over = file.read_bytes(), 0
    for place in range(0, len(whole), 7):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        found = parts.read()
        assert same(found.pop(("math", 7)), rows(3))
        assert all(same(each, kept[text]) for text, each in found.items()), place
        passed_over += not found
    assert passed_over > len(whole) / 28
    file.write_bytes(whole)
    assert len(parts.read()) == 3


@pytest.mark.parametrize("content", ["[1]", "[" * 100_000, '{"seed": '])
def test_settings_that_are_none_are_one_line(content, tmp_path):
    folder = RecordedBatches(tmp_path / "a.parquet", {"seed": 0}).folder
    (folder / "settings.json").write_text(content)
    said = refusal(RecordedBatches, tmp_path / "a.parquet", {"seed": 0})
    assert re.search(r"a.parquet.parts: (cannot be used|its settings are no mapping)", said)
    assert (folder / "settings.json").read_text() == content
