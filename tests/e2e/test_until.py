"""`until`: a sweep gets seeds until the attainment of every point is known as well as was asked for."""

import re

import pytest

from specsim import load_sweep, simulation, sweep
from specsim.cli import main
from specsim.config.configured import from_axes
from specsim.runs import until as of_until
from specsim.runs.plan import checked
from specsim.runs.until import check_until
from tests.made import refusal

SETTINGS = {"trace": "poisson", "requests": 20, "profile": "llama8b_1b_h100", "acceptance": "bernoulli"}
AXES = {"scheduler": ["continuous", "fcfs"], "rps": [30, 1]}
WORDS = ["scheduler=continuous,fcfs", "rps=30,1", *(f"{key}={value}" for key, value in SETTINGS.items())]


def swept(until="14 points"):
    return sweep(AXES, until=until, progress=False, **SETTINGS)


@pytest.fixture(scope="module")
def runs():
    return swept()


def test_every_point_is_known_as_well_as_was_asked_for(runs):
    points = runs.over_seeds()
    assert (points["slo_attainment_half_width"] <= 0.14).all()
    assert points["seeds"].min() == of_until.LEAST_SEEDS
    assert points["seeds"].max() > of_until.LEAST_SEEDS


@pytest.mark.parametrize(
    ("attained", "more"),
    [
        ([0.9] * 5, []),
        # Half the interval is 2.776 x 0.01 / sqrt(5) = 1.24 points.
        ([0.49, 0.51, 0.49, 0.51, 0.5], []),
        # 2.776 x 0.02 / sqrt(5) = 2.48 points: 5 x 1.24^2 = 7.7 seeds.
        ([0.48, 0.52, 0.48, 0.52, 0.5], [5, 6, 7]),
        ([0.1, 0.9, 0.1, 0.9, 0.5], [5, 6, 7, 8, 9]),
        ([0.1, 0.9, 0.1, None, 0.5], []),
    ],
)
def test_the_next_seeds_follow_from_how_wide_the_interval_is(attained, more):
    point = {"scheduler": ["fcfs"], "seed": range(5)}
    seeds = of_until._Seeds(checked(from_axes(point, SETTINGS)), 0.02)
    assert seeds.more() == []
    for each, share in zip(seeds.points(), attained, strict=True):
        seeds.hear(each, share)
    assert [each.config["seed"] for each in seeds.more()] == more


def test_a_point_gets_no_more_seeds_than_the_most(monkeypatch):
    monkeypatch.setattr(of_until, "MOST_SEEDS", 6)
    runs = swept("0.1 points")
    assert runs.table.groupby(["scheduler", "rps"])["seed"].nunique().max() == 6
    (note,) = runs.whole_notes
    wide = int((runs.over_seeds()["slo_attainment_half_width"] > 0.001).sum())
    said = f"; {wide} of 4 points stay wider with 6 seeds, the most; longer runs narrow it (requests=)"
    assert note.endswith(said)


def test_it_goes_on_where_it_was_stopped(tmp_path, runs, started, capsys, monkeypatch):
    command = ["run", "-m", *WORDS, "--until", "14 points", "--keep", "summary"]
    really = simulation.run

    def breaks(*given):
        if len(started) == 22:
            raise KeyboardInterrupt
        return really(*given)

    with monkeypatch.context() as broken:
        broken.setattr(simulation, "run", breaks)
        assert main([*command, f"out={tmp_path / 'one'}"]) == 130
    said = capsys.readouterr().err.splitlines()[-1]
    assert re.search(r"22 of \d+ runs are kept", said)
    assert f"; the same command with out={tmp_path / 'one'} goes on" in said
    assert main([*command, f"out={tmp_path / 'one'}"]) == 0
    assert len(started) == len(runs)
    assert main([*command, f"out={tmp_path / 'two'}", "--jobs", "2"]) == 0
    tables = [(tmp_path / name / "table.csv").read_bytes() for name in ("one", "two")]
    assert tables[0] == tables[1]
    assert len(load_sweep(tmp_path / "one")) == len(runs)
    ran = len(started)
    capsys.readouterr()
    assert main([*command, f"out={tmp_path / 'one'}"]) == 0
    assert len(started) == ran
    assert f"note: {runs.whole_notes[0]}\n" in capsys.readouterr().out
    assert main(["sweep", "status", str(tmp_path / "one")]) == 0
    assert f"{len(runs)} of {len(runs)} runs done, 0 failed, 0 left" in capsys.readouterr().out


@pytest.mark.parametrize(("words", "share"), [("2 points", 0.02), (" .5points", 0.005), (None, float("inf"))])
def test_a_width_is_in_points(words, share):
    assert check_until(words) == pytest.approx(share)


@pytest.mark.parametrize("words", ["2%", "points", "0 points", "51 points", 2])
def test_another_width_is_one_line_before_anything_runs(words, nothing_runs):
    said = refusal(swept, words)
    assert said.startswith("until=")
    assert ": expected half the width of an interval, above 0 up to 50, such as" in said
