"""The list of pairs of a session: what is wrong with it is one line, before anything is measured."""

import argparse

import pytest
import yaml

pytest.importorskip("torch")

from profiler.latency.command import _subjects
from tools.gpu_session.__main__ import main
from tools.gpu_session.pairs import arguments_of, path_of, read_pairs

pytestmark = pytest.mark.torch
ONE = {"name": "one", "random_weights": ["tiny-llama", "tiny-llama"], "device": "cpu"}


def session(tmp_path, text, *words):
    (tmp_path / "pairs.yaml").write_text(text if isinstance(text, str) else yaml.safe_dump({"pairs": text}))
    return main([str(tmp_path / "pairs.yaml"), "--state", str(tmp_path / "state"), *words])


@pytest.mark.parametrize(
    ("text", "words", "told"),
    [
        ("pairs: []", "", "pairs: [] is not a list of pairs, each with a name"),
        ("pairs: [{name: a}, {name: a, tp: 2}]", "", "pairs[1].name: 'a' a second time; expected a name for each prof"),
        ("pairs: [{name: a, tpp: 1}]", "", "pairs[0].tpp: unknown key; did you mean 'tp'"),
        ("pairs: [{name: a-quick}]", "", "pairs[0].name: 'a-quick' ends in -quick, as what --quick makes"),
        ("pairs: [{name: bad, device: gpu}]", "", "bad: argument --device: invalid choice: 'gpu'"),
        ([ONE], "--stages check,swep", "--stages: 'swep' is unknown; did you mean 'sweep'"),
        ([ONE], "--limits chek=2", "--limits: 'chek' is unknown; did you mean 'check'"),
        ([ONE], "--limits check=soon", "--limits: check: soon: expected a number of minutes, 0 or more"),
        ([ONE], "--resume none.zip", "--resume none.zip: no such file"),
    ],
)
def test_a_wrong_list_and_wrong_words_are_one_line(tmp_path, capsys, text, words, told):
    assert session(tmp_path, text, *words.split()) == 2
    err = capsys.readouterr().err
    assert told in err
    assert err.count("\n") == 1
    assert not (tmp_path / "state").exists()


def test_minutes_that_are_none(capsys):
    with pytest.raises(SystemExit) as left:
        main(["gpu", "--state", "x", "--minutes", "nan"])
    assert left.value.code == 2
    assert "argument --minutes: nan: expected a number of minutes, 0 or more" in capsys.readouterr().err


def test_a_folder_of_other_pairs_or_of_another_grid_is_refused(tmp_path, capsys):
    words = ["--minutes", "0"]
    assert session(tmp_path, [ONE], *words) == 3
    assert session(tmp_path, [{**ONE, "dtype": "float64"}], *words) == 2
    assert "a session of other pairs (one); expected another DIR" in capsys.readouterr().err
    assert session(tmp_path, [ONE], "--quick", *words) == 2
    assert "a session on full grids; expected another DIR" in capsys.readouterr().err


def test_the_shipped_list_names_shapes_that_exist():
    pairs = read_pairs(path_of("gpu"))
    assert list(pairs) == ["llama8b_1b", "qwen32b_05b", "qwen1_5b_05b", "llama70b_tp4_1b"]
    for name, words in pairs.items():
        arguments = arguments_of(name, [*words, "--out", "x.yaml"])
        assert isinstance(arguments, argparse.Namespace)
        assert set(_subjects(arguments)) == {"target", "draft"}
