from __future__ import annotations

import copy
import math
from typing import Any

import pytest

from specsim.errors import SpecsimError
from specsim.latency.forms import Roofline
from specsim.latency.profile import profile_from_mapping
from tests.made import one

MODEL: dict[str, Any] = {
    "name": "model",
    "kv_bytes_per_token": 1000,
    "weights_bytes": 10**9,
    "overhead_s": 0.001,
    "forms": {
        "linear": {"alpha_s": 1e-8, "gamma_s": 1e-4, "delta_s": 0.02},
        "roofline": {
            "delta_s": 0.02,
            "gamma_s": 1e-5,
            "compute_delta_s": 0.001,
            "compute_s": 1e-4,
            "alpha_s": 1e-8,
            "beta_s": 1e-9,
        },
    },
}
TABLE = {"batched_tokens": [1, 128, 256], "seconds_at": [0.01, 0.02, 0.03], "floor_s": 0.01}
GOOD: dict[str, Any] = {
    "name": "mine",
    "profile_version": 1,
    "description": "one line",
    "hardware": "a card",
    "gpus": 1,
    "memory_bytes": 10**10,
    "form": "roofline",
    "target": MODEL,
    "draft": copy.deepcopy(MODEL),
}


def changed(key: str, value: object) -> dict[str, Any]:
    mapping = copy.deepcopy(GOOD)
    *parents, last = key.split(".")
    place = mapping
    for parent in parents:
        place = place[parent]
    if value is None:
        del place[last]
    else:
        place[last] = value
    return mapping


def refused(mapping: dict[str, Any]) -> str:
    with pytest.raises(SpecsimError) as caught:
        profile_from_mapping(mapping, "mine.yaml")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("mine.yaml: ")
    return message


def test_the_good_one_is_good() -> None:
    profile = profile_from_mapping(GOOD, "mine.yaml")
    assert profile.baseline_s == pytest.approx(0.001 + 0.02 + 1e-5 + 512e-8)
    assert profile.usable_kv_bytes == 9 * 10**9 - 2 * 10**9


@pytest.mark.parametrize(
    ("key", "value", "expected"),
    [
        ("target.forms.roofline.delta_s", math.nan, "a finite number of at least 0"),
        ("target.forms.linear.gamma_s", -1e-4, "a finite number of at least 0"),
        ("gpus", 0, "a whole number between 1 and 1000000000"),
        ("draft.forms", {}, "a mapping of at least one form"),
        ("profile_version", 2, "the version that this specsim reads"),
        ("memory_bytes", 10**9, "0.9 of it must exceed both models' weights_bytes"),
        ("target.forms.table", {**TABLE, "batched_tokens": [1, 1, 2]}, "strictly rising"),
        ("target.forms.table", {**TABLE, "seconds_at": [3, 2, 1]}, "takes no less time"),
        ("target.valid", {"context_tokens": [0, 1], "batched_tokens": [9, 1]}, "a range [low, high]"),
        ("target.nonembedding_bytes", 10**12, "at most weights_bytes"),
        ("target.forms.roofline.few_s", [0.0, -1.0], "leave some to every pass"),
        ("checks", {"splitwise": {"decode": {"median": math.nan}}}, "a finite number"),
    ],
)
def test_bad_value_names_key_and_what_was_expected(key: str, value: object, expected: str) -> None:
    message = refused(changed(key, value))
    assert key in message
    assert expected in message


@pytest.mark.parametrize("key", ["usable_kv_bytes", "target.valid", "target.forms.roofline.few_s"])
def test_an_option_that_is_null_is_refused(key: str) -> None:
    mapping = changed(key, 0)
    *parents, last = key.split(".")
    place = mapping
    for parent in parents:
        place = place[parent]
    place[last] = None
    assert f"mine.yaml: {key}: None is not" in refused(mapping)


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


@pytest.mark.parametrize(
    "key", ["profile_version", "target", "draft.forms", "target.overhead_s", "target.forms.linear.delta_s"]
)
def test_missing_key_is_named(key: str) -> None:
    assert refused(changed(key, None)) == f"mine.yaml: {key}: missing key"


@pytest.mark.parametrize(
    ("key", "near"),
    [
        ("target.overheads_s", "overhead_s"),
        ("draft.forms.linear.alpha", "alpha_s"),
    ],
)
def test_unknown_key_is_named_with_the_nearest(key: str, near: str) -> None:
    message = refused(changed(key, 1))
    assert message == f"mine.yaml: {key}: unknown key; did you mean {near!r}?"


def test_form_is_chosen_by_name() -> None:
    profile = profile_from_mapping(changed("form", "linear"), "mine.yaml")
    assert profile.target.form == profile.draft.form == "linear"
    assert profile.target.seconds(one(0, 1, 1)) == pytest.approx(0.001 + 0.02 + 1e-4)


def test_form_that_nobody_holds_or_that_is_ambiguous_is_refused() -> None:
    assert refused(changed("form", "table")).endswith("form: 'table' is not in this profile; valid: linear, roofline")
    assert "did you mean 'linear'?" in refused(changed("form", "liner"))
    mapping = changed("draft.forms", {"table": TABLE, "linear": MODEL["forms"]["linear"]})
    assert "'roofline' is not in this profile" in refused(mapping)
