"""The names of searches in one folder: the same search has its own again, another never takes it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specsim.errors import SpecsimError
from specsim.metrics.found import name_in


def test_each_search_has_a_name_and_keeps_it(tmp_path: Path) -> None:
    names = [name_in(tmp_path / "new", identity, {"of": "all"}) for identity in ("a", "b", "c", "b", "a")]
    assert names == ["find", "find-2", "find-3", "find-2", "find"]
    assert json.loads((tmp_path / "new/find-2.json").read_text()) == {"identity": "b", "of": "all"}


@pytest.mark.parametrize(("file", "text"), [("find.csv", "rows"), ("find.png", ""), ("find.json", '{"identity": ')])
def test_files_that_tell_of_no_search_are_anothers(tmp_path: Path, file: str, text: str) -> None:
    (tmp_path / file).write_text(text)
    assert name_in(tmp_path, "a", {}) == "find-2"
    assert (tmp_path / file).read_text() == text


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecsimError, match="file: cannot be written"):
        name_in(tmp_path / "file", "a", {})
