"""``--cfg job``: the settings of a run as its config.yaml would hold them, and nothing runs."""

import re

import pytest
import yaml

from specsim import simulation
from specsim.cli import main
from specsim.config.schema import lines

SMALL = ["scheduler=fcfs", "trace=poisson", "requests=4", "acceptance=bernoulli", "profile=llama8b_1b_h100"]


@pytest.fixture
def shown(tmp_path, monkeypatch, capsys):
    """Return a function that runs the command, which must run and write nothing, and gives what it printed."""
    monkeypatch.chdir(tmp_path)

    def show(*words, code=0):
        with monkeypatch.context() as stopped:
            stopped.setattr(simulation, "run", lambda *_: pytest.fail("a simulation started"))
            assert main(["run", *words]) == code
        assert list(tmp_path.iterdir()) == []
        said = capsys.readouterr()
        return said.out if code == 0 else said.err

    return show


@pytest.mark.parametrize("flags", [["-c", "job"], ["--cfg=job", "--resolve"]])
def test_the_settings_are_what_the_runs_own_file_holds(shown, tmp_path, flags):
    words = [*SMALL, "rps='3'", "slo.classes.coding.tpot_s=3e-2", "seed=${requests}"]
    text = shown(*flags, *words, f"out={tmp_path / 'run'}")
    assert main(["run", *words, f"out={tmp_path / 'run'}"]) == 0
    assert re.sub("  # .*", "", text) == (tmp_path / "run" / "config.yaml").read_text()
    assert f"rps: 3  # {lines()['rps']}\n" in text
    assert yaml.safe_load(text)["seed"] == 4


@pytest.mark.parametrize(
    ("package", "value"),
    [("slo.classes.chat.share", 0.2), ("choices.scheduler", "fcfs"), ("shed", {"waiting": None, "ttft": False})],
)
def test_a_part_of_the_settings(shown, package, value):
    text = shown("--cfg", "job", "-p", package, *SMALL)
    assert yaml.safe_load(text) == value
    assert "..." not in text


def test_a_sweep_shows_each_point_as_a_document_that_says_what_differs(shown):
    text = shown("-m", "--cfg", "job", *SMALL, "rps=2,3", "seed=5")
    assert [config["rps"] for config in yaml.safe_load_all(text)] == [2, 3]
    assert [line for line in text.splitlines() if line.startswith("#")] == ["# rps=2", "# rps=3"]
