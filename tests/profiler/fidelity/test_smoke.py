"""A whole study of tiny models: cut and gone on with, lossless, its page made from its tables. No time is asserted."""

from __future__ import annotations

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from profiler.cli import fidelity  # noqa: E402
from profiler.fidelity import running  # noqa: E402
from profiler.fidelity.tables import read_tables  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from specsim.files.paths import shipped  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Run the study, stopped once in its middle, as by Ctrl-C."""
    folder = tmp_path_factory.mktemp("study")
    whole, ran = running.outcome_of, []

    def cut(scene, cell, words):
        if len(ran) == 20:
            raise KeyboardInterrupt
        ran.append(cell)
        return whole(scene, cell, words)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "outcome_of", cut)
        with pytest.raises(KeyboardInterrupt, match=r"the same command with --out .* goes on"):
            fidelity(["tiny", "--out", str(folder)])
        kept = {file: file.stat().st_mtime_ns for file in (folder / "cells").iterdir()}
        assert len([file for file in kept if ".samples." not in file.name and file.suffix == ".parquet"]) == 20
        patched.setattr(running, "outcome_of", whole)
        assert fidelity(["tiny", "--out", str(folder)]) == 0
    assert all(file.stat().st_mtime_ns == written for file, written in kept.items())
    return folder


def test_every_cell_is_there_once_and_says_what_the_target_says_alone(root):
    cells = read_tables(root).cells
    assert len(cells) == 2 * 24 + 18
    assert not cells.duplicated(["pair", "scheduler", "load", "side", "repeat"]).any()
    on_models = cells[(cells.side != "simulated") & (cells.pair != "tape")]
    assert len(on_models) == 2 * 18
    assert (on_models.differing == 0).all()


def test_a_runs_own_seconds_make_its_times_again(root):
    cells = read_tables(root).cells
    pd.testing.assert_series_equal(1e3 * cells["own.e2el_s"], cells.mean_e2el_ms, check_names=False)
    back, simulated = (cells[(cells.side == side) & (cells.pair == "own")] for side in ("reverse", "simulated"))
    keys = ["scheduler", "load"]
    both = back.merge(simulated, on=keys, suffixes=("_back", ""))
    pd.testing.assert_series_equal(both.iterations_back, both.iterations, check_names=False)


def test_passes_are_predicted_and_measured(root):
    passes = read_tables(root).passes
    assert set(passes.side) == {"real"}
    timed = passes[passes.kind != "draft lookup"]
    assert (timed.measured_s > 0).all()
    assert (timed.predicted_s > 0).all()
    assert {"target decode", "target verify", "target prefill", "draft step", "draft lookup"} <= set(passes.kind)


def test_the_report_is_made_again_from_the_tables_alone(root, capsys):
    report = (root / "report.md").read_bytes()
    for file in (root / "cells").iterdir():
        file.unlink()
    (root / "report.md").unlink()
    assert fidelity(["tiny", "--out", str(root), "--redraw"]) == 0
    assert (root / "report.md").read_bytes() == report
    assert capsys.readouterr().out.splitlines()[0] == str(root / "report.md")
    assert (root / "figures" / "fidelity_runs.png").stat().st_size > 1000
    (root / "remarks.md").write_text("A remark by hand.\n", encoding="utf-8")
    assert fidelity(["tiny", "--out", str(root), "--redraw"]) == 0
    assert "\nA remark by hand.\n" in (root / "report.md").read_text(encoding="utf-8")


def test_a_pair_whose_models_cannot_be_had_is_left_out(tmp_path, capsys):
    file = tmp_path / "mine.yaml"
    file.write_text(
        "description: none\nloads: [1]\nschedulers: {fcfs: []}\nsettings: [requests=2]\n"
        'pairs: {away: {text: model, target: "package:no_such_model", drafter: lookup}}\n',
        encoding="utf-8",
    )
    with pytest.raises(SpecsimError, match=r"^fidelity mine: no pair could be served"):
        fidelity([str(file), "--out", str(tmp_path / "out")])
    assert "away: left out: package:no_such_model: no such package here" in capsys.readouterr().out


def test_a_cell_that_fails_is_a_row_with_its_error_and_runs_again_the_next_time(tmp_path, monkeypatch, capsys):
    whole = running.outcome_of

    def failing(scene, cell, words):
        if cell.scheduler == "continuous":
            raise RuntimeError("the device is gone\nand more")
        return whole(scene, cell, words)

    words = ["tiny", "requests=2", "--pairs", "tape", "--repeats", "1", "--loads", "1", "--out", str(tmp_path)]
    monkeypatch.setattr(running, "outcome_of", failing)
    assert fidelity(words) == 1
    cells = read_tables(tmp_path).cells
    assert cells.error.dropna().tolist() == ["the device is gone and more"] * 2
    assert set(cells[cells.error.isna()].scheduler) == {"adaserve", "laps_sd"}
    assert "- tape, continuous, load 1, real: the device is gone" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(running, "outcome_of", whole)
    assert fidelity(words) == 0
    assert "error" not in read_tables(tmp_path).cells
    assert capsys.readouterr().out.count(": done, ") == 4 + 2


def test_the_gpu_study_is_rehearsed_with_tiny_shapes(tmp_path):
    """All of it but the device, the shapes of its models, its sizes and its number of requests."""
    study, tiny = (
        (shipped("conf") / "fidelity" / f"{name}.yaml").read_text(encoding="utf-8") for name in ("gpu", "tiny")
    )
    study = study[: study.index("grid:")] + tiny[tiny.index("grid:") :]
    for whole, small in (
        ("llama-3.1-8b, llama-3.2-1b", "tiny-llama, tiny-llama-skip1"),
        ("device: cuda", "device: cpu\nthreads: 1"),
        ("dtype: bfloat16", "dtype: float32"),
        ("requests=120", "requests=3"),
        ("loads: [0.5, 1.0, 1.5]", "loads: [1.0]"),
        ("repeats: 2\nreverse", "repeats: 1\nreverse"),
        ("cache_tokens: 250000", "cache_tokens: 20000"),
    ):
        assert whole in study
        study = study.replace(whole, small)
    file = tmp_path / "small.yaml"
    file.write_text(study, encoding="utf-8")
    assert fidelity([str(file), "--out", str(tmp_path / "out")]) == 0
    cells = read_tables(tmp_path / "out").cells
    assert len(cells) == 2 * 2 * 6
    assert (cells.rejected == 0).all()
