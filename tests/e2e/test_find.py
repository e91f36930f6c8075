"""`specsim find`: from words to a table, a figure and a folder in which the search goes on."""

from __future__ import annotations

import re
from pathlib import Path

import pandas as pd
import pytest

import specsim
from specsim.cli import main
from specsim.errors import SpecsimError

WORDS = ["trace=poisson", "profile=llama70b_1b_4xa100", "requests=30", "seed=0,1", "--rates", "0.5..16"]


def found_in(folder: Path) -> pd.DataFrame:
    return pd.read_csv(folder / "find.csv")


def test_it_compares_schedulers_and_goes_on_where_it_was(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous,adaserve", *WORDS, "--within", "20%", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr()
    table = found_in(tmp_path).set_index("scheduler")
    assert (table["keeps_rps"] < table["misses_rps"]).all()
    assert (table["misses_rps"] <= 1.2 * table["keeps_rps"]).all()
    assert table["keeps_rps"]["adaserve"] > table["keeps_rps"]["continuous"]
    assert (table["seeds"] == 2).all()
    assert (table["gpus"] == 4).all()
    assert "highest rate at which 90% of the worst class attain\n" in said.out
    assert re.search(r"\nscheduler +rate +difference to continuous\n", said.out)
    interval = r"[\d.]+ ± [\d.]+"
    assert re.search(rf"\ncontinuous +{interval}\* +-\nadaserve +{interval}\* +\+{interval}\n", said.out)
    assert "note: scheduler=continuous: too short to judge: " in said.out
    assert "\n* a run at the rates around the answer is too short to judge" in said.out
    assert (table["keeps_too_short"] > 0).all()
    assert (tmp_path / "find.png").is_file()
    before = (tmp_path / "find.csv").read_bytes()
    rows = sorted((tmp_path / "summaries").iterdir())
    assert main(words) == 0
    assert (tmp_path / "find.csv").read_bytes() == before
    assert sorted((tmp_path / "summaries").iterdir()) == rows


def test_it_says_where_no_rate_or_every_rate_keeps_the_target(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", *WORDS[:-2], "--within", "50%", "--out", str(tmp_path)]
    assert main([*words, "--rates", "30..60"]) == 0
    assert "scheduler=continuous: misses the target at 30 requests/s, the lowest tested" in capsys.readouterr().out
    assert main([*words, "--rates", "0.01..0.02", "--target", "1%"]) == 0
    assert "scheduler=continuous: keeps the target at 0.02 requests/s, the highest tested" in capsys.readouterr().out


FEW = ["trace=poisson", "profile=llama8b_1b_h100", "requests=20", "seed=0,1", "--rates", "2..4", "--within", "100%"]


def test_what_matters_to_one_line_alone_may_be_set_for_all(tmp_path, capsys, unrendered, monkeypatch):
    """Later rounds are of fewer lines, to some of which the setting means nothing."""
    monkeypatch.chdir(tmp_path)
    words = ["scheduler=continuous", "replicas=1,8", "router=least_tokens"]
    assert main(["find", *words, *FEW[:-4], "--rates", "0.25..64", "--within", "40%", "--out", "found"]) == 0
    table = found_in(Path("found"))
    assert len(table) == 2
    assert table["keeps_rps"].nunique() == 2
    capsys.readouterr()
    assert main(["sweep", "status", "found"]) == 0
    runs = len(specsim.load_sweep("found"))
    assert capsys.readouterr().out.startswith(f"found: {runs} of {runs} runs done, 0 failed, 0 left\n")


def test_a_class_of_which_no_request_arrived_in_a_run_is_one_line(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", "trace=poisson", "profile=llama8b_1b_h100", "seed=0,1,2,3,4"]
    words += ["--of", "summarization", "--rates", "1..2", "--within", "100%", "--out", str(tmp_path)]
    assert main([*words, "requests=4"]) == 2
    assert "no request of it arrived at 1 requests/s with seed " in capsys.readouterr().err.splitlines()[-1]


def test_a_mistake_in_python_is_one_line():
    with pytest.raises(SpecsimError, match="find: rps is what is looked for"):
        specsim.find({"rps": [1, 2]})
    with pytest.raises(SpecsimError, match=r"target=0, .*expected shares in \(0, 1\], and two rates, the lower first"):
        specsim.find({}, target=0)
    for wrong in ({"target": "90%"}, {"rates": (1,)}, {"rates": 4}):
        with pytest.raises(SpecsimError, match="expected shares in"):
            specsim.find({}, **wrong)
