"""`specsim plot`: figures of one run, a comparison of several, and a line for what is no run."""

import json
import shutil
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from specsim.cli import main

WORDS = ["scheduler=vllm_spec", "trace=poisson", "requests=12", "acceptance=bernoulli", "profile=llama8b_1b_h100"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "good"
    assert main(["run", *WORDS, "passes=true", f"out={folder}"]) == 0
    return folder


@pytest.fixture
def copied(stored, tmp_path):
    return shutil.copytree(stored, tmp_path / "run")


def edited(folder, change):
    path = folder / "metrics.json"
    metrics = json.loads(path.read_text())
    change(metrics)
    path.write_text(json.dumps(metrics))


def retyped(folder):
    path = folder / "requests.parquet"
    table = pq.read_table(path)
    index = table.column_names.index("ttft_s")
    pq.write_table(table.set_column(index, "ttft_s", pa.array(["x"] * len(table))), path)


def without(folder, name):
    table = pq.read_table(folder / "requests.parquet")
    pq.write_table(table.drop([name]), folder / "requests.parquet")


DAMAGES = {
    "no metrics": (lambda run: (run / "metrics.json").unlink(), "metrics.json"),
    "no json of ours": (lambda run: (run / "metrics.json").write_text("{}"), "schema_version"),
    "no classes": (lambda run: edited(run, lambda m: m["specsim"].pop("classes")), "metrics.json is damaged"),
    "cut parquet": (lambda run: (run / "requests.parquet").write_bytes(b"PAR1xx"), "requests.parquet"),
    "no column": (lambda run: without(run, "slo_ok"), "requests.parquet is damaged"),
    "text in a column": (retyped, "requests.parquet is damaged"),
}


@pytest.mark.usefixtures("unrendered")
def test_figures_of_one_run(copied, capsys):
    assert main(["plot", str(copied)]) == 0
    files = capsys.readouterr().out.splitlines()
    stems = ("slo_by_class", "latency_cdf", "timeline")
    expected = {str(copied / "figures" / f"{stem}.{kind}") for stem in stems for kind in ("png", "pdf")}
    assert set(files) == expected


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_told_in_a_line(copied, capsys, damage):
    harm, named = DAMAGES[damage]
    harm(copied)
    assert main(["plot", str(copied)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) <= 2
    assert named in said.err


def test_what_only_a_sweep_has_is_refused_for_runs(stored, capsys):
    assert main(["plot", str(stored), "--against", "fcfs"]) == 2
    assert "sweep" in capsys.readouterr().err


def test_what_is_no_run_folder(stored, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nope", tmp_path, tmp_path / "file"):
        assert main(["plot", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    assert main(["plot", str(stored.with_name("goood"))]) == 2
    assert str(stored) in capsys.readouterr().err


SWEEPS = {
    "rate": (
        ["rps=5,9", "scheduler=fcfs,vllm_spec", "seed=0,1"],
        {"attainment", "attainment_difference", "goodput", "goodput_difference"},
    ),
    "nothing numeric": (["scheduler=fcfs,vllm_spec"], {"comparison"}),
}


@pytest.mark.parametrize("name", SWEEPS)
def test_figures_of_a_sweep(tmp_path, capsys, name):
    words, stems = SWEEPS[name]
    given = [word for word in WORDS if word.partition("=")[0] not in {each.partition("=")[0] for each in words}]
    assert main(["run", "-m", *given, *words, f"out={tmp_path}"]) == 0
    capsys.readouterr()
    assert main(["plot", str(tmp_path)]) == 0
    files = capsys.readouterr().out.splitlines()
    assert set(files) == {str(tmp_path / "figures" / f"{stem}.{kind}") for stem in stems for kind in ("png", "pdf")}
    for file in files:
        assert Path(file).stat().st_size > 1000
    before = {file: Path(file).read_bytes() for file in files}
    assert main(["plot", str(tmp_path)]) == 0
    assert {file: Path(file).read_bytes() for file in files} == before


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    folder = tmp_path_factory.mktemp("swept")
    axes = ["rps=5,9", "scheduler.num_speculative_tokens=0,2", "seed=0,1"]
    assert main(["run", "-m", *WORDS, *axes, f"out={folder}"]) == 0
    return folder


@pytest.mark.usefixtures("unrendered")
def test_what_a_sweep_is_drawn_against_can_be_chosen(swept, tmp_path, capsys):
    words = ["--x", "scheduler.num_speculative_tokens", "--line", "rps", "--against", "5", "--out", str(tmp_path)]
    assert main(["plot", str(swept), *words]) == 0
    assert "attainment_difference.png" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (["--x", "scheduler.speculative_tokens"], "'scheduler.num_speculative_tokens'"),
        (["--x", "trace"], "number"),
        (["--x", "rps", "--line", "rps"], "two settings"),
        (["--against", "7"], "against=7"),
    ],
)
def test_a_wrong_choice_is_told_in_a_line(swept, tmp_path, capsys, words, named):
    assert main(["plot", str(swept), *words, "--out", str(tmp_path / "figures")]) == 2
    said = capsys.readouterr()
    assert named in said.err
    assert len(said.err.splitlines()) == 1
    assert said.out == ""
    assert not (tmp_path / "figures").exists()
