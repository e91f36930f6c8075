"""Files that are missing, broken or hold the wrong thing: one line that names the file, the line or key, no run."""

import os

import pytest
import yaml

from specsim.cli import main
from specsim.files.yaml_file import shipped

BASE = ["requests=2", "acceptance=bernoulli", "profile=llama8b_1b_h100", "scheduler=continuous", "trace=poisson"]
HEADER = "arrival_s,prompt_tokens,output_tokens\n"
PROFILE = yaml.safe_load((shipped("conf") / "profile" / "llama8b_1b_h100.yaml").read_text())


def profile(**changes):
    return yaml.safe_dump({**PROFILE, **changes})


FILES = {
    "missing.yaml": None,
    "broken.yaml": "a: [1\nb: 2\n",
    "reference.yaml": "_target_: ${nowhere}\nkind: ${nowhere}\nname: ${nowhere}\ntpot_measure: ${nowhere}\n",
}
SPECIAL = [
    ("profile", profile(memori_bytes=1), "'memory_bytes'"),
    ("profile", yaml.safe_dump({key: value for key, value in PROFILE.items() if key != "draft"}), "draft"),
    ("profile", profile(suggests={"adasrve": {"verify_tokens": 1}}), "'adasrve' is no family of schedulers"),
    ("profile", profile(suggests={"adaserve": {"verify_token": 1}}), "scheduler=adaserve has no such key"),
    ("profile", profile(suggests={"rps": 3}), "suggests: 'rps' is no group or key of one"),
    ("slo", "classes: {a: {share: 1.0}}\n", "such as max_tokens: 4096"),
    ("slo", "classes: {all: {share: 1, max_tokens: 5}}\n", "'all' is what tables call all classes together"),
    ("slo", 'classes: {"\\e[31mred": {share: 1, max_tokens: 5}}\n', "'\\x1b[31mred' is not a name of printable"),
    ("slo", "classes: {" + "x" * 101 + ": {share: 1, max_tokens: 5}}\n", "a name of 101 characters"),
    ("acceptance", "kind: recorded\npath: /dev/zero\ncategories: {default: a}\n", "is a pipe or a device"),
    ("acceptance", "kind: recorded\npath: ~no_such_user/x\ncategories: {default: a}\n", "no user 'no_such_user'"),
    ("acceptance", "kind: bernoulli\nalpha: 0.5\nwidth: 4\npair: {target: a}\n", "pair.draft: missing key"),
    ("acceptance", "kind: pinned\n", "synthetic_acceptance_length: None is not one of"),
    ("acceptance", "kind: pinned\nsynthetic_acceptance_rates: [0.5, 0.6]\n", "is not rates from 0 to 1, none above"),
    ("acceptance", "kind: length\ncategories: {default: {k: 3, length: 4.5}}\n", "length: 4.5 is not a finite number"),
    ("acceptance", "kind: length\ncategories: {default: {length: 2, rate: 1, k: 3}}\n", "one of length, lengths, rate"),
    ("scheduler", "_target_: specsim.schedulers.loading._plugin\nname: ./evil.py\n", "_plugin"),
    ("trace", '{"input_lens": [1], "output_lens": [1]}', "no arrivals"),
]


@pytest.fixture
def refused(refused, nothing_runs):
    """Return a function that holds that a run of these words and a few others is refused."""

    def check(*words):
        given = {word.partition("=")[0] for word in words}
        return refused("run", *words, *(word for word in (*BASE, "out=here") if word.partition("=")[0] not in given))

    return check


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("group", ["scheduler", "profile", "slo", "acceptance", "drafter"])
def test_a_file_that_is_no_file_of_the_group(refused, tmp_path, group, name):
    if FILES[name] is not None:
        write(tmp_path / name, FILES[name])
    said = refused(f"{group}=./{name}")
    assert name in said
    if name == "broken.yaml":
        assert ":2" in said or "line 2" in said


@pytest.mark.parametrize("group", ["scheduler", "trace", "cost_model"])
def test_a_folder_or_a_pipe_is_no_file_and_a_missing_one_is_named_with_the_nearest(refused, here, group):
    (here / "folder").mkdir()
    os.mkfifo(here / "pipe.yaml")
    (here / "mine.yaml").write_text("")
    folder, missing = refused(f"{group}=./folder"), refused(f"{group}=./mime.yaml")
    assert ("folder" in folder, "[Errno" in folder) == (True, False)
    assert "pipe.yaml" in refused(f"{group}=./pipe.yaml")
    assert all(name in missing for name in ("mime.yaml", "mine.yaml"))
    assert "did you mean './mine.yaml'?" in refused(f"{group}=mine")


@pytest.mark.parametrize(("group", "content", "named"), SPECIAL)
def test_a_file_with_a_mistake_names_it(refused, tmp_path, group, content, named):
    name = "mine.csv" if group == "trace" else "mine.yaml"
    write(tmp_path / name, content)
    (tmp_path / "evil.py").write_text("from pathlib import Path\nPath('owned').write_text('')\n")
    said = refused(f"{group}=./{name}")
    assert all(each in said for each in (named, name))


@pytest.mark.parametrize("group", ["scheduler", "trace", "cost_model", "out"])
@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("./" + "x" * 300 + ".yaml", "a name of 305 bytes; expected at most 255"),
        ("./" + "x/" * 2500 + "a.yaml", "a path of 5,008 bytes; expected at most 4,096"),
        ("./a\x1b[31m.yaml", "'./a\\x1b[31m.yaml': a name with a character that cannot be printed"),
        ("./a\0b.yaml", "'./a\\x00b.yaml': a name with a character"),
    ],
    ids=lambda text: ascii(text)[:12],
)
def test_a_name_that_no_file_system_or_terminal_holds(refused, group, name, told):
    said = refused(f"{group}={name}")
    assert said.startswith(f"specsim: {group}=")
    assert told in said


def test_how_a_trace_was_read_is_noted(here, capsys):
    write(here / "mine.csv", ("index," + HEADER + "a,5,5.0,5\nb,1,5,5\n").replace(",", ";").encode("utf-16"))
    assert main(["run", *BASE[:-1], "trace=./mine.csv", "out=here"]) == 0
    assert (
        "note: mine.csv: read as specsim CSV: arrival_s, prompt_tokens, output_tokens; 2 requests in 4 s, 0.25/s; "
        "cells separated by semicolons; UTF-16; prompt_tokens are whole numbers written like '5.0'; "
        "sorted by arrival (1 of 2 stood behind a later one); not read: index"
    ) in capsys.readouterr().out.splitlines()


@pytest.mark.parametrize("where", ["a_file", "a_file/below", "/proc/specsim-run"])
def test_a_place_that_cannot_be_written_is_known_before_the_run(refused, tmp_path, where):
    (tmp_path / "a_file").write_text("mine")
    for flags in ((), ("-m", "seed=0,1")):
        assert where in refused(*flags, f"out={where}")
    assert (tmp_path / "a_file").read_text() == "mine"


def test_what_a_trace_is_called_is_never_resolved(here, monkeypatch, capsys):
    """A shell puts any name there for a `*`."""
    monkeypatch.setenv("SECRET", "s3cret")
    write(here / "${oc.env:SECRET}.csv", HEADER + "0,5,5\n1,5,5\n")
    assert main(["run", *BASE[:-1], "trace=./${oc.env:SECRET}.csv", "out=here"]) == 0
    assert "s3cret" not in (here / "here" / "config.yaml").read_text() + capsys.readouterr().out
