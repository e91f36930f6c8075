"""Whatever stands in a stranger's run, trace or plug-in: a command prints lines, and none steers the terminal."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import specsim
from specsim.cli import main
from specsim.errors import all_printable, one_line, printable
from specsim.runs.processes import Worst
from specsim.store.runs import sealed

CODES = "\x1b]0;pwned\x07\x1b[31mRED\x1b[0m\r\nnote: all good\x9b1m\u202e\u2028x"
SEEN = r"\x1b]0;pwned\x07\x1b[31mRED\x1b[0m note: all good\x9b1m\u202e x"
SWEEP = ["scheduler=continuous", "rps=1,2", "trace=poisson", "requests=20", "profile=llama8b_1b_h100"]
PACKAGE = Path(specsim.__file__).parent
TRACE = """\
from specsim.plugin import trace_of


class Trace:
    drawn = ()

    def read(self, seed, requests):
        columns = {"arrival_s": [0.0, 1.0], "prompt_tokens": [5, 5], "output_tokens": [5, 5]}
        return trace_of(columns, CODES)
"""


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Path:
    """Return the folder of a stranger's sweep: every text in it that nothing depends on has codes."""
    monkeypatch.chdir(tmp_path)
    assert main(["run", "-m", *SWEEP, "out=evil"]) == 0
    for folder in Path("evil").glob("rps*"):
        metrics = json.loads((folder / "metrics.json").read_bytes())
        block = metrics["specsim"]
        block["classes"] = {CODES: block["classes"]["chat"]}
        block["worst_class"] = CODES
        block["rejected"] = {CODES: 3}
        (folder / "metrics.json").write_text(json.dumps(metrics))
        told = json.loads((folder / "provenance.json").read_bytes())
        for seal in ("files", "sha256"):
            told.pop(seal)
        told["notes"] = [CODES]
        (folder / "provenance.json").write_text(json.dumps(sealed(told, folder)))
    capsys.readouterr()
    return Path("evil")


def said(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """Return what a command prints, of which every character is printable."""
    main(list(words))
    told = capsys.readouterr()
    text = told.out + told.err
    assert all(each.isprintable() for each in text.split("\n")), text
    # A traceback shows a text as it is, line by line.
    assert "--debug" in words or not any(line.startswith("note: all good") for line in text.split("\n"))
    return text


@pytest.mark.usefixtures("unrendered")
def test_a_strangers_runs_are_shown_without_codes(evil: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert SEEN in said(capsys, "sweep", "status", str(evil))
    assert "RED" in said(capsys, "run", "-m", *SWEEP, f"out={evil}")
    said(capsys, "plot", str(evil))
    said(capsys, "plot", *map(str, sorted(evil.glob("rps*"))))
    run = specsim.load_run(next(evil.glob("rps*")))
    assert repr(run).isprintable()


@pytest.mark.usefixtures("unrendered")
def test_the_trace_of_a_plugin_is_named_without_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("coded.py").write_text(f"CODES = {CODES!r}\n{TRACE}")
    Path("t.yaml").write_text("_target_: coded.Trace\n")
    words = ["plugins=[./coded.py]", "trace=./t.yaml", "scheduler=continuous", "profile=llama8b_1b_h100"]
    assert SEEN in said(capsys, "run", *words, "out=run")
    assert SEEN in said(capsys, "run", "-m", *words, "seed=0,1", "out=runs")
    said(capsys, "plot", "run")


@pytest.mark.parametrize("debug", [[], ["--debug"]])
@pytest.mark.parametrize("sweep", [[], ["-m", "seed=0,1"]])
def test_an_error_of_a_plugin_is_told_without_codes(
    sweep: list[str], debug: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("coded.py").write_text(
        f"class S:\n    def step(self, view):\n        raise ValueError({CODES!r})\n        yield\n"
    )
    Path("s.yaml").write_text("_target_: coded.S\n")
    words = ["plugins=[./coded.py]", "scheduler=./s.yaml", "trace=poisson", "requests=5", "out=run"]
    assert "RED" in said(capsys, "run", *sweep, *words, *debug)


def test_a_file_of_a_group_is_shown_without_codes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    values = yaml.safe_load((PACKAGE.parent / "conf" / "trace" / "poisson.yaml").read_text())
    Path("t.yaml").write_text(yaml.safe_dump({**values, "description": CODES, "name": CODES}))
    for command in (["run", "--cfg", "job", "trace=./t.yaml"], ["run", "trace=./t.yaml", "requests=3", "out=run"]):
        said(capsys, *command)


def test_a_line_is_one_line() -> None:
    assert printable(CODES) == SEEN
    assert printable("plain: \u00e9 \u4e2d") == "plain: \u00e9 \u4e2d"
    assert one_line("x" * 5000).count("x") == 2000
    assert str(Worst(0.5, CODES)) == f"{SEEN} 50.0%"
    assert all_printable({CODES: [CODES, 1.5, None, {"a": CODES}]}) == {SEEN: [SEEN, 1.5, None, {"a": SEEN}]}
