"""Which folder may take a run: none that holds another run, or one that nobody can tell."""

import pytest

from specsim import SpecsimError
from specsim.config.identity import identity, settings_of
from specsim.store.writer import check_same_run
from tests.unit.test_store import flip, parts, write_run

CONFIG = {"choices": {"scheduler": "fcfs"}, "scheduler": {"max_num_seqs": 64}, "rps": 2}
OTHER = {**CONFIG, "rps": 4}


@pytest.fixture
def run(tmp_path):
    folder = tmp_path / f"rps=2-{identity(settings_of(CONFIG))}"
    write_run(folder, **parts(config=CONFIG))
    return folder


def test_a_run_with_the_same_settings_may_be_made_again(tmp_path, run):
    assert check_same_run(run, {**CONFIG, "out": "elsewhere"})
    assert not check_same_run(tmp_path / "new", CONFIG)
    (tmp_path / "empty").mkdir()
    assert not check_same_run(tmp_path / "empty", CONFIG)


def test_another_run_is_refused_damaged_or_not(run):
    for _ in range(2):
        with pytest.raises(SpecsimError, match="holds a run with other settings; expected a new folder"):
            check_same_run(run, OTHER)
        flip(run / "requests.parquet")


@pytest.mark.parametrize("text", ["rps: [", "rps: 4\n", ""])
def test_a_damaged_configuration_is_the_run_that_the_folders_name_tells(tmp_path, run, text):
    (run / "config.yaml").write_text(text)
    assert check_same_run(run, CONFIG)
    with pytest.raises(SpecsimError):
        check_same_run(run, OTHER)
    unnamed = run.rename(tmp_path / "mine")
    with pytest.raises(SpecsimError, match=r"holds a run whose config\.yaml is damaged; expected a new folder"):
        check_same_run(unnamed, CONFIG)
