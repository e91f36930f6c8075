"""A command prints lines, and none steers the terminal, whatever a stranger's run, trace or plug-in holds.

What it prints into may be a full disk, a reader that has gone, a closed stream, or of an old encoding.
"""

import io
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import specsim
from specsim.cli import main
from specsim.commands.parser import written
from specsim.errors import all_printable, one_line, printable
from specsim.files.yaml_file import shipped
from specsim.runs.processes import Worst
from tests.files import reseal

CODES = "\x1b]0;pwned\x07\x1b[31mRED\x1b[0m\r\nnote: all good\x9b1m\u202e\u2028x"
SEEN = r"\x1b]0;pwned\x07\x1b[31mRED\x1b[0m note: all good\x9b1m\u202e x"
SWEEP = ["scheduler=continuous", "rps=1,2", "trace=poisson", "requests=20", "profile=llama8b_1b_h100"]
TRACE = """\
from specsim.plugin import trace_of


class Trace:
    drawn = ()

    def read(self, seed, requests):
        columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 5], "output_tokens": [5, 5]}
        return trace_of(columns, CODES)
"""


pytestmark = pytest.mark.usefixtures("here", "unrendered")


@pytest.fixture
def evil(here, capsys):
    """Return the folder of a stranger's sweep: every text in it that nothing depends on has codes."""
    assert main(["run", "-m", *SWEEP, "out=evil"]) == 0
    for folder in Path("evil").glob("rps*"):
        metrics = json.loads((folder / "metrics.json").read_bytes())
        block = metrics["specsim"]
        block["classes"] = {CODES: block["classes"]["chat"]}
        block["worst_class"] = CODES
        block["rejected"] = {CODES: 3}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        reseal(folder, notes=[CODES])
    capsys.readouterr()
    return Path("evil")


@pytest.fixture
def said(capsys):
    """Return a function that gives what a command prints, of which every character is printable."""

    def printed(*words):
        main(list(words))
        told = capsys.readouterr()
        text = told.out + told.err
        assert all(each.isprintable() for each in text.split("\n")), text
        # A traceback shows a text as it is, line by line.
        assert "--debug" in words or not any(line.startswith("note: all good") for line in text.split("\n"))
        return text

    return printed


def test_a_strangers_runs_are_shown_without_codes(evil, said):
    assert SEEN in said("sweep", "status", str(evil))
    assert "RED" in said("run", "-m", *SWEEP, f"out={evil}")
    said("plot", str(evil))
    said("plot", *map(str, sorted(evil.glob("rps*"))))
    assert repr(specsim.load_run(next(evil.glob("rps*")))).isprintable()


def test_the_trace_of_a_plugin_is_named_without_codes(said):
    Path("coded.py").write_text(f"CODES = {CODES!r}\n{TRACE}")
    Path("t.yaml").write_text("_target_: coded.Trace\n")
    words = ["plugins=[./coded.py]", "trace=./t.yaml", "scheduler=continuous", "profile=llama8b_1b_h100"]
    assert SEEN in said("run", *words, "out=run")
    assert SEEN in said("run", "-m", *words, "seed=0,1", "out=runs")
    said("plot", "run")


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("sweep", [[], ["-m", "seed=0,1"]])
def test_an_error_of_a_plugin_is_told_without_codes(sweep, debug, said):
    raises = f"raise ValueError({CODES!r})"
    Path("coded.py").write_text(f"class S:\n    def step(self, view):\n        {raises}\n        yield\n")
    Path("s.yaml").write_text("_target_: coded.S\n")
    words = ["plugins=[./coded.py]", "scheduler=./s.yaml", "trace=poisson", "requests=5", "out=run"]
    assert "RED" in said("run", *sweep, *words, *debug)


def test_a_file_of_a_group_is_shown_without_codes(said):
    values = yaml.safe_load((shipped("conf") / "trace" / "poisson.yaml").read_text())
    Path("t.yaml").write_text(yaml.safe_dump({**values, "description": CODES, "name": CODES}))
    said("run", "--cfg", "job", "trace=./t.yaml")
    said("run", "trace=./t.yaml", "requests=3", "out=run")


def test_a_line_is_one_line():
    assert printable(CODES) == SEEN
    assert printable("plain: \u00e9 \u4e2d") == "plain: \u00e9 \u4e2d"
    assert one_line("x" * 5000).count("x") == 2000
    assert str(Worst(0.5, CODES)) == f"{SEEN} 50.0%"
    assert all_printable({CODES: [CODES, 1.5, None, {"a": CODES}]}) == {SEEN: [SEEN, 1.5, None, {"a": SEEN}]}


RUN = "run trace=poisson requests=3 acceptance=bernoulli out=here"
FULL = "specsim: stdout cannot be written: No space left on device\n"


@pytest.fixture
def shell(monkeypatch):
    """Return a function that runs `specsim` in a shell, with what stands behind it, and holds that nothing crashed."""
    monkeypatch.delenv("PYTHONUNBUFFERED", raising=False)

    def run(command, behind):
        line = f"{sys.executable} -m specsim {command} {behind}"
        done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, timeout=60)
        assert "Traceback" not in done.stderr
        assert "Exception ignored" not in done.stderr
        return done

    return run


@pytest.mark.parametrize("command", ["list schedulers", "--help", RUN])
def test_a_full_stdout_is_one_line_and_a_run_is_stored(shell, command):
    done = shell(command, "> /dev/full")
    assert (done.returncode, done.stderr) == (2, FULL)
    assert Path("here/metrics.json").is_file() == (command == RUN)


@pytest.mark.parametrize("command", ["list", pytest.param(RUN, marks=pytest.mark.slow)])
def test_a_reader_that_has_gone_is_no_mistake(shell, command):
    assert shell(command, "2>said | true; echo ${PIPESTATUS[0]}; cat said").stdout == "0\n"
    assert shell(command, "2>said > >(exec true); echo $?; cat said").stdout == "0\n"


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
