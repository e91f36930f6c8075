"""What a session keeps: rows that a kill cannot spoil, machines, and one archive of all of it."""

import os
import zipfile
from unittest.mock import Mock

import pytest

from tests.made import refusal
from tools.gpu_session.state import OtherGpu, Row, State, pack, read_state, unpack

HERE = {"hardware": "NVIDIA H100", "driver": "580.1", "host": "EPYC, Linux 6", "torch": "2.11"}


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path / "state", {"one": ["--tp", "1"]})
    made.write()
    return made


def test_a_row_that_a_kill_cut_short_is_left_out(tmp_path):
    journal = State(tmp_path, {})
    journal.add(Row("peaks", "copy", "rate", 3.0, "TB/s"))
    with (tmp_path / "rows.jsonl").open("a") as file:
        file.write('{"check": "peaks", "ca')
    assert journal.rows() == [Row("peaks", "copy", "rate", 3.0, "TB/s")]
    journal.add(Row("peaks", "copy", "rate", 4.0))
    assert [each.value for each in journal.rows()] == [3.0, 4.0]


def test_a_check_that_took_its_process_with_it_twice_is_not_tried_again(tmp_path):
    journal = State(tmp_path, {})
    journal.begin("spin")
    assert journal.ended() == set()
    journal.begin("spin")
    journal.begin("peaks")
    journal.end("peaks")
    assert journal.ended() == {"spin", "peaks"}


@pytest.mark.parametrize("text", ["[1]", '{"format": 2, "pairs": {}}'])
def test_a_file_that_is_no_sessions(state, text):
    (state.folder / "session.json").write_text(text)
    assert "session.json: holds no session; expected what `python -m tools" in refusal(read_state, state.folder)


def test_another_driver_is_a_line_and_recorded_and_another_gpu_is_refused(state, capsys):
    state.join(HERE)
    state.join({**HERE, "driver": "580.2"})
    state.join({**HERE, "driver": "580.2"})
    assert capsys.readouterr().err == "note: the session goes on under driver '580.2', before '580.1'\n"
    assert [each["driver"] for each in read_state(state.folder).machines] == ["580.1", "580.2"]

    with pytest.raises(OtherGpu, match="a session on 'NVIDIA H100', and this is 'NVIDIA H200'; expected another --st"):
        state.join({**HERE, "hardware": "NVIDIA H200"})


def test_a_large_session_leaves_figures_and_old_log_behind(state, monkeypatch, tmp_path):
    monkeypatch.setattr("tools.gpu_session.state.MOST_BYTES", 5000)
    monkeypatch.setattr("tools.gpu_session.state.MOST_LOG_BYTES", 10)
    (state.folder / "one-error.png").write_bytes(os.urandom(9000))
    (state.folder / "session.log").write_bytes(b"old" * 100 + b"0123456789")
    assert pack(state.folder, tmp_path / "s.zip") < 5000
    with zipfile.ZipFile(tmp_path / "s.zip") as packed:
        assert packed.namelist() == ["session.json", "session.log"]
        assert packed.read("session.log") == b"0123456789"


def test_a_write_that_breaks_leaves_the_archive_before_it(state, tmp_path, monkeypatch):
    pack(state.folder, tmp_path / "s.zip")
    before = (tmp_path / "s.zip").read_bytes()
    monkeypatch.setattr(zipfile.ZipFile, "writestr", Mock(side_effect=OSError(28, "No space left on device")))
    assert "s.zip: cannot be written: No space left on device" in refusal(pack, state.folder, tmp_path / "s.zip")
    assert (tmp_path / "s.zip").read_bytes() == before
    assert sorted(each.name for each in tmp_path.iterdir()) == ["s.zip", "state"]


def test_what_is_no_archive_of_a_session_is_refused(state, tmp_path):
    (tmp_path / "torn.zip").write_bytes(b"PK torn")
    said = refusal(unpack, tmp_path / "torn.zip", tmp_path / "there")
    assert said.endswith("torn.zip: cannot be read as an archive: File is not a zip file")
    for name, names in (("other.zip", ["a.txt"]), ("sly.zip", ["session.json", "../out.txt"])):
        with zipfile.ZipFile(tmp_path / name, "w") as made:
            for each in names:
                made.writestr(each, "{}")
        assert "no archive of `python -m tools.gpu_session`" in refusal(unpack, tmp_path / name, tmp_path / "there")
    assert not (tmp_path / "there").exists()
    pack(state.folder, tmp_path / "s.zip")
    said = refusal(unpack, tmp_path / "s.zip", state.folder)
    assert "holds a session; expected an empty folder, or no --resume" in said
