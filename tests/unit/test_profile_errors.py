from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.forms import Roofline
from specsim.latency.profile import profile_from_mapping
from tests.made import refusal

TABLE = {"batched_tokens": [1, 128, 256], "seconds_at": [0.01, 0.02, 0.03], "floor_s": 0.01}
GOOD: dict[str, Any] = read_yaml(shipped("conf") / "profile" / "llama8b_1b_h100.yaml")


def changed(key: str, value: object) -> dict[str, Any]:
    mapping = copy.deepcopy(GOOD)
    *parents, last = key.split(".")
    place = mapping
    for parent in parents:
        place = place[parent]
    place[last] = value
    return mapping


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("target.forms.roofline.delta_s", math.nan, "a finite number of at least 0"),
        ("draft.forms", {}, "a mapping of at least one form"),
        ("memory_bytes", 10**9, "0.9 of it must exceed both models' weights_bytes"),
        ("target.forms.table", {**TABLE, "seconds_at": [3, 2, 1]}, "takes no less time"),
        ("target.valid", {"context_tokens": [0, 1], "batched_tokens": [9, 1]}, "a range [low, high]"),
        ("target.nonembedding_bytes", 10**12, "at most weights_bytes"),
        ("target.forms.roofline.few_s", [0.0, -1.0], "leave some to every pass"),
        ("checks", {"splitwise": {"decode": {"median": math.nan}}}, "a finite number"),
        ("usable_kv_bytes", None, "None is not"),
        ("target.forms.roofline.few_s", None, "None is not"),
    ],
)
def test_bad_value_names_key_and_what_was_expected(key: str, value: object, expected: str) -> None:
    message = refusal(profile_from_mapping, changed(key, value), "mine.yaml")
    assert message.startswith(f"mine.yaml: {key}")
    assert expected in message


def test_offsets_of_few_tokens_may_have_either_sign() -> None:
    mapping = changed("target.forms.roofline.few_s", [-1e-3, 2e-3])
    mapping["target"]["forms"]["roofline"]["few_logits_s"] = [1e-3]
    form = profile_from_mapping(mapping, "mine.yaml").target.forms["roofline"]
    assert isinstance(form, Roofline)
    assert (form.few_s, form.few_logits_s) == ((-1e-3, 2e-3), (1e-3,))


def test_signed_errors_nulls_and_the_cards_name_are_checks_of_a_profile() -> None:
    mapping = changed("checks", {"public": {"hardware": "a card", "decode": {"median": -0.3, "least": None}}})
    mapping["checks"]["knee_tokens"] = {"target": {"fitted": None, "compute_over_bandwidth": 156}}
    mapping["target"]["standard_errors"] = {"roofline": {"delta_s": 1e-5, "single_s": None, "few_s": [1e-5, None]}}
    mapping["provenance"] = [{"file": "a.parquet"}]
    assert profile_from_mapping(mapping, "mine.yaml").provenance == ({"file": "a.parquet"},)
