"""`specsim plot`: figures of one run, a comparison of several, and a line for what is no run."""

from pathlib import Path

import pytest

from specsim.cli import main

WORDS = ["scheduler=vllm_spec", "trace=poisson", "requests=12", "acceptance=bernoulli", "profile=llama8b_1b_h100"]


@pytest.fixture(scope="module")
def stored(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs") / "good"
    assert main(["run", *WORDS, "passes=true", f"out={folder}"]) == 0
    return folder


@pytest.mark.usefixtures("unrendered")
def test_a_run_has_figures_and_what_is_no_run_folder_or_needs_a_sweep_is_told(stored, here, refused, capsys):
    assert main(["plot", str(stored)]) == 0
    drawn = {f"{stem}.{kind}" for stem in ("slo_by_class", "latency_cdf", "timeline") for kind in ("png", "pdf")}
    assert {*capsys.readouterr().out.split()} == {str(stored / "figures" / each) for each in drawn}
    for path in (here / "nope", here, Path(__file__)):
        assert str(path) in refused("plot", str(path))
    assert str(stored) in refused("plot", str(stored.with_name("goood")))
    assert "sweep" in refused("plot", str(stored), "--against", "fcfs")
    assert "no run folder" in refused("report", "none", "--out", "page.html")


def test_figures_of_a_sweep_over_nothing_numeric(tmp_path, capsys):
    assert main(["run", "-m", *WORDS[1:], "scheduler=fcfs,vllm_spec", f"out={tmp_path}"]) == 0
    capsys.readouterr()
    assert main(["plot", str(tmp_path)]) == 0
    files = capsys.readouterr().out.splitlines()
    assert set(files) == {str(tmp_path / "figures" / f"comparison.{kind}") for kind in ("png", "pdf")}
    before = {file: Path(file).read_bytes() for file in files}
    assert min(map(len, before.values())) > 1000
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
    files = [Path(line) for line in capsys.readouterr().out.splitlines() if line.endswith(".png")]
    assert [file.stem for file in files] == ["attainment", "attainment_difference", "goodput", "goodput_difference"]


def test_a_wrong_choice_is_told_in_a_line(swept, refused):
    command = ["plot", str(swept), "--out", "figures"]
    assert "'scheduler.num_speculative_tokens'" in refused(*command, "--x", "scheduler.speculative_tokens")
    assert "against=7" in refused(*command, "--against", "7")
