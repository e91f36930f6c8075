"""A suite's pairs: what is wrong with one is said of it, and the others run."""

from __future__ import annotations

import pytest
import yaml

from profiler.latency import command
from profiler.lock import only_one
from specsim.cli import main


def suite(tmp_path, *pairs):
    path = tmp_path / "suite.yaml"
    path.write_text(yaml.safe_dump({"pairs": list(pairs)}))
    return ["profile", "suite", str(path), "--out", str(tmp_path)]


@pytest.mark.parametrize(
    ("wrong", "told"),
    [
        ({"device": "gpu"}, "specsim: bad: argument --device: invalid choice: 'gpu'"),
        ({"tp": "x"}, "specsim: bad: argument --tp: invalid int value: 'x'"),
        ({"tp": None}, "specsim: bad: argument --tp: invalid int value: 'None'"),
    ],
)
def test_a_pair_of_wrong_words_is_named_and_passed_over(tmp_path, capsys, monkeypatch, wrong, told):
    done = []
    monkeypatch.setattr(command, "run", lambda arguments: done.append(arguments.out.stem) or 0)
    words = suite(tmp_path, {"name": "one"}, {"name": "bad", **wrong}, {"name": "two"})
    assert main(words) == 2
    assert done == ["one", "two"]
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1


def test_a_pair_that_breaks_is_named_and_passed_over(tmp_path, capsys, monkeypatch):
    done = []

    def run(arguments):
        if arguments.out.stem == "bad":
            raise RuntimeError("CUDA error: an illegal\nmemory access")
        done.append(arguments.out.stem)
        return 0

    monkeypatch.setattr(command, "run", run)
    assert main(suite(tmp_path, {"name": "bad"}, {"name": "good"})) == 2
    assert done == ["good"]
    assert capsys.readouterr().err == "specsim: bad: RuntimeError: CUDA error: an illegal memory access\n"


@pytest.mark.parametrize(("first", "begun"), [(0, ["one"]), (2, ["one", "two"])])
def test_no_pair_is_begun_in_the_last_half_minute_once_another_is_done(tmp_path, capsys, monkeypatch, first, begun):
    done, now = [], [0.0]

    def run(arguments):
        done.append(arguments.out.stem)
        now[0] += 520
        return first if done == ["one"] else 0

    monkeypatch.setattr(command, "run", run)
    monkeypatch.setattr("profiler.latency.suite_command.time.monotonic", lambda: now[0])
    code = main([*suite(tmp_path, {"name": "one"}, {"name": "two"}), "--minutes", "9"])
    assert (code, done) == (command.TIME_IS_UP if begun == ["one"] else 2, begun)
    assert ("time is up before two" in capsys.readouterr().out) == (begun == ["one"])


def test_what_is_quick_has_a_name_of_its_own(tmp_path, capsys, monkeypatch):
    done = []

    def run(arguments):
        done.append((arguments.out.name, arguments.quick))
        for name in (f"{arguments.out.stem}.samples.parquet", arguments.out.name):
            (tmp_path / name).write_text("")
        return 0

    monkeypatch.setattr(command, "run", run)
    words = suite(tmp_path, {"name": "a"})
    assert [main([*words, "--quick"]), main([*words, "--quick"]), main(words), main(words)] == [0, 0, 0, 0]
    assert done == [("a-quick.yaml", True), ("a.yaml", False)]
    assert capsys.readouterr().out == "a-quick: done\na: done\n"


def test_a_pair_called_quick(tmp_path, capsys):
    assert main(suite(tmp_path, {"name": "a-quick"})) == 2
    assert "pairs[0].name: 'a-quick' ends in -quick, as what --quick makes" in capsys.readouterr().err


def test_two_pairs_of_one_name(tmp_path, capsys):
    assert main(suite(tmp_path, {"name": "a"}, {"name": "a", "tp": 2})) == 2
    assert "pairs[1].name: 'a' a second time; expected a name for each profile" in capsys.readouterr().err


@pytest.mark.parametrize("minutes", ["nan", "-1", "inf", "soon"])
@pytest.mark.parametrize("words", [["suite", "gpu"], ["latency", "--out", "x.yaml"]])
def test_minutes_that_are_none(capsys, words, minutes):
    with pytest.raises(SystemExit) as left:
        main(["profile", *words, "--minutes", minutes])
    assert left.value.code == 2
    err = capsys.readouterr().err
    assert f"argument --minutes: {minutes}: expected a number of minutes, 0 or more" in err
    assert err.count("\n") == 1


@pytest.mark.torch
def test_two_runs_on_one_samples_file_at_once_are_refused(tmp_path, capsys):
    pytest.importorskip("torch")
    words = ["--random-weights", "tiny-llama", "tiny-llama", "--device", "cpu", "--out", str(tmp_path / "m.yaml")]
    with only_one(tmp_path / "m.samples.parquet"):
        assert main(["profile", "latency", *words]) == 2
    err = capsys.readouterr().err
    assert "m.samples.parquet: another run is writing it; expected one at a time" in err
    assert err.count("\n") == 1
