"""Finished batches: whatever happened to a file of them costs that batch alone."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from profiler.acceptance.rows import Batches, TapeRows
from specsim.errors import SpecsimError


def rows(tokens: int) -> TapeRows:
    count = np.arange(tokens)
    none = np.zeros((tokens, 2))
    return TapeRows(count, count - count - 1, none + 0.5, count % 3, none, np.full(tokens, np.nan), count)


def same(ours: TapeRows, theirs: TapeRows) -> bool:
    return all(np.array_equal(mine, other, equal_nan=True) for mine, other in zip(ours, theirs, strict=True))


def test_a_part_with_a_byte_flipped_is_whole_or_passed_over(tmp_path: Path) -> None:
    kept = {("chat", 0): rows(5), ("code", 3): rows(2)}
    parts = Batches(tmp_path / "a.parquet", {"seed": 0})
    parts.add(0, {("math", 7): rows(3)})
    parts.add(1, kept)
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
def test_settings_that_are_none_are_one_line(content: str, tmp_path: Path) -> None:
    folder = Batches(tmp_path / "a.parquet", {"seed": 0}).folder
    (folder / "settings.json").write_text(content)
    with pytest.raises(SpecsimError, match=r"a.parquet.parts: (cannot be used|its settings are no mapping)") as caught:
        Batches(tmp_path / "a.parquet", {"seed": 0})
    assert "\n" not in str(caught.value)
    assert (folder / "settings.json").read_text() == content
