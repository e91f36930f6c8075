"""What a command prints into: a full disk, a reader that has gone, closed streams, an old encoding."""

import io
import subprocess
import sys

import pytest

from specsim.commands.parser import written

RUN = "run trace=poisson requests=3 acceptance=bernoulli out=here"
FULL = "specsim: stdout cannot be written: No space left on device\n"


@pytest.fixture
def shell(tmp_path, monkeypatch):
    """Return a function that runs `specsim` in a shell, with what stands behind it, and holds that nothing crashed."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def run(command, behind):
        line = f"{sys.executable} -m specsim {command} {behind}"
        done = subprocess.run(["bash", "-c", line], cwd=tmp_path, capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        return done

    return run


@pytest.mark.parametrize("command", ["list schedulers", "--help"])
def test_a_full_stdout_is_one_line(shell, command):
    done = shell(command, "> /dev/full")
    assert (done.returncode, done.stderr) == (2, FULL)


def test_a_run_whose_table_cannot_be_printed_is_stored(shell, tmp_path):
    done = shell(RUN, "> /dev/full")
    assert (done.returncode, done.stderr) == (2, FULL)
    assert (tmp_path / "here" / "metrics.json").is_file()


@pytest.mark.parametrize("command", ["list", pytest.param(RUN, marks=pytest.mark.slow)])
def test_a_reader_that_has_gone_is_no_mistake(shell, command):
    done = shell(command, "2>said | true; echo ${PIPESTATUS[0]}; cat said")
    assert done.stdout == "0\n"
    slow = shell(command, "2>said > >(exec true); echo $?; cat said")
    assert slow.stdout == "0\n"


@pytest.mark.parametrize(
    ("command", "code"), [("list", 0), pytest.param(RUN, 0, marks=pytest.mark.slow), ("list nope", 2)]
)
@pytest.mark.parametrize("closed", [">&- 2>&-", "2>/dev/full"])
def test_a_closed_stream_changes_no_code(shell, command, code, closed):
    assert shell(command, closed).returncode == code


def test_what_an_encoding_lacks_is_written_as_an_escape(monkeypatch):
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    assert written(lambda: print("ünï") or 0) == 0
    assert stream.buffer.getvalue() == b"\\xfcn\\xef\n"


@pytest.mark.parametrize("words", [["{}"], ["run", "seed={}"]])
def test_a_mistake_is_a_line_that_a_terminal_shows_and_does_not_obey(refused, words):
    said = refused(*(word.format("\x1b[31mred\nx") for word in words))
    assert len(said.splitlines()) == 1
    assert "\x1b" not in said
    assert "\\x1b" in said
