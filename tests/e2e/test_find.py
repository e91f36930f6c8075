"""`specsim find`: from words to a table, a figure and a folder in which the search goes on."""

from __future__ import annotations

from pathlib import Path

import pandas as pd
import pytest

import specsim
from specsim.cli import main
from specsim.errors import SpecsimError

WORDS = ["trace=poisson", "profile=llama70b_1b_4xa100", "requests=60", "seed=0,1", "--rates", "0.5..16"]


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
    assert "highest rate at which 90% of the worst class attain, requests/s" in said.out
    assert "too short to judge" in said.out
    assert (tmp_path / "find.png").is_file()
    before = (tmp_path / "find.csv").read_bytes()
    parts = sorted((tmp_path / "parts").iterdir())
    assert main(words) == 0
    assert (tmp_path / "find.csv").read_bytes() == before
    assert sorted((tmp_path / "parts").iterdir()) == parts


def test_it_says_where_no_rate_or_every_rate_keeps_the_target(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", *WORDS[:-2], "--within", "50%", "--out", str(tmp_path)]
    assert main([*words, "--rates", "30..60"]) == 0
    assert "continuous: misses the target at 30 requests/s, the lowest tested" in capsys.readouterr().out
    assert main([*words, "--rates", "0.01..0.02", "--target", "1%"]) == 0
    assert "continuous: keeps the target at 0.02 requests/s, the highest tested" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--target", "90"], "--target 90: expected a share above 0 up to 1, or a percentage such as 90%"),
        (["--rates", "3"], "--rates 3: expected LOW..HIGH in requests/s, such as 0.5..64"),
        (["--rates", "3..1"], "--rates 3..1: expected LOW..HIGH in requests/s, such as 0.5..64"),
        (["--within", "0"], "--within 0: expected a share above 0 up to 1, or a percentage such as 90%"),
        (["rps=3"], "rps: find chooses it; expected --rates LOW..HIGH"),
        (["--of", "cat"], "of=cat: no class of the requests; did you mean 'chat'?"),
        (["scheduler=adaserv"], "scheduler=adaserv: unknown; did you mean 'adaserve'?"),
        (["concurrency=3"], "rps: 0.5 and concurrency=3: clients send as they are answered; expected one of them"),
    ],
)
def test_a_mistake_is_one_line(words, said, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["find", "trace=poisson", "requests=5", *words]) == 2
    assert capsys.readouterr().err.splitlines()[-1] == f"specsim: {said}"
    assert not list(tmp_path.rglob("*.csv"))


def test_from_python_it_is_the_same(tmp_path, capsys, unrendered):
    words = ["find", "scheduler=continuous", *WORDS, "--within", "20%", "--out", str(tmp_path)]
    assert main(words) == 0
    found = specsim.find(
        {"scheduler": ["continuous"], "seed": [0, 1]},
        rates=(0.5, 16),
        within=0.2,
        trace="poisson",
        profile="llama70b_1b_4xa100",
        requests=60,
    )
    mine = found_in(tmp_path)
    for column in ("keeps_rps", "misses_rps", "mean_rps", "half_width_rps"):
        assert found.table[column].tolist() == mine[column].tolist()
    assert found.figure().axes
    assert len(found.sweep) == 2 * len(found.lines[0].tested)
    with pytest.raises(SpecsimError, match="find: rps is what is looked for"):
        specsim.find({"rps": [1, 2]})
    with pytest.raises(SpecsimError, match=r"target=0, .*expected shares in \(0, 1\], and rates that rise"):
        specsim.find({}, target=0)
