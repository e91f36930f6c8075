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
    "no requests": (lambda run: (run / "requests.parquet").unlink(), "requests.parquet"),
    "cut json": (lambda run: (run / "metrics.json").write_text('{"a":'), "metrics.json"),
    "empty json": (lambda run: (run / "metrics.json").write_text(""), "metrics.json"),
    "list json": (lambda run: (run / "metrics.json").write_text("[]"), "metrics.json"),
    "no json of ours": (lambda run: (run / "metrics.json").write_text("{}"), "schema_version"),
    "bytes": (lambda run: (run / "metrics.json").write_bytes(b"\xff\xfe"), "metrics.json"),
    "newer": (lambda run: edited(run, lambda m: m["specsim"].update(schema_version=99)), "99"),
    "no classes": (lambda run: edited(run, lambda m: m["specsim"].pop("classes")), "classes"),
    "no class": (lambda run: edited(run, lambda m: m["specsim"].update(classes=5)), "classes"),
    "half a class": (lambda run: edited(run, lambda m: m["specsim"]["classes"].update(chat=None)), "chat"),
    "cut parquet": (lambda run: (run / "requests.parquet").write_bytes(b"PAR1xx"), "requests.parquet"),
    "empty parquet": (lambda run: (run / "requests.parquet").write_bytes(b""), "requests.parquet"),
    "cut passes": (lambda run: (run / "passes.parquet").write_bytes(b"PAR1xx"), "passes.parquet"),
    "no column": (lambda run: without(run, "slo_ok"), "slo_ok"),
    "text in a column": (retyped, "ttft_s"),
}


def test_figures_of_one_run(copied, capsys):
    assert main(["plot", str(copied)]) == 0
    files = capsys.readouterr().out.splitlines()
    stems = ("slo_by_class", "latency_cdf", "timeline")
    expected = {str(copied / "figures" / f"{stem}.{kind}") for stem in stems for kind in ("png", "pdf")}
    assert set(files) == expected
    for file in files:
        assert Path(file).stat().st_size > 1000


def test_figures_of_the_same_run_are_the_same_bytes(copied, tmp_path):
    for name in ("a", "b"):
        assert main(["plot", str(copied), "--out", str(tmp_path / name)]) == 0
    for path in (tmp_path / "a").iterdir():
        assert path.read_bytes() == (tmp_path / "b" / path.name).read_bytes()


def test_a_comparison_of_two_runs(stored, copied, tmp_path, capsys):
    assert main(["plot", str(stored), str(copied), "--out", str(tmp_path / "figures")]) == 0
    assert capsys.readouterr().out.splitlines() == [
        str(tmp_path / "figures" / f"comparison.{kind}") for kind in ("png", "pdf")
    ]


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_told_in_a_line(copied, capsys, damage):
    harm, named = DAMAGES[damage]
    harm(copied)
    assert main(["plot", str(copied)]) == 2
    said = capsys.readouterr()
    assert said.out == ""
    assert len(said.err.splitlines()) <= 2
    assert named in said.err


def test_what_is_no_run_folder(stored, tmp_path, capsys):
    (tmp_path / "file").write_text("")
    for path in (tmp_path / "nope", tmp_path, tmp_path / "file"):
        assert main(["plot", str(path)]) == 2
        assert str(path) in capsys.readouterr().err
    assert main(["plot", str(stored.with_name("goood"))]) == 2
    assert str(stored) in capsys.readouterr().err
    assert main(["plot", str(stored.parent)]) == 2
    assert str(stored) in capsys.readouterr().err


def test_one_bad_run_among_several_stops_before_a_figure(stored, tmp_path, capsys):
    assert main(["plot", str(stored), str(tmp_path / "nope"), "--out", str(tmp_path / "figures")]) == 2
    assert "nope" in capsys.readouterr().err
    assert not (tmp_path / "figures").exists()


def test_figures_cannot_be_written_into_a_file(stored, tmp_path, capsys):
    (tmp_path / "file").write_text("mine")
    assert main(["plot", str(stored), "--out", str(tmp_path / "file")]) == 2
    assert "file" in capsys.readouterr().err
    assert (tmp_path / "file").read_text() == "mine"
