"""The study of policies: its trials, its rows, its page."""

import numpy as np
import pytest

from specsim.config.configured import from_axes
from specsim.runs.plan import checked
from studies.policies import page, running
from studies.policies.running import STUDY, TRIALS, Cell, grid_of
from studies.report import kept, without_images


@pytest.mark.parametrize("policy", STUDY["policies"])
def test_every_policy_has_eight_trials_that_its_scheduler_takes(policy):
    cell = Cell("azure_conv", "mostly urgent", "at", policy, "")
    settings = {key: value for key, value in cell.settings.items() if key != "keep"}
    assert len(checked(from_axes(grid_of(policy), {**settings, "requests": 5}))) == TRIALS


def test_a_cell_is_tuned_judged_and_kept_and_a_second_call_runs_nothing(tmp_path, monkeypatch, capsys):
    small = {"requests": 40, "trial_requests": 20, "tuned": {}, "loads": {"at": {"rps": 30}}}
    grid = {"num_speculative_tokens": [1, 2, 3, 4], "max_num_seqs": [8, 16]}
    monkeypatch.setattr(running, "KEPT", tmp_path / "rows.parquet")
    monkeypatch.setattr(running, "MOST_SEEDS", 5)
    for key, value in {
        "places": {"poisson": small},
        "shared": {"profile": "llama8b_1b_h100"},
        "mixes": {"urgent": {"slo": "adaserve"}},
        "tuned": {"seed": [7]},
        "judged": {},
        "policies": {"vllm_spec": {"says": "k", "trials": grid}},
        "changed": {"vllm_spec": ["sure"]},
        "changes": {"sure": {"acceptance.confidence.temperature": 0.5}},
    }.items():
        monkeypatch.setitem(STUDY, key, value)
    rows = running.run(tmp_path / "runs", 1)
    assert len(rows) == 10  # two cells of five seeds
    assert list(rows["change"].unique()) == ["", "sure"]
    # A fixed number of draft tokens asks for no confidence.
    plain, sure = (rows[rows["change"] == change].set_index("seed")["slo_attainment"] for change in ("", "sure"))
    np.testing.assert_array_equal(plain, sure)
    assert "1 of 2: poisson urgent at vllm_spec, 5 seeds" in capsys.readouterr().out
    assert len(kept(running.KEPT)) == len(running.run(tmp_path / "runs", 1)) == 10
    assert "of 2" not in capsys.readouterr().out
    # Further seeds judge what was tuned before, as long as its attainment is not known.
    monkeypatch.setattr(running, "MOST_SEEDS", 7)
    monkeypatch.setattr(running, "TARGET_HALF_WIDTH", 1e-6)
    monkeypatch.setattr(running, "_tuned", lambda *_: pytest.fail("it was tuned before"))
    more = running.run(tmp_path / "runs", 1)
    assert "2 of 2: poisson urgent at vllm_spec sure, 2 seeds" in capsys.readouterr().out
    assert (sorted(more["seed"]), more["tuned"].nunique()) == (sorted(2 * [*range(7)]), 1)


def test_the_committed_page_is_what_the_committed_rows_say():
    assert page.PAGE.read_text(encoding="utf-8") == without_images(page.page(kept(running.KEPT)))
