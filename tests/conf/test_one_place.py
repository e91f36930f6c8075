"""A value that several parts take is written at one place: there it is set, by name, by path and from Python."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from specsim import simulate
from specsim.config.compose import compose
from specsim.config.configured import from_words
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from specsim.runs.plan import checked
from specsim.schedulers.loading import EXTRA_KEYS, scheduler_factory
from tests.laws.subjects import NAMES, written_out

TREES = sorted(
    name for name in NAMES if "verify_tokens" in (shipped("conf") / "scheduler" / f"{name}.yaml").read_text()
)


def budgets(mapping: dict[str, Any]) -> list[int]:
    """Return every verify_tokens of a scheduler, wherever it stands."""
    found = [value for key, value in mapping.items() if key == "verify_tokens"]
    return found + [each for value in mapping.values() if isinstance(value, dict) for each in budgets(value)]


@pytest.mark.parametrize("name", TREES)
def test_one_key_sets_the_whole_budget_by_name_and_by_path(name: str, tmp_path: Path) -> None:
    shutil.copy(shipped("conf") / "scheduler" / f"{name}.yaml", tmp_path / "mine.yaml")
    for chosen in (name, str(tmp_path / "mine.yaml")):
        config = compose({"scheduler": chosen, "scheduler.verify_tokens": "200"})["scheduler"]
        found = budgets(written_out({key: value for key, value in config.items() if key not in EXTRA_KEYS}))
        assert len(found) >= 2
        assert set(found) == {200}


@pytest.mark.parametrize(
    ("scheduler", "key", "place"),
    [
        ("laps_adaserve", "speculation.shape.verify_tokens", "verify_tokens"),
        ("laps_adaserve", "speculation.shape.depth_max", "shape.depth_max"),
        ("vllm_spec", "speculation.num_speculative_tokens", "num_speculative_tokens"),
    ],
)
def test_the_other_place_is_refused_and_the_one_is_named(scheduler: str, key: str, place: str, tmp_path: Path) -> None:
    shutil.copy(shipped("conf") / "scheduler" / f"{scheduler}.yaml", tmp_path / "mine.yaml")
    for chosen in (scheduler, str(tmp_path / "mine.yaml")):
        with pytest.raises(SpecsimError) as error:
            compose({"scheduler": chosen, f"scheduler.{key}": "5"})
        assert str(error.value) == f"scheduler.{key}=5: {chosen} has no such key; expected scheduler.{place}"


def test_a_sweep_over_schedulers_sets_one_knob_for_all_and_it_takes_effect() -> None:
    words = ["+scheduler=fcfs,laps_sd,adaserve,priority,continuous,sarathi,smartspec", "scheduler.max_num_seqs=2"]
    ready = [each.config for each in checked(from_words([*words, "trace=poisson", "requests=20"], sweep=True))]
    assert [config["scheduler"]["max_num_seqs"] for config in ready] == [2] * 7
    for name in ("fcfs", "laps_sd", "adaserve"):
        shared: dict[str, Any] = {"trace": "poisson", "requests": 10, "rps": 40, "passes": True}
        slots = {
            most: simulate(name, **shared, scheduler__max_num_seqs=most).passes["requests"].max() for most in (2, 8)
        }
        assert slots == {2: 2, 8: 8}, name


OWN = """\
_target_: specsim.schedulers.composed.Composed
max_num_seqs: 8
num_speculative_tokens: 2
batching:
  _target_: specsim.schedulers.continuous.PrefillFirst
  max_num_batched_tokens: 8192
  watermark: 0.01
speculation:
  _target_: specsim.schedulers.vllm_spec.FixedChains
"""


def made(folder: Path, text: str, **below: str) -> Any:
    (folder / "mine.yaml").write_text(text)
    config = compose({"scheduler": str(folder / "mine.yaml"), **{f"scheduler.{k}": v for k, v in below.items()}})
    return scheduler_factory(config["scheduler"], "scheduler=mine")()


def test_a_key_at_the_top_that_reaches_no_part_is_refused(tmp_path: Path) -> None:
    text = OWN.replace("batching:\n", "batching:\n  max_num_seqs: 64\n")
    with pytest.raises(SpecsimError) as error:
        made(tmp_path, text)
    said = "max_num_seqs: 8 reaches no part: batching.max_num_seqs is 64; expected one value"
    assert str(error.value) == f"scheduler=mine: {said}"
    assert made(tmp_path, text.replace("64", "8")).batching.max_num_seqs == 8
