"""Every parameter of the classes in conf/scheduler: a change of it changes the output of a small run."""

from __future__ import annotations

import inspect
from ast import literal_eval
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import Any, NamedTuple

import numpy as np
import pytest

from specsim.schedulers.loading import EXTRA_KEYS, scheduler_factory
from specsim.simulation import Simulation, run
from tests.laws.subjects import NAMES, raw_of, target_of
from tests.made import Floats, acceptance_trace, hardware, memory, requests, simulation

COUNT = 24
CROWD = {"room": 5.0, "agreement": 0.6, "token_s": 6e-3, "longest": 40}
SCENES: dict[str, dict[str, float]] = {
    "crowd": {},
    "tight": {"room": 2.0},
    "cheap": {"token_s": 5e-4},
    "sure": {"token_s": 5e-4, "agreement": 0.9},
    "hopeless": {"agreement": 0.02},
    "long": {"longest": 300},
}
"""Crowds by name. Tokens are so dear in most that no goodput is won by speculation, in others so cheap that it is."""


@cache
def scene(name: str) -> Simulation:
    """Return a crowd whose urgent class comes late, without a scheduler; the cache holds `room` of the largest."""
    made, rng, at = CROWD | SCENES[name], np.random.default_rng(7), np.arange(COUNT)
    outputs = rng.integers(2, made["longest"], COUNT)
    arrival_s, prompts = np.sort(rng.uniform(0, 0.3, COUNT)).tolist(), rng.integers(4, 40, COUNT).tolist()
    told = requests(arrival_s, prompts, (outputs + 5).tolist(), np.where(at < 8, 1 + at % 2, at % 3).tolist())
    truth, text = hardware(1e-5, made["token_s"], 6e-3), acceptance_trace(COUNT, made["agreement"])
    return simulation(told, outputs.tolist(), pool=memory(told, made["room"]), truth=truth, text=text)


@cache
def finished(mapping: str, where: str) -> Floats:
    """Return when the requests of a scene end under a YAML, which many changes start from."""
    scheduler = scheduler_factory(literal_eval(mapping), "made")
    return run(replace(scene(where), scheduler=scheduler)).progress.finish_s


def with_value(mapping: dict[str, Any], path: str, value: Any, *, again: bool = False) -> dict[str, Any]:
    """Return the YAML with another value at `path`; the same one may stand there only `again`."""
    changed = deepcopy(mapping)
    place = changed
    *above, last = path.split(".")
    for key in above:
        place = place[key]
    assert again or place[last] != value, path
    place[last] = value
    return changed


def shows(name: str, path: str, value: Any, first: Mapping[str, Any], where: str) -> bool:
    """Return whether a run of `name`, with the values `first` by path, is another one with `value` at `path`."""
    mapping = raw_of(name)
    for key, each in first.items():
        mapping = with_value(mapping, key, each, again=True)
    changed = with_value(mapping, path, value)
    return not np.array_equal(finished(repr(mapping), where), finished(repr(changed), where))


class Parameter(NamedTuple):
    """One value of a YAML: its scheduler, the keys that lead to it, and the class or function that it belongs to.

    A value that stands at the top for the parts below belongs to the first of those that take it.
    The choice of a function (`order._target_`) is a parameter of the class that takes it.
    """

    scheduler: str
    path: str
    owner: str

    @property
    def key(self) -> str:
        """Its name at the owner."""
        return self.path.removesuffix("._target_").rpartition(".")[2]


class Change(NamedTuple):
    """Another value, where the shipped one hides nothing; `first` are others in both runs, by the end of their path."""

    value: Any
    first: Mapping[str, Any] = MappingProxyType({})
    scene: str = "crowd"


def _below(name: str, node: dict[str, Any], above: str) -> Iterator[Parameter]:
    for key, value in node.items():
        if key.startswith("_") or (not above and key in EXTRA_KEYS):
            continue
        owner, path = _owner(node, key), f"{above}{key}"
        if not isinstance(value, dict) or "_target_" not in value:
            yield Parameter(name, path, owner)
        elif value.get("_partial_"):
            yield Parameter(name, f"{path}._target_", owner)
        else:
            yield from _below(name, value, f"{path}.")


def _owner(node: dict[str, Any], key: str) -> str:
    """Return the class that takes a key: that of the node, else of the first of its parts that does; "" for none."""
    if taken_by(node, key):
        return str(node["_target_"].rpartition(".")[2])
    parts = (each for name, each in node.items() if isinstance(each, dict) and taken_by(node, name))
    return next(filter(None, (_owner(part, key) for part in parts)), "")


def taken_by(node: dict[str, Any], key: str) -> bool:
    """Return whether the class or function of a node takes a key."""
    return key in inspect.signature(target_of(node)).parameters


def whole_path(scheduler: str, end: str) -> str:
    """Return the shortest path in the YAML that ends so; a choice of a function goes by the name of the parameter."""
    paths = sorted((each.path for each in _below(scheduler, raw_of(scheduler), "")), key=len)
    return next(path for path in paths if f".{path.removesuffix('._target_')}".endswith(f".{end}"))


SELECTION = "specsim.schedulers.parts.selection"
FOUR = {"max_num_seqs": 4}
SCARCE = {"verify_tokens": 16, "max_num_seqs": 16}
"""A binding budget, for what only decides who gets it."""
SOON = {"acceptance.window": 2, "acceptance.spread": 0.9, "max_num_seqs": 2}
"""Requests are perceptible soon."""

SURVIVAL = {"survival": "confidence"}
"""Settled from the start: small runs end before the logistic is."""
AT_ONCE = {"decision_steps": 1, "retry_steps": 1}
"""A decision in each step: small runs end before the shipped hold."""
CHANGES: dict[str, Change] = {
    "acceptance": Change("per_request", FOUR, "cheap"),
    "acceptance_rate_threshold": Change(1.0, {"acceptance_rate_window_size": 2}),
    "acceptance_rate_window_size": Change(2, {"acceptance_rate_threshold": 0.9}),
    "arms": Change([0, 3]),
    "cap": Change(f"{SELECTION}.nothing", SCARCE),
    "capacity": Change(4),
    "counted": Change("tried", AT_ONCE | FOUR, "cheap"),
    "decision_steps": Change(2, {}, "cheap"),
    "delta": Change(1e-9, {}, "long"),
    "depth_max": Change(5, FOUR | {"verify_tokens": 64}),
    "depth_min": Change(3, SCARCE | {"max_num_seqs": 8}),
    "depth_offset": Change(4, {"verify_tokens": 30, "max_num_seqs": 16}),
    "draft_len_schedule": Change([[2, 4], [64, 3]]),
    "draft_pass_tokens": Change(4, FOUR),
    "estimate": Change("total", SOON),
    "expansion": Change([2, 2]),
    "exploration": Change(0.0),
    "extra_draft_tokens": Change(3),
    "fill": Change(False, SCARCE),
    "first_acceptance": Change(0.01, {}, "cheap"),
    "first_confidence": Change(0.05, {}, "cheap"),
    "first_quantum_s": Change(0.4, FOUR),
    "first_rate": Change(0.1, AT_ONCE, "cheap"),
    "free_share": Change(0.0, {"persist_s": 0.0}, "tight"),
    "fresh": Change(True, SURVIVAL),
    "heads": Change(1, FOUR, "cheap"),
    "history_steps": Change(1, {}, "cheap"),
    "input_weight": Change(9.0),
    "limit_ratio": Change(4.0, FOUR),
    "limit_s": Change(0.02, {}, "cheap"),
    "max_concurrency": Change(4, {"draft_len_schedule": None}),
    "max_num_batched_tokens": Change(16),
    "max_num_seqs": Change(3),
    "memory_factor": Change(4.0, AT_ONCE | FOUR, "cheap"),
    "min_speculative_tokens": Change(4),
    "num_speculative_tokens": Change(1, {}, "cheap"),
    "num_speculative_tokens_per_batch_size": Change([[1, 2, 5], [3, 64, 1]]),
    "order": Change(f"{SELECTION}.least_needy_first", SCARCE),
    "output_weight": Change(9.0),
    "persist_s": Change(0.0, {}, "tight"),
    "plain_factor": Change(9.0, AT_ONCE, "cheap"),
    "prediction_error": Change(1.0, SOON),
    "prediction_seed": Change(1, SOON | {"prediction_error": 1.0}),
    "prefill": Change("first"),
    "prefill_threshold": Change(1.0, {}, "hopeless"),
    "prefill_tokens": Change(16),
    "quantum_ratio": Change(1.2, FOUR),
    "quantum_s": Change(0.05, FOUR),
    "queues": Change(2, FOUR),
    "retry_steps": Change(1, {"decision_steps": 2}, "cheap"),
    "seed": Change(1),
    "sees": Change("probabilities", FOUR),
    "sl_cap": Change(False, {}, "long"),
    "slo_below": Change(1.5, SCARCE),
    "slo_share": Change(0.1, SCARCE),
    "speculative_adaptive_config": Change({"1": {"candidate_steps": [1]}}),
    "speculative_eagle_topk": Change(2),
    "speculative_num_draft_tokens": Change(4),
    "speculative_num_steps": Change(2),
    "spread": Change(0.5, {"max_num_seqs": 2}),
    "starvation_s": Change(0.2, FOUR),
    "survival": Change("confidence"),
    "switching": Change("recompute", FOUR, "tight"),
    "table_context": Change(None, SURVIVAL),
    "threshold": Change(0.9),
    "tightest": Change("live"),
    "time_margin": Change(0.1, SCARCE | {"fill": False}),
    "top_limit_s": Change(0.2, FOUR),
    "tree_tokens": Change(3, FOUR | {"window": 20}, "cheap"),
    "verifier": Change(False, {}, "sure"),
    "verify_tokens": Change(8, FOUR),
    "watermark": Change(0.8),
    "weight": Change(0.9, AT_ONCE, "cheap"),
    "width": Change(1, FOUR, "cheap"),
    "width_max": Change(1, FOUR),
    "width_offset": Change(1, {"shape.draft_pass_tokens": 6}),
    "window": Change(1, {}, "sure"),
}
OF_ONE_CLASS = {
    ("ReleasedLengths", "num_speculative_tokens"): Change(1, AT_ONCE, "cheap"),
    ("ReleasedSpecServe", "verifier"): Change(False, {}, "tight"),
    ("SloLimited", "order"): Change("specsim.schedulers.slo_batching.closest_to_violation"),
    ("SlosServe", "time_margin"): Change(2.0, {}, "cheap"),
}


def first_of_each() -> dict[tuple[str, str], Parameter]:
    """Return of each parameter of a class that of the first YAML that has it, by class and key."""
    found: dict[tuple[str, str], Parameter] = {}
    for each in (each for name in NAMES for each in _below(name, raw_of(name), "")):
        # Where prompts are mixed with decodes, as in these, the drafter reads all.
        if each.key != "prefill_threshold" or each.scheduler not in ("smartspec", "smartspec_lookup"):
            found.setdefault((each.owner, each.key), each)
    return found


FIRST = first_of_each()


def test_no_change_is_left_over() -> None:
    assert {key for _, key in FIRST} == CHANGES.keys()
    assert FIRST.keys() >= OF_ONE_CLASS.keys()


@pytest.mark.parametrize("parameter", FIRST.values(), ids=lambda each: f"{each.scheduler}-{each.path}")
def test_a_change_shows(parameter: Parameter) -> None:
    """Where the shipped values hide it (one slot, an ample budget), `first` takes that away."""
    change = OF_ONE_CLASS.get((parameter.owner, parameter.key)) or CHANGES[parameter.key]
    first = {whole_path(parameter.scheduler, end): value for end, value in change.first.items()}
    first.pop(parameter.path, None)
    assert shows(parameter.scheduler, parameter.path, change.value, first, change.scene)
