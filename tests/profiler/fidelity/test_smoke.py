"""A whole study of tiny models: cut and gone on with, lossless, its page made from its tables. No time is asserted."""

import re
import weakref
from dataclasses import fields, replace
from functools import partial
from types import SimpleNamespace
from unittest.mock import Mock

import pandas as pd
import pytest

torch = pytest.importorskip("torch")

from profiler.cli import fidelity  # noqa: E402
from profiler.fidelity import facts, models, running, serving  # noqa: E402
from profiler.fidelity.study import StudyPair, study_named  # noqa: E402
from profiler.fidelity.tables import read_outcome, read_tables  # noqa: E402
from profiler.passes.graphs import Replays  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from specsim.files.yaml_file import shipped  # noqa: E402
from tests.profiler.passes.layouts import rerun  # noqa: E402

pytestmark = [pytest.mark.torch, pytest.mark.slow]
TWO_LAYERS = StudyPair("first", "drawn", random_weights=("tiny-llama", "tiny-llama-skip1"))
TINY = ("tiny", "requests=3", "--loads", "1.5")


def two_requests(folder):
    """Return the words of the smallest study of one pair."""
    return f"tiny requests=2 --pairs two_layers --loads 1 --repeats 1 --out {folder}".split()


@pytest.fixture(scope="module")
def root(tmp_path_factory):
    """Run the study, stopped once in its middle, as by Ctrl-C."""
    folder = tmp_path_factory.mktemp("study")
    whole, ran = running.outcome_of, []

    def cut(scene, cell, words):
        if len(ran) == 10:
            raise KeyboardInterrupt
        ran.append(cell)
        return whole(scene, cell, words)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(running, "outcome_of", cut)
        with pytest.raises(KeyboardInterrupt, match=r"the same command with --out .* goes on"):
            fidelity([*TINY, "--out", str(folder)])
        kept = {file: file.stat().st_mtime_ns for file in (folder / "cells").iterdir()}
        assert len([file for file in kept if ".samples." not in file.name and file.suffix == ".parquet"]) == 10
        patched.setattr(running, "outcome_of", whole)
        assert fidelity([*TINY, "--out", str(folder)]) == 0
    assert all(file.stat().st_mtime_ns == written for file, written in kept.items())
    return folder


def test_every_cell_is_there_once_says_what_the_target_says_alone_and_makes_its_times_again(root):
    cells = read_tables(root).cells
    assert len(cells) == 3 * 12
    assert not cells.duplicated(["pair", "scheduler", "load", "side", "repeat"]).any()
    on_models = cells[(cells.side != "simulated") & (cells.pair != "two_layers")]
    assert len(on_models) == 2 * 9
    assert (on_models.differing == 0).all()

    pd.testing.assert_series_equal(1e3 * cells["own.e2el_s"], cells.mean_e2el_ms, check_names=False)
    back, simulated = (cells[(cells.side == side) & (cells.pair == "own")] for side in ("reverse", "simulated"))
    keys = ["scheduler", "load"]
    both = back.merge(simulated, on=keys, suffixes=("_back", ""))
    pd.testing.assert_series_equal(both.iterations_back, both.iterations, check_names=False)


def predicted_of(root, side):
    """Return the predicted seconds of each pass of the pair `acceptance_trace`, by its role and shape."""
    found = {}
    for file in (root / "cells").glob(f"two_layers-*-{side}*.parquet"):
        found |= {(each.role, each.shape): each.time.predicted_s for each in read_outcome(file).passes}
    return found


def assert_predicted_alike(root, least):
    """Hold predictions of passes that real and simulated runs made against each other; return those of the real."""
    real, simulated = (predicted_of(root, side) for side in ("real", "simulated"))
    both = real.keys() & simulated.keys()
    assert len(both) > least
    assert {key: real[key] for key in both} == {key: simulated[key] for key in both}
    return real


def test_the_profile_that_simulates_predicts_what_real_runs_did(root):
    """Though it was measured while they ran: their first predictions were by its first round."""
    assert_predicted_alike(root, 10)
    passes = read_tables(root).passes
    assert set(passes.side) == {"real"}
    assert (passes[passes.kind != "draft lookup"][["measured_s", "predicted_s"]] > 0).all(axis=None)
    assert {"target decode", "target verify", "target prefill", "draft step", "draft lookup"} <= set(passes.kind)


@pytest.mark.usefixtures("unrendered")
def test_predictions_are_made_anew_where_a_study_was_cut_before_they_were(tmp_path, monkeypatch):
    words = two_requests(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(running, "_predict_anew", Mock(side_effect=KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            fidelity(words)
    before = predicted_of(tmp_path, "real")
    assert fidelity(words) == 0
    real = assert_predicted_alike(tmp_path, 0)
    assert real.keys() == before.keys()
    assert real != before


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
    assert fidelity(["--out", str(root), "--redraw"]) == 0
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


@pytest.mark.usefixtures("unrendered")
def test_a_cell_that_fails_is_a_row_with_its_error_and_runs_again_the_next_time(tmp_path, monkeypatch, capsys):
    whole = running.outcome_of

    def failing(scene, cell, words):
        if cell.scheduler == "continuous":
            raise RuntimeError("the device is gone\nand more")
        return whole(scene, cell, words)

    words = two_requests(tmp_path)
    monkeypatch.setattr(running, "outcome_of", failing)
    assert fidelity(words) == 1
    cells = read_tables(tmp_path).cells
    assert cells.error.dropna().tolist() == ["the device is gone and more"] * 3
    assert set(cells[cells.error.isna()].scheduler) == {"adaserve", "laps_sd"}
    assert "- two_layers, continuous, load 1, real: the device is gone" in (tmp_path / "report.md").read_text()
    monkeypatch.setattr(running, "outcome_of", whole)
    assert fidelity(words) == 0
    assert "error" not in read_tables(tmp_path).cells
    told = capsys.readouterr()
    assert told.out.count(": done, ") == 6 + 3
    assert told.err == "fidelity tiny: 3 of 9 runs failed\n"


@pytest.mark.usefixtures("unrendered")
def test_a_run_that_clearly_differs_is_a_fault(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(serving, "differing", lambda *_: (1, 0.5))
    assert fidelity(["tiny", "--pairs", "lookup", "--loads", "1", "--repeats", "1", "--out", str(tmp_path)]) == 1
    assert capsys.readouterr().err == "fidelity tiny: 6 of 9 runs clearly differ from what the target says alone\n"
    report = (tmp_path / "report.md").read_text(encoding="utf-8")
    assert "**A fault:** 6 runs clearly differ from what the target says alone." in report


@pytest.mark.usefixtures("unrendered")
def test_what_a_cell_rests_on_says_whether_it_runs_again(tmp_path, monkeypatch):
    whole, ran = running.outcome_of, []
    monkeypatch.setattr(running, "outcome_of", lambda scene, cell, words: ran.append(cell) or whole(scene, cell, words))

    def runs(*further):
        ran.clear()
        assert fidelity([*two_requests(tmp_path), *further]) == 0
        return len(ran), len(list((tmp_path / "cells").glob("two_layers-*.runs.json")))

    assert runs() == (9, 1)
    assert runs() == (0, 1)
    assert runs("--cache-tokens", "8192") == (9, 2)
    assert runs("--clock", "wall") == (9, 2)
    assert "of a real run goes with the wall's" in (tmp_path / "report.md").read_text(encoding="utf-8")
    monkeypatch.setattr(facts, "folder_sha256", lambda folder: "another source")
    assert runs() == (9, 3)
    assert runs() == (0, 3)
    about = read_tables(tmp_path).about
    assert about["command"].startswith("specsim fidelity tiny requests=2 --pairs two_layers")
    assert about["study"]["typed"] == ["requests=2"]
    assert list(about["study"]["schedulers"]) == ["continuous", "adaserve", "laps_sd"]
    assert f"`{about['command']}` runs and writes all of this" in (tmp_path / "report.md").read_text(encoding="utf-8")


def test_a_cache_too_small_for_any_request_is_one_line(tmp_path):
    with pytest.raises(SpecsimError, match=r"^cache_tokens 256: no request is served; expected room for one$"):
        fidelity(["tiny", "--pairs", "two_layers", "--cache-tokens", "256", "--out", str(tmp_path)])


@pytest.mark.usefixtures("unrendered")
def test_a_profile_that_was_given_is_checked_as_a_run_checks_it(tmp_path, capsys):
    words = f"scheduler=vllm_spec trace=poisson requests=2 --text drawn --loads 1 --out {tmp_path}/out".split()
    words += ["--random-weights", *TWO_LAYERS.random_weights, "--repeats", "1"]
    assert fidelity([*words, "profile=smollm2_skip_cpu"]) == 0
    told, page = capsys.readouterr().out, (tmp_path / "out" / "report.md").read_text(encoding="utf-8")
    for said in ("MISMATCHED PAIR: ", "smollm2_skip_cpu.yaml is of SmolLM2-135M with SmolLM2-135M less 3 layers, "):
        assert said in told
        assert said in page
    assert told.count("; extrapolated: ") == page.count(": extrapolated: ") == 3
    text = (shipped("conf") / "profile" / "smollm2_skip_cpu.yaml").read_text(encoding="utf-8")
    (tmp_path / "p.yaml").write_text(re.sub(r"median: [\d.e-]+", "median: 0.4", text), encoding="utf-8")
    with pytest.raises(SpecsimError, match=r"p\.yaml: not fit for use: .*; expected another profile, or any_fit=true"):
        fidelity([*words, f"profile={tmp_path / 'p.yaml'}"])


def test_graphs_of_a_study_are_checked_and_used(monkeypatch):
    tiny = study_named("tiny")
    study = SimpleNamespace(**{each.name: getattr(tiny, each.name) for each in fields(tiny)} | {"graphs": True})
    monkeypatch.setattr(models, "Replays", partial(Replays, captured=rerun))
    ready = models.ModelCache(study).ready(TWO_LAYERS, {16})
    assert [len(each.replays) for each in (ready.models.target, ready.models.draft)] == [2, 2]


def test_the_models_of_a_pair_go_before_those_of_the_next_come(monkeypatch):
    monkeypatch.setattr(models, "working_passes", lambda asked, *_: asked or "fused")
    cache = models.ModelCache(study_named("tiny"))
    ready = cache.ready(TWO_LAYERS, {16})
    assert cache.ready(replace(TWO_LAYERS, name="equal"), {16}).models is ready.models
    gone, there = weakref.ref(ready.models.target), []
    made = cache._made
    monkeypatch.setattr(cache, "_made", lambda *given: there.append(gone()) or made(*given))
    del ready
    again = cache.ready(replace(TWO_LAYERS, random_weights=("tiny-llama-skip1", "tiny-llama")), {16})
    assert (there, again.models.target.shape.layers) == ([None], 1)


def test_models_that_share_weights_do_without_the_fused_path(monkeypatch):
    monkeypatch.setattr(models, "working_passes", lambda asked, *_: asked or "fused")
    pair = StudyPair("skip", "model", random_weights=("tiny-llama",), drafter="skip", skip_layers=(1,))
    assert models.ModelCache(study_named("tiny")).ready(pair, {16}).passes == "transformers"


@pytest.mark.usefixtures("unrendered")
def test_the_gpu_study_is_rehearsed_with_tiny_shapes(tmp_path, monkeypatch):
    """All of it but the device, the shapes of its models, its sizes and its number of requests: two pairs, fused.

    Names with dots have profiles of their own.
    """
    monkeypatch.setattr(models, "working_passes", lambda asked, *_: asked or "fused")
    study, tiny = (
        (shipped("conf") / "fidelity" / f"{name}.yaml").read_text(encoding="utf-8") for name in ("gpu", "tiny")
    )
    study = study[: study.index("grid:")] + tiny[tiny.index("grid:") :]
    for whole, small in (
        ("llama-3.1-8b, llama-3.2-1b", "tiny-llama, tiny-llama-skip1"),
        ("  conv:", "  a.1:"),
        ("  code:", "  a.2:"),
        ("device: cuda", "device: cpu\nthreads: 1"),
        ("dtype: bfloat16", "dtype: float32"),
        ("graphs: true", "graphs: false"),
        ("requests=40", "requests=2"),
        ("loads: [0.2, 1.0, 1.5]", "loads: [1.0]"),
        ("repeats: 2\nreverse_from", "repeats: 1\nreverse_from"),
        ("cache_tokens: 120000", "cache_tokens: 20000"),
    ):
        assert whole in study
        study = study.replace(whole, small)
    file = tmp_path / "small.yaml"
    file.write_text(study, encoding="utf-8")
    assert fidelity([str(file), "--out", str(tmp_path / "out")]) == 0
    tables = read_tables(tmp_path / "out")
    assert (len(tables.cells), set(tables.samples.pair)) == (2 * 2 * 6, {"a.1", "a.2"})
    assert (tables.cells.rejected == 0).all()
