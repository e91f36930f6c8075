"""A point is prepared once: what was checked is what runs, in bounded memory."""

import pickle
from unittest.mock import Mock

import pytest

from specsim import sweep
from specsim.workload import user_file

SMALL = {"scheduler": "vllm_spec", "requests": 6, "profile": "llama8b_1b_h100"}


def test_a_point_that_is_wrong_for_its_seed_alone_is_a_failed_run():
    settings = {"trace": "poisson", "rps": 2, "warmup": [0.1, 1.0], "progress": False, **SMALL, "requests": 4}
    with pytest.warns(UserWarning, match="of 12 runs failed, the first: warmup"):
        found = sweep({"seed": range(12)}, **settings)
    assert len(found) == 12 - len(found.failures)
    assert 0 < len(found.failures) < 12
    assert {each.error.partition(" ")[0] for each in found.failures} == {"warmup:"}
    assert pickle.loads(pickle.dumps(found.failures)) == found.failures, "as they come from another process"


def test_what_happens_to_one_run_s_configuration_does_not_reach_another():
    one, other = sweep({"seed": [0, 1]}, trace="poisson", progress=False, **SMALL)
    one.config["profile"]["target"]["name"] = "mine"
    assert other.config["profile"]["target"]["name"] != "mine"
    (third,) = sweep({"seed": [2]}, trace="poisson", progress=False, **SMALL)
    assert third.config["profile"]["target"]["name"] == other.config["profile"]["target"]["name"]


def test_a_file_is_parsed_once_until_it_changes(tmp_path, monkeypatch):
    read = Mock(wraps=user_file.read_table)
    monkeypatch.setattr(user_file, "read_table", read)
    file = tmp_path / "mine.csv"
    lines = ["arrival_s,prompt_tokens,output_tokens", *(f"{i},{10 + i},4" for i in range(8))]
    file.write_text("\n".join(lines))
    first = sweep({"rps": [1, 2, 3]}, trace=str(file), progress=False, **SMALL)
    assert read.call_count == 1
    file.write_text("\n".join(lines).replace(",10,", ",99,"))
    (second,) = sweep({"rps": [1]}, trace=str(file), progress=False, **SMALL)
    assert read.call_count == 2
    assert (first[0].requests["prompt_tokens"][0], second.requests["prompt_tokens"][0]) == (10, 99)
