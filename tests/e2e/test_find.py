"""`specsim find`: from words to a table, a figure and a folder in which the search goes on."""

import re

import pandas as pd
import pytest

import specsim
from specsim.cli import main
from tests.files import contents
from tests.made import refusal

WORDS = ["trace=poisson", "profile=llama70b_1b_4xa100", "requests=30", "seed=0,1", "--rates", "0.5..16"]


def test_it_compares_schedulers_and_goes_on_where_it_was(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous,adaserve", *WORDS, "--within", "20%", "--out", str(tmp_path)]
    assert main(words) == 0
    said = capsys.readouterr()
    table = pd.read_csv(tmp_path / "find.csv").set_index("scheduler")
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
    before = contents(tmp_path, "find.png")
    assert main(words) == 0
    assert contents(tmp_path, "find.png") == before


def test_it_says_where_no_rate_or_every_rate_keeps_the_target(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", *WORDS[:-2], "--within", "50%", "--out", str(tmp_path)]
    assert main([*words, "--rates", "30..60"]) == 0
    assert "scheduler=continuous: misses the target at 30 requests/s, the lowest tested" in capsys.readouterr().out
    assert main([*words, "--rates", "0.01..0.02", "--target", "1%"]) == 0
    assert "scheduler=continuous: keeps the target at 0.02 requests/s, the highest tested" in capsys.readouterr().out


@pytest.mark.usefixtures("here", "unrendered")
def test_what_matters_to_one_line_alone_may_be_set_for_all(capsys):
    """Later rounds are of fewer lines, to some of which the setting means nothing."""
    words = ["scheduler=continuous", "replicas=1,8", "router=least_tokens", "trace=poisson", "requests=20", "seed=0,1"]
    words += ["profile=llama8b_1b_h100", "--rates", "0.25..64", "--within", "40%", "--out", "found"]
    assert main(["find", *words]) == 0
    table = pd.read_csv("found/find.csv")
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
    assert "find: rps is what is looked for" in refusal(specsim.find, {"rps": [1, 2]})
    assert "target=0, " in refusal(specsim.find, {}, target=0)
    for wrong in ({"target": 0}, {"target": "90%"}, {"rates": (1,)}, {"rates": 4}):
        assert "expected shares in (0, 1], and two rates, the lower first" in refusal(specsim.find, {}, **wrong)
