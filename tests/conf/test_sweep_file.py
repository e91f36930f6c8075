"""A sweep as a YAML file: its points, and every mistake in one as a line."""

from __future__ import annotations

from pathlib import Path

import pytest

from specsim.config.configured import from_file, from_words
from specsim.config.sweep_file import points_of
from tests.made import refusal


def written(folder: Path, text: str) -> Path:
    file = folder / "sweep.yaml"
    file.write_text(text)
    return file


def texts(folder: Path, text: str, *words: str) -> list[dict[str, str]]:
    return [
        {key: str(value) for key, value in point.items()} for point in points_of(written(folder, text), list(words))
    ]


def test_a_grid_is_the_words_of_a_multirun(tmp_path: Path) -> None:
    file = "run: {trace: poisson, requests: 9}\ngrid: {scheduler: [fcfs, continuous], rps: 'range(1,3)'}\nseeds: 2\n"
    words = ["trace=poisson", "requests=9", "scheduler=fcfs,continuous", "rps=range(1,3)", "seed=0,1"]
    found, typed = from_file(written(tmp_path, file), []), from_words(words, sweep=True)
    assert [each.config for each in found] == [each.config for each in typed]
    assert len(found) == 8


def test_zipped_values_stand_side_by_side(tmp_path: Path) -> None:
    found = texts(tmp_path, "zip: {rps: [1, 2], replicas: [2, 4]}\ngrid: {seed: '3,5'}\n")
    assert [" ".join(point.values()) for point in found] == ["3 1 2", "3 2 4", "5 1 2", "5 2 4"]


def test_drawn_points_stay_when_more_are_drawn_and_lie_in_their_bounds(tmp_path: Path) -> None:
    text = "random: {{points: {}, seed: {}, draw: {{rps: 'interval(1,8)', replicas: 'int(interval(1,3))', {}}}}}\n"
    more = "slo_scale: 'tag(log, interval(0.01,1))', requests: [5, 7]"
    few, many = (texts(tmp_path, text.format(count, 0, more)) for count in (5, 200))
    assert many[:5] == few
    assert texts(tmp_path, text.format(5, 1, more)) != few
    assert {point["replicas"] for point in many} == {"1", "2", "3"}
    assert {point["requests"] for point in many} == {"5", "7"}
    rates = [float(point["rps"]) for point in many]
    assert 1 <= min(rates) < 1.5 < 7.5 < max(rates) <= 8
    scales = sorted(float(point["slo_scale"]) for point in many)
    assert scales[0] >= 0.01
    assert 0.05 < scales[100] < 0.2
    few = texts(tmp_path, "random: {points: 4, draw: {replicas: [1, 2], seed: '0,1'}}\n")
    assert len({tuple(point.values()) for point in few}) == 4, "none is drawn twice"
    # A key's values do not depend on which other keys are drawn.
    alone = texts(tmp_path, "random: {points: 200, draw: {rps: 'interval(1,8)'}}\n")
    assert [point["rps"] for point in alone] == [point["rps"] for point in many]


TWICE = "grid: {rps: [1, 2]}"
WRONG = {
    TWICE: "grid: rps is given on the command line, too; expected it once",
    "grids: {rps: [1]}": "grids: unknown key; did you mean 'grid'?",
    "grid: {rps: 1}": "grid.rps: 1 is not a list of values, or a text such as range(1,5)",
    "grid: {rps: 'range(1'}": "grid.rps: rps=range(1: ",
    "grid: {rps: [1], seed: [1]}\nseeds: 2": "seeds: seed stands in grid, too; expected it once",
    "zip: {rps: [1, 2], replicas: [1]}": "zip: rps has 2, replicas has 1; expected as many values of each key",
    "seeds: 0": "seeds: 0 is not how many, or a list of whole numbers",
    "random: {points: 3, draw: {}}": "random.draw: expected at least one setting, such as rps: interval(1,8)",
    "random: {points: 0, draw: {rps: 'interval(1,2)'}}": "random.points: 0 is not a whole number",
    "random: {points: 3, draw: {rps: 'interval(2,1)'}}": "random.draw.rps: rps=interval(2,1): expected two numbers",
    "random: {points: 3, draw: {rps: 'tag(log, interval(0,1))'}}": "expected two numbers above 0, the smaller first",
    "random: {points: 3, draw: {replicas: [1, 2]}}": "random.points: 3 is more than the 2 different points",
    "grid: {seed: 'range(0,10000)', requests: 'range(1,10000)'}": "grid: spans 99,990,000 points; expected at most",
}


@pytest.mark.parametrize("text", WRONG)
def test_a_mistake_is_a_line_that_names_file_and_key(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    said = refusal(points_of, file, ["rps=3"] if text == TWICE else [])
    assert said.startswith(f"{file}: ")
    assert WRONG[text] in said


def test_points_share_the_files_that_their_settings_leave_alone() -> None:
    """A sweep of ten thousand points holds each file once."""
    one, other = from_words(["trace=poisson", "seed=0,1", "scheduler.max_num_seqs=8"], sweep=True)
    assert one.config["profile"] is other.config["profile"]
    assert one.config["scheduler"] is not other.config["scheduler"]
