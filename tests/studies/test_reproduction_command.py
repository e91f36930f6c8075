"""`python -m studies.reproduction` on a tiny experiment: quick, whole, interrupted, and refused."""

import pandas as pd
import pytest

from specsim.runs import sweep
from studies.reproduction.__main__ import main
from studies.reproduction.experiment import FOLDER
from tests.studies.test_reproduction import TINY, tiny


def test_the_quick_form_ends_in_rows_figures_and_a_page_without_verdicts(tmp_path, started, capsys):
    out = tmp_path / "quick"
    assert main([str(tiny(tmp_path)), "--quick", "--out", str(out)]) == 0
    assert len(started) == 4  # Two systems, two rates, one seed.
    assert "tiny: 1 of 1 experiments" in capsys.readouterr().out.splitlines()
    assert list(pd.read_parquet(out / "tiny_attainment.parquet")["x"]) == [1, 4, 1, 4]
    for name in ("tiny_attainment", "tiny_latency"):
        assert (out / "figures" / f"{name}.png").read_bytes()[:4] == b"\x89PNG"
    assert "none (quick)" in (out / "reproduction.md").read_text(encoding="utf-8")


def test_the_experiments_are_listed_with_their_figures_and_nothing_runs(tmp_path, started, capsys):
    assert main(["--list"]) == 0
    said = capsys.readouterr().out.splitlines()
    files = sorted(FOLDER.glob("*.yaml"))
    assert [line for line in said if not line.startswith(" ")] == [f"{file.stem}:" for file in files]
    assert "  adaserve_fig1_strict  AdaServe, Fig. 1: attainment of the strict class" in said
    assert main(["--list", str(tiny(tmp_path))]) == 0
    listed = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert listed == ["tiny:", "tiny_attainment", "tiny_latency"]
    assert not started


@pytest.mark.usefixtures("unrendered")
def test_the_quick_form_is_not_written_over_the_whole_one(tmp_path, capsys):
    text, out = TINY.replace("seeds: [0, 1]", "seeds: [0]"), tmp_path / "out"
    file = tiny(tmp_path, text)
    assert main([str(file), "--out", str(out)]) == 0
    whole = (out / "tiny_attainment.parquet").read_bytes()
    assert main([str(file), "--quick", "--out", str(out)]) == 2
    assert f"--out {out}: holds tiny_attainment in its whole form; --quick expects" in capsys.readouterr().err
    assert (out / "tiny_attainment.parquet").read_bytes() == whole
    # Nor where the whole form no longer stands, or cannot be read.
    tiny(tmp_path, text.replace("[99, 98, 90]", "[99, 98, 91]"))
    assert main([str(file), "--quick", "--out", str(out)]) == 2
    assert "holds tiny_attainment in its whole form" in capsys.readouterr().err
    assert (out / "tiny_attainment.parquet").read_bytes() == whole
    (out / "tiny_attainment.parquet").write_bytes(whole[:100])
    assert main([str(file), "--quick", "--out", str(out)]) == 2
    assert (out / "tiny_attainment.parquet").read_bytes() == whole[:100]


@pytest.mark.usefixtures("unrendered")
def test_what_was_run_before_an_interruption_is_not_run_again(tmp_path, started, monkeypatch, capsys):
    file, whole, broken = tiny(tmp_path), tmp_path / "whole", tmp_path / "broken"
    words = [str(file), "--page", str(tmp_path / "page.md"), "--out"]
    assert main([*words, str(whole)]) == 0
    assert len(started) == 12
    really, runs = sweep.execute, []

    def stop(*given: object, **named: object) -> object:
        if len(runs) == 8:
            raise KeyboardInterrupt
        runs.append(given)
        return really(*given, **named)

    monkeypatch.setattr(sweep, "execute", stop)
    assert main([*words, str(broken)]) == 130
    assert "the runs that ended are kept; the same command goes on" in capsys.readouterr().err
    assert not list(broken.glob("*.parquet"))
    monkeypatch.setattr(sweep, "execute", really)
    started.clear()
    assert main([*words, str(broken)]) == 0
    assert len(started) == 12 - 8
    for name in ("tiny_attainment", "tiny_latency"):
        assert (broken / f"{name}.parquet").read_bytes() == (whole / f"{name}.parquet").read_bytes()
    started.clear()
    assert "other code" not in capsys.readouterr().out
    monkeypatch.setattr("specsim.runs.provenance.package_sha256", lambda: "another")
    assert main([*words, str(broken), "--redraw"]) == 0
    assert not started
    assert "note: rows of 2 figures, tiny_attainment the first, were made by other code" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("there", "instead", "said"),
    [
        ("scheduler=fcfs", "scheduler=fcsf", "systems.One by one: scheduler=fcsf: unknown; did you mean 'fcfs'?"),
        ("scheduler=fcfs", "'scheduler=fcfs,sarathi'", "systems.One by one: a setting has several values; expected"),
        ("key: rps", "key: rsp", "systems.Batches: rsp: unknown key; did you mean 'rps'?"),
        ("slo_attainment", "slo_attainmnt", "metric: slo_attainmnt: no column of a sweep's table; did you mean"),
    ],
)
def test_a_wrong_word_is_one_line(there, instead, said, tmp_path, capsys):
    file = tiny(tmp_path, TINY.replace(there, instead))
    assert main([str(file), "--quick", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"specsim: {file}: ")
    assert said in line


@pytest.mark.usefixtures("empty_cache")
def test_a_toy_supports_no_verdict(tmp_path, capsys, started):
    assert main(["adaserve_fig8_llama", "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert "AdaServe: only the shipped toy of trace=adaserve_fig8 is there; expected the published trace" in line
    assert not started


@pytest.mark.usefixtures("unrendered")
def test_rows_that_are_not_there_or_no_longer_stand_are_named(tmp_path, capsys):
    file, out = tiny(tmp_path), tmp_path / "out"
    assert main([str(file), "--redraw", "--out", str(out)]) == 2
    assert f"--out {out}: holds no figure's rows" in capsys.readouterr().err
    assert main([str(file), "--quick", "--out", str(out)]) == 0
    tiny(tmp_path, TINY.replace("[99, 98, 90]", "[99, 98, 91]"))
    assert main([str(file), "--redraw", "--out", str(out)]) == 0
    assert "note: left out:" in capsys.readouterr().out
    assert "tiny_attainment" not in (out / "reproduction.md").read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.usefixtures("unrendered", "empty_cache")
def test_every_shipped_experiment_runs_in_its_quick_form(tmp_path):
    assert main(["--quick", "--out", str(tmp_path / "out")]) == 0
