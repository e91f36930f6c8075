import json
import subprocess
import sys
from unittest.mock import Mock

import pytest
import yaml

pytest.importorskip("torch")

from profiler.latency.profile_file import UNFIT
from profiler.latency.samples import read_samples
from specsim.cli import main
from specsim.latency.profile import load_profile

pytestmark = pytest.mark.torch
PAIR = ["--random-weights", "tiny-llama", "tiny-llama-skip1"]
GRID = "requests: [1, 2]\ncontexts: [16, 64]\nchunks: [8, 32]\nseconds: 0.001\n"


def profile_latency(*words):
    return main(["profile", "latency", "--device", "cpu", "--quick", *map(str, words)])


def fitted(out, *words, run=profile_latency):
    """Run a command that writes a profile there, whose exit code tells whether it is fit for use, and return the file.

    A busy machine may be too noisy for any form of a two-layer model.
    """
    code = run(*words, "--out", out)
    assert code == (0 if load_profile(out).unfit is None else UNFIT)
    return out


@pytest.fixture(scope="module")
def swept(tmp_path_factory):
    """A two-layer random Llama and its one-layer draft, measured once for all the tests below."""
    folder = tmp_path_factory.mktemp("swept")
    (folder / "grid.yaml").write_text(GRID)
    fitted(folder / "mine.yaml", *PAIR, "--grid", folder / "grid.yaml")
    return folder


@pytest.mark.slow
def test_from_nothing_to_a_run(swept, capsys):
    out, words = swept / "run", ["+scheduler=vllm_spec", "trace=poisson", "requests=50", "any_fit=true"]
    assert main(["run", *words, f"profile={swept / 'mine.yaml'}", f"out={out}"]) == 0
    assert "50 completed + 0 rejected = 50 arrived" in capsys.readouterr().out
    assert json.loads((out / "metrics.json").read_text())["completed"] == 50


@pytest.mark.slow
def test_the_profile_says_what_was_measured_where_and_how_well_it_fits(swept):
    profile = load_profile(swept / "mine.yaml")
    assert (profile.name, set(profile.target.fit_error)) == ("mine", {"decode", "verify", "prefill", "mixed"})
    assert (set(profile.draft.fit_error), profile.draft.weights_bytes) == ({"draft", "catchup", "prefill"}, 0)
    assert profile.target.overhead_s > 0
    (entry,) = profile.provenance
    assert {"hardware", "driver", "versions", "measured", "sha256"} <= set(entry)
    assert entry["versions"].startswith("torch 2.")
    written = yaml.safe_load((swept / "mine.yaml").read_text())
    assert written["checks"]["knee_tokens"]["target"]["compute_over_bandwidth"] > 0
    assert written["target"]["standard_errors"][written["form"]]
    measured = [each for each in read_samples(swept / "mine.samples.parquet")[1] if each.role == "target"]
    assert written["target"]["valid"]["batched_tokens"] == [1, max(each.batched_tokens for each in measured)]


@pytest.mark.slow
def test_figures_and_a_second_fit(swept, tmp_path, capsys):
    assert {each.name for each in swept.glob("*.png")} == {"mine-error.png", "mine-tokens.png"}
    words = ["profile", "fit", swept / "mine.samples.parquet", "--figures", tmp_path]
    fitted(tmp_path / "mine.yaml", *words, run=lambda *words: main([str(word) for word in words]))
    assert (tmp_path / "mine.yaml").read_bytes() == (swept / "mine.yaml").read_bytes()
    assert "held-out error" in capsys.readouterr().out


@pytest.mark.slow
def test_samples_are_kept_whole_where_nothing_fits_them(swept, tmp_path, monkeypatch, capsys):
    """On a borrowed GPU the time is spent on measuring, whatever that machine lacks."""
    monkeypatch.setattr("profiler.models.loading.missing_for_a_fit", lambda: ["scipy", "matplotlib"])
    samples = tmp_path / "m.samples.parquet"
    samples.write_bytes((swept / "mine.samples.parquet").read_bytes())
    assert profile_latency(*PAIR, "--grid", swept / "grid.yaml", "--out", tmp_path / "m.yaml") == 0
    assert not (tmp_path / "m.yaml").exists()
    told = capsys.readouterr().out
    assert f"without scipy and matplotlib it is to be fitted elsewhere: specsim profile fit {samples} --out" in told


@pytest.mark.slow
def test_weights_from_a_folder(tmp_path):
    import torch

    from profiler.models.random_weights import random_model
    from profiler.models.shapes import TINY_LLAMA

    random_model(TINY_LLAMA, device=torch.device("cpu"), dtype=torch.float32).save_pretrained(tmp_path / "tiny")
    (tmp_path / "grid.yaml").write_text(GRID)
    pair = ["--target", tmp_path / "tiny", "--draft", tmp_path / "tiny"]
    target = load_profile(fitted(tmp_path / "m.yaml", *pair, "--grid", tmp_path / "grid.yaml")).target
    sizes = target.weights_bytes, target.kv_bytes_per_token
    assert (target.name, *sizes) == ("tiny", 4 * TINY_LLAMA.parameters, 2 * 2 * 2 * 16 * 4)


@pytest.mark.slow
def test_a_sweep_of_the_fused_path_says_so(swept, tmp_path):
    more = ["--grid", swept / "grid.yaml", "--passes", "fused", "--attention", "split"]
    out = fitted(tmp_path / "mine.yaml", *PAIR, *more)
    facts, samples = read_samples(tmp_path / "mine.samples.parquet")
    assert (facts["passes"], {each.status for each in samples}) == ("fused", {"ok"})
    assert any(each.startswith("kernels of specsim's fused path: QKV") for each in load_profile(out).assumptions)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        ([], "--target: missing; expected a model, or a shape after --random-weights"),
        (["--random-weights", "tiny-llama"], "--draft: missing"),
        (["--random-weights", "tinylama", "tiny-llama"], "'tinylama': unknown shape; did you mean 'tiny-llama'"),
        ([*PAIR, "--tp", "2"], "tp 2: --link is missing; expected nvlink4 (H100, H200) or nvlink3 (A100)"),
        ([*PAIR, "--tp", "2", "--link", "nvlink4"], "tp 2: a shard is measured on a GPU; expected --device cuda"),
        ([*PAIR, "--tp", "3", "--link", "nvlink4"], "tp 3: the model of link nvlink4 is for 2, 4 or 8 GPUs"),
        ([*PAIR, "--tp", "8", "--link", "nvlink4"], "tp 8: tiny-llama has 4 heads"),
        ([*PAIR, "--grid", "none.yaml"], "none.yaml: no such grid file"),
        ([*PAIR, "--attention", "flx"], "attention 'flx' is unknown; did you mean 'flex'"),
        (
            ["--target", "a/b", "--draft", "a/b", "--tp", "2", "--link", "nvlink3"],
            "tp 2: a/b cannot be sharded; expected --random-weights and a shape",
        ),
    ],
)
def test_bad_input_is_one_line(refused, words, told):
    assert told in refused("profile", "latency", "--device", "cpu", "--quick", *words, "--out", "m.yaml")


def test_a_profile_over_its_own_samples_is_refused(tmp_path, capsys):
    (tmp_path / "m.yaml").write_bytes(b"raw samples")
    (tmp_path / "link.yaml").symlink_to(tmp_path / "m.yaml")
    assert profile_latency(*PAIR, "--out", tmp_path / "m.yaml", "--samples", tmp_path / "link.yaml") == 2
    assert main(["profile", "fit", str(tmp_path / "link.yaml"), "--out", str(tmp_path / "m.yaml")]) == 2
    err = capsys.readouterr().err
    assert err == 2 * f"specsim: --out {tmp_path / 'm.yaml'}: is the samples file; expected another for the profile\n"
    assert (tmp_path / "m.yaml").read_bytes() == b"raw samples"


@pytest.mark.slow
def test_a_grid_of_too_few_shapes_is_refused_before_anything_is_measured(tmp_path, capsys, monkeypatch):
    tiny = "requests: [1]\ncontexts: [16]\nchunks: [8, 32]\nleaves: [1]\nseconds: 0.001\n"
    (tmp_path / "grid.yaml").write_text(tiny)
    words = [*PAIR, "--grid", tmp_path / "grid.yaml", "--out", tmp_path / "m.yaml"]
    with monkeypatch.context() as patch:
        patch.setattr("profiler.latency.sweep.LatencySweep.run", lambda _: pytest.fail("measured"))
        assert profile_latency(*words) == 2
    assert "target: 6 shapes of pass in the grid and the samples; expected 8 at least to fit" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["grid.yaml"]


@pytest.mark.slow
def test_a_small_grid_counts_with_what_is_measured_already(swept, tmp_path, capsys):
    (tmp_path / "m.samples.parquet").write_bytes((swept / "mine.samples.parquet").read_bytes())
    (tmp_path / "grid.yaml").write_text("requests: [1]\ncontexts: [16]\nchunks: [8]\nseconds: 0.001\n")
    fitted(tmp_path / "m.yaml", *PAIR, "--grid", tmp_path / "grid.yaml")


def test_an_interruption_says_what_is_kept(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("profiler.latency.command.measure", Mock(side_effect=KeyboardInterrupt))
    for said in ("nothing is kept", f"{tmp_path}/m.samples.parquet keeps what was done; the same command goes on"):
        assert profile_latency(*PAIR, "--out", tmp_path / "m.yaml") == 130
        assert capsys.readouterr().err == f"specsim: interrupted; {said}\n"
        (tmp_path / "m.samples.parquet").touch()


def test_a_place_that_cannot_be_written(tmp_path, capsys):
    (tmp_path / "file").write_text("")
    assert profile_latency(*PAIR, "--out", tmp_path / "file" / "m.yaml") == 2
    assert "file/m.yaml: cannot be written" in capsys.readouterr().err
    assert profile_latency(*PAIR, "--out", tmp_path) == 2
    assert "is a folder; expected the file of a profile" in capsys.readouterr().err


def test_help_and_a_fit_and_reading_a_recording_need_no_torch():
    code = (
        "import sys; sys.modules['torch'] = None; from specsim.cli import main\n"
        "import profiler.acceptance.trace_file\n"
        "from tools.gpu_session.__main__ import main as session\n"
        "for run, words in (main, ['profile']), (main, ['profile', 'latency']), (session, []):\n"
        "    try: run([*words, '--help'])\n"
        "    except SystemExit as done: assert done.code == 0\n"
        "assert main(['profile', 'fit', 'none.parquet', '--out', 'x.yaml']) == 2\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "none.parquet: no such samples file" in done.stderr
