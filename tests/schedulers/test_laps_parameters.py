"""Every parameter of the YAMLs that perceive: changing it changes a small run."""

from __future__ import annotations

from typing import Any

import pytest

from tests.schedulers.changes import assert_changed

SOON = {"acceptance.window": 2, "acceptance.spread": 0.9, "seats.max_requests": 2}
FOUR = {"seats.max_requests": 4}
SEATS: list[tuple[str, Any, dict[str, Any], float]] = [
    ("seats.max_requests", 3, {}, 5.0),
    ("seats.prefill_tokens", 8, FOUR, 5.0),
    ("seats.prefill", "first", FOUR, 5.0),
    ("seats.watermark", 0.8, FOUR, 5.0),
    ("seats.switching", "recompute", FOUR, 2.0),
]
LAPS: list[tuple[str, Any, dict[str, Any], float]] = [
    *SEATS,
    ("acceptance.window", 2, FOUR, 5.0),
    ("acceptance.spread", 0.5, {"seats.max_requests": 2}, 5.0),
    ("lengths.prediction_error", 1.0, SOON, 5.0),
    ("lengths.prediction_seed", 1, SOON | {"lengths.prediction_error": 1.0}, 5.0),
    ("queues", 2, FOUR, 5.0),
    ("first_limit_s", 0.05, FOUR, 5.0),
    ("limit_ratio", 4.0, FOUR, 5.0),
    ("estimate", "total", SOON, 5.0),
]
TREES: list[tuple[str, Any, dict[str, Any], float]] = [
    ("speculation.verify_tokens", 12, FOUR, 5.0),
    ("speculation.shape.depth_min", 2, {"speculation.shape.verify_tokens": 8}, 5.0),
    ("speculation.shape.depth_max", 5, FOUR, 5.0),
    ("speculation.shape.width_max", 1, FOUR, 5.0),
    ("speculation.shape.verify_tokens", 20, FOUR, 5.0),
    ("speculation.shape.draft_tokens", 4, FOUR, 5.0),
    ("speculation.shape.depth_offset", 4, {"speculation.shape.verify_tokens": 30}, 5.0),
    ("speculation.shape.width_offset", 1, {"speculation.shape.draft_tokens": 6}, 5.0),
    (
        "speculation.order._target_",
        "specsim.schedulers.selection.least_needy_first",
        {"speculation.verify_tokens": 16},
        5.0,
    ),
    (
        "speculation.cap._target_",
        "specsim.schedulers.selection.nothing",
        {"speculation.verify_tokens": 16},
        5.0,
    ),
    ("speculation.slo_share", 0.1, {"speculation.verify_tokens": 16}, 5.0),
    ("speculation.slo_below", 1.5, {"speculation.verify_tokens": 16}, 5.0),
    ("speculation.fill", False, {"speculation.verify_tokens": 16}, 5.0),
    ("speculation.time_margin", 0.1, {"speculation.verify_tokens": 16, "speculation.fill": False}, 5.0),
]
CHANGES = [
    *(("laps_sd", *each) for each in LAPS),
    ("laps_sd", "speculation.draft_tokens", 2, {}, 5.0),
    *(("laps_adaserve", *each) for each in (*LAPS, *TREES)),
    *(("lp_sjf", *each) for each in SEATS),
    ("lp_sjf", "speculation.draft_tokens", 2, {}, 5.0),
    ("lp_sjf", "lengths.prediction_error", 1.0, {}, 5.0),
    ("lp_sjf", "lengths.prediction_seed", 1, {"lengths.prediction_error": 1.0}, 5.0),
]


@pytest.mark.parametrize(("name", "path", "value", "first", "room"), CHANGES)
def test_every_parameter_changes_a_run(name: str, path: str, value: Any, first: dict[str, Any], room: float) -> None:
    """Where the shipped value hides another (one seat, an ample budget), `first` takes it away."""
    assert_changed(name, path, value, first, room)
