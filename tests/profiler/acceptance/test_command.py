"""The command from prompts to a validated file: resuming, and each mistake in one line."""

import argparse
import json
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest

made = pytest.importorskip("tests.profiler.acceptance.made", reason="needs torch", exc_type=ImportError)

from profiler.acceptance import command  # noqa: E402
from profiler.acceptance.command import add_arguments, run  # noqa: E402
from profiler.acceptance.record import TraceWriter  # noqa: E402
from profiler.acceptance.trace_file import RecordedTrace  # noqa: E402
from profiler.lock import only_one  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.acceptance.traces import COLUMNS  # noqa: E402

pytestmark = pytest.mark.torch


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models")
    made.model_folder(folder / "target", layers=3, seed=3)
    made.model_folder(folder / "draft", layers=1, seed=4)
    made.model_folder(folder / "other_words", layers=1, seed=4, first="v")
    made.prompt_file(folder / "prompts.jsonl")
    return folder


def words(models: Path, out: Path, *more: str, drafter: str = "skip") -> list[str]:
    kind = {"skip": ["--skip-layers", "2"], "separate": ["--draft", str(models / "draft")], "lookup": []}[drafter]
    fixed = ["--dtype", "float64", "--tokens", "20", "--batch", "2", "--out", str(out)]
    given = ["--target", str(models / "target"), "--prompts", str(models / "prompts.jsonl"), "--drafter", drafter]
    return [*given, *kind, *fixed, *more]


def parsed(arguments: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return parser.parse_args(arguments)


def refused(arguments: list[str]) -> str:
    return refusal(lambda: run(parsed(arguments)))


def recorded(models: Path, out: Path, *more: str, drafter: str = "skip") -> RecordedTrace:
    """Record without the analyses, which take longer."""
    return command.acceptance_trace(parsed(words(models, out, *more, drafter=drafter)))


def test_the_command_records_and_analyses_and_later_analyses_alone(models, tmp_path, capsys):
    out = tmp_path / "mine.parquet"
    assert run(parsed(words(models, out))) == 0
    said = capsys.readouterr().out
    assert said.count("\n| c") == 2
    assert {path.name for path in tmp_path.iterdir()} == {"mine", "mine.parquet", "mine.yaml", "mine_curves.yaml"}
    before = (tmp_path / "mine" / "summary.json").read_bytes()
    (tmp_path / "mine" / "summary.json").unlink()
    assert run(parsed(["--out", str(out)])) == 0
    assert capsys.readouterr().out == said
    assert (tmp_path / "mine" / "summary.json").read_bytes() == before


@pytest.mark.parametrize("drafter", ["skip", "separate", "lookup"])
def test_a_recording_holds_every_text_and_says_what_it_is(drafter, models, tmp_path):
    out = tmp_path / "acceptance_trace.parquet"
    acceptance_trace = recorded(models, out, drafter=drafter)
    assert acceptance_trace.categories == ("chat", "code")
    assert acceptance_trace.about["sequences"] == {"chat": 3, "code": 3}
    assert acceptance_trace.about["tokens"].keys() == {"chat", "code"}
    for code, name in enumerate(acceptance_trace.categories):
        on_path = acceptance_trace.on_path & (acceptance_trace.category == code)
        assert acceptance_trace.about["tokens"][name] == on_path.sum()
        for sequence in range(3):
            mine = on_path & (acceptance_trace.sequence == sequence)
            assert acceptance_trace.position[mine].tolist() == list(range(mine.sum()))
            assert 1 <= mine.sum() <= 20
    assert {1} <= set(acceptance_trace.path[~acceptance_trace.on_path].tolist()) <= {1, 2, 3}
    assert acceptance_trace.about["target"] == "target"
    assert acceptance_trace.about["draft"] == ("draft" if drafter == "separate" else "target")
    assert str(tmp_path) not in json.dumps(acceptance_trace.about)
    assert not out.with_name("acceptance_trace.parquet.parts").exists()


def test_a_lookups_confidence_is_its_measured_acceptance(models, tmp_path):
    acceptance_trace = recorded(models, tmp_path / "acceptance_trace.parquet", drafter="lookup")
    for code in (0, 1):
        mine = acceptance_trace.on_path & (acceptance_trace.category == code)
        for value in np.unique(acceptance_trace.confidence[mine, 0]):
            same = mine & (acceptance_trace.confidence[:, 0] == value)
            assert value == pytest.approx((acceptance_trace.rank[same] == 0).mean(), abs=1e-3)
    assert not acceptance_trace.confidence[:, 1:].any()
    assert set(acceptance_trace.about["long_matches"]) == {"chat", "code"}
    assert all(0 <= share < 1 for share in acceptance_trace.about["long_matches"].values())
    assert 0 < (acceptance_trace.rank[acceptance_trace.on_path] == 0).mean() < 1


def stopped(monkeypatch: pytest.MonkeyPatch, batches: int, error: BaseException) -> list[Any]:
    """Let recordings end by an error behind so many batches, and return the batches."""
    done, before = [], TraceWriter.rows

    def rows(self: TraceWriter, batch):
        if len(done) == batches:
            raise error
        done.append(batch)
        return before(self, batch)

    monkeypatch.setattr(TraceWriter, "rows", rows)
    return done


def test_a_stopped_recording_goes_on_where_it_was(models, tmp_path, monkeypatch):
    whole = recorded(models, tmp_path / "whole.parquet", "--temperature", "0.8")
    out, before = tmp_path / "acceptance_trace.parquet", TraceWriter.rows
    done = stopped(monkeypatch, 2, KeyboardInterrupt())
    with pytest.raises(KeyboardInterrupt, match=r"\.parquet\.parts keeps what was done; the same command goes on"):
        run(parsed(words(models, out, "--temperature", "0.8")))
    assert not out.exists()
    assert len(list(out.with_name("acceptance_trace.parquet.parts").glob("*.npz"))) == 2
    (out.with_name("acceptance_trace.parquet.parts") / "000001.npz").write_bytes(b"half a file")
    again = []
    monkeypatch.setattr(TraceWriter, "rows", lambda self, batch: again.append(batch) or before(self, batch))
    acceptance_trace = recorded(models, out, "--temperature", "0.8")
    assert len(again) == 3
    assert not {task.text for batch in again for task in batch} & {task.text for task in done[0]}
    for name in COLUMNS:
        assert np.array_equal(getattr(whole, name), getattr(acceptance_trace, name), equal_nan=True), name


def test_a_file_of_other_settings_or_of_another_run_is_not_overwritten(models, tmp_path):
    out = tmp_path / "acceptance_trace.parquet"
    with only_one(out):
        assert f"{out}: another run is writing it; expected one at a time" in refused(words(models, out))
    assert len(recorded(models, out, "--limit", "1")) > 0
    assert "limit 1, not 2" in refused(words(models, out, "--limit", "2"))
    assert "tokens 20, not 21" in refused(words(models, out, "--limit", "1", "--tokens", "21"))
    out.write_bytes(b"something else")
    assert "cannot be read as Parquet" in refused(words(models, out))
    assert out.read_bytes() == b"something else"


@pytest.mark.parametrize(
    ("more", "said"),
    [
        (["--out", "acceptance_trace.yaml"], "expected the name of a .parquet file"),
        (["--skip-layers", "7"], "[7] are not some of the layers 0 to 2"),
        (["--skip-layers", ""], "--skip-layers goes with --drafter skip"),
        (["--drafter", "medusa"], "drafter 'medusa' is unknown; valid: lookup, separate, skip"),
        (["--draft", "x"], "--draft goes with --drafter separate"),
        (["--draft-sampling", "--width", "3"], "a sampled draft is a chain; expected --width 1"),
        (["--width", "0"], "--width: 0 is not between 1 and 64"),
        (["--batch", "0"], "--batch 0: expected"),
        (["--lookup-ngrams", ":4"], "--lookup-ngrams: ':4'; expected the fewest and most tokens of a match"),
        (["--longest-prompt", "1"], "no prompt is at most 1 tokens long"),
        (["--dtype", "float8"], "dtype 'float8' is unknown"),
    ],
)
def test_a_mistake_is_one_line(more, said, models, tmp_path):
    assert said in refused(words(models, tmp_path / "acceptance_trace.parquet", *more))
    assert not (tmp_path / "acceptance_trace.parquet").exists()


def test_too_little_memory_keeps_what_is_done(models, tmp_path, monkeypatch):
    stopped(monkeypatch, 1, made.torch.OutOfMemoryError("CUDA"))
    assert "too little memory for 2 texts at once" in refused(words(models, tmp_path / "acceptance_trace.parquet"))
    assert len(list((tmp_path / "acceptance_trace.parquet.parts").glob("*.npz"))) == 1


def test_a_model_that_answers_nan_and_a_full_disk_are_one_line(models, tmp_path, monkeypatch):
    before = TraceWriter.rows

    def broken(self: TraceWriter, batch):
        return {text: rows._replace(confidence=rows.confidence * np.nan) for text, rows in before(self, batch).items()}

    with monkeypatch.context() as patch:
        patch.setattr(TraceWriter, "rows", broken)
        assert "are not numbers; a wider --dtype" in refused(words(models, tmp_path / "a.parquet"))

    monkeypatch.setattr("numpy.savez_compressed", Mock(side_effect=OSError(28, "No space left on device")))
    assert "cannot be written: No space left on device" in refused(words(models, tmp_path / "b.parquet"))


def test_a_text_stays_within_the_models_positions(models, tmp_path):
    """512 positions: with 500 output tokens only prompts of up to 12 are left."""
    shorter = recorded(models, tmp_path / "a.parquet", "--longest-prompt", "100")
    assert shorter.about["sequences"] == {"chat": 3, "code": 3}
    made.prompt_file(tmp_path / "longer.jsonl", count=5)
    longer = ["--prompts", str(tmp_path / "longer.jsonl"), "--tokens", "500"]
    assert recorded(models, tmp_path / "b.parquet", *longer).about["sequences"] == {"chat": 3, "code": 3}
    assert "fewer --tokens" in refused(words(models, tmp_path / "c.parquet", "--tokens", "510"))


def test_another_vocabulary_and_a_missing_extra_are_one_line(models, tmp_path, monkeypatch):
    other = words(models, tmp_path / "a.parquet", "--draft", str(models / "other_words"), drafter="separate")
    assert "token 'w10' is 10 against none" in refused(other)
    monkeypatch.setattr("profiler.models.loading.find_spec", lambda name: None if name == "torch" else name)
    said = refused(words(models, tmp_path / "acceptance_trace.parquet"))
    assert said == 'specsim profile needs torch: pip install "specsim[profiler]"'
