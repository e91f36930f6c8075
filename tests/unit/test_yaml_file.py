"""A YAML file of anybody's: what is no mapping, what stands for more than it holds, and what leads out of it."""

import resource
import time

import pytest
import yaml

from specsim.config.groups import Choice
from specsim.files.yaml_file import MOST_BYTES, MOST_DEPTH, _loader, read_yaml, shipped, yaml_text
from tests.made import refusal

LAUGHS = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]\n" for i in range(1, 9)
)
"""306 bytes that stand for 9^9 values."""


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (LAUGHS, ", line 1: an anchor or alias (a0); expected every value written out"),
        ("a: &a\n  b: *a\n", ", line 1: an anchor or alias (a)"),
        ("a: " + "{a: " * 5000, f", line 1: nested over {MOST_DEPTH} deep"),
        ("a: !!int ''\n", ", line 1: a tag ("),
        ("a: 0x" + "f" * 5000, ", line 1: a whole number of over 308 digits"),
        ("b: 1\na: " + "x" * 70_000, ", line 2: a value of 70,000 characters; expected at most 65,536"),
        ("a: \0", ": not YAML: "),
        ("#" * 2 * MOST_BYTES, ": 2 MiB; expected at most 1 MiB"),
        ("", ": empty; expected keys with values"),
        ("- 1\n", ": [1], no mapping; expected keys with values"),
        ("a: 1\na: 2\n", ", line 2: not YAML: found duplicate key a"),
        ("\udcff\udcfe\0", ": cannot be read: "),
    ],
    ids=lambda text: ascii(" ".join(text.split()))[:24],
)
def test_a_file_that_is_no_mapping_or_stands_for_more_than_it_holds(tmp_path, text, told):
    path = tmp_path / "mine.yaml"
    path.write_text(text, encoding="utf-8", errors="surrogateescape")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
    assert refusal(read_yaml, path, group="slo=").startswith(f"slo={path}{told}")
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before[0] < 64 << 10
    assert time.process_time() - before[1] < 5


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("a: {b: '${oc.env:HOME}'}\n", "a.b: '${oc.env:HOME}': ${...} is not followed; expected the value itself"),
        ("a: '\\\\${oc.env:HOME}'\n", "expected the value itself"),
        ("a: 1\nb: [1, '${.a}']\n", "b.1: '${.a}': ${...} is not followed"),
    ],
    ids=lambda text: " ".join(text.split())[:24],
)
def test_a_reference(tmp_path, text, told):
    path = tmp_path / "mine.yaml"
    path.write_text(text)
    said = refusal(read_yaml, path)
    assert said.startswith(f"{path}: ")
    assert told in said


def test_a_file_called_as_its_group_is_titled_by_its_folder():
    files = ("poisson", "a/mine/trace.csv", "mine/trace_2.csv", "mine/trace_day.csv", "../trace.csv")
    assert [Choice("trace", each, {}).title for each in files] == ["poisson", "mine", "mine_2", "trace_day", "trace"]


def test_every_file_that_ships_may_be_copied_and_changed():
    files = sorted(shipped("conf").rglob("*.yaml"))
    assert len(files) > 50
    for file in files:
        values = read_yaml(file)
        assert yaml.safe_load(yaml_text(values)) == values
    assert yaml.safe_load(yaml_text(odd := {"a path of other bytes": "\udc80"})) == odd


WORDS = "1e-9 1e5 1. 1.e3 -1e3 .5 .5e3 1_0.5 1:30.5 2020-01-01 12e03 1E5 +1e5 0x1e5 017 e5 1e 1.5.2 . -.inf yes 1e+5 _1"


@pytest.mark.parametrize("libyaml", [True, False])
def test_values_are_what_hydra_reads_in_its_own_files(tmp_path, monkeypatch, libyaml):
    from omegaconf import OmegaConf

    monkeypatch.setattr(yaml, "__with_libyaml__", libyaml)
    _loader.cache_clear()
    path = tmp_path / "mine.yaml"
    path.write_text("".join(f"k{place}: {word}\n" for place, word in enumerate(WORDS.split())))
    assert read_yaml(path) == OmegaConf.to_container(OmegaConf.load(path))
    path.write_text("a: &a 1")
    assert "line 1: an anchor" in refusal(read_yaml, path)
    _loader.cache_clear()
