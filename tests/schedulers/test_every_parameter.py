"""Every parameter of the classes in conf/scheduler: a change of it changes the output of a small run."""

import inspect
from ast import literal_eval
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import replace
from functools import cache
from itertools import chain
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

AT_ONCE = {"decision_steps": 1, "retry_steps": 1}
"""A decision in each step: small runs end before the shipped hold."""


def shown(first: Mapping[str, Any], scene: str = "crowd", **values: Any) -> dict[str, Change]:
    return {key: Change(value, first, scene) for key, value in values.items()}


CHANGES: dict[str, Change] = {
    **shown({}, arms=[0, 3], capacity=4, draft_len_schedule=[[2, 4], [64, 3]], expansion=[2, 2], exploration=0.0),
    **shown({}, extra_draft_tokens=3, input_weight=9.0, max_num_batched_tokens=16, max_num_seqs=3),
    **shown({}, min_speculative_tokens=4, num_speculative_tokens_per_batch_size=[[1, 2, 5], [3, 64, 1]]),
    **shown({}, output_weight=9.0, prefill="first", prefill_tokens=16, seed=1),
    **shown({}, speculative_adaptive_config={"1": {"candidate_steps": [1]}}, speculative_eagle_topk=2),
    **shown({}, speculative_num_draft_tokens=4, speculative_num_steps=2, survival="confidence", threshold=0.9),
    **shown({}, fresh=True, table_context=None, tightest="live", watermark=0.8),
    **shown(FOUR, draft_pass_tokens=4, first_quantum_s=0.4, limit_ratio=4.0, quantum_ratio=1.2, quantum_s=0.05),
    **shown(FOUR, queues=2, sees="probabilities", starvation_s=0.2, top_limit_s=0.2, verify_tokens=8, width_max=1),
    **shown({}, "cheap", decision_steps=2, first_acceptance=0.01, first_confidence=0.05, history_steps=1, limit_s=0.02),
    **shown({}, "cheap", num_speculative_tokens=1),
    **shown(SCARCE, cap=f"{SELECTION}.nothing", fill=False, order=f"{SELECTION}.least_needy_first", slo_below=1.5),
    **shown(SCARCE, slo_share=0.1),
    **shown(AT_ONCE, "cheap", first_rate=0.1, plain_factor=9.0, weight=0.9),
    **shown(FOUR, "cheap", acceptance="per_request", heads=1, width=1),
    **shown(AT_ONCE | FOUR, "cheap", memory_factor=4.0),
    **shown(SOON, estimate="total", prediction_error=1.0),
    **shown({}, "long", delta=1e-9, sl_cap=False),
    **shown({}, "sure", verifier=False, window=1),
    **shown(FOUR, "tight", switching="recompute"),
    **shown(FOUR | {"verify_tokens": 64}, depth_max=5),
    **shown(FOUR | {"window": 20}, "cheap", tree_tokens=3),
    **shown(SCARCE | {"fill": False}, time_margin=0.1),
    **shown(SCARCE | {"max_num_seqs": 8}, depth_min=3),
    **shown(SOON | {"prediction_error": 1.0}, prediction_seed=1),
    **shown({"acceptance_rate_threshold": 0.9}, acceptance_rate_window_size=2),
    **shown({"acceptance_rate_window_size": 2}, acceptance_rate_threshold=1.0),
    **shown({"decision_steps": 2}, "cheap", retry_steps=1),
    **shown({"draft_len_schedule": None}, max_concurrency=4),
    **shown({"max_num_seqs": 2}, spread=0.5),
    **shown({"persist_s": 0.0}, "tight", free_share=0.0),
    **shown({"shape.draft_pass_tokens": 6}, width_offset=1),
    **shown({"verify_tokens": 30, "max_num_seqs": 16}, depth_offset=4),
    **shown({}, "hopeless", prefill_threshold=1.0),
    **shown({}, "tight", persist_s=0.0),
}
"""Another value of each parameter, by what lets it show."""
OF_ONE_CLASS = {
    ("ReleasedLengths", "num_speculative_tokens"): Change(1, AT_ONCE, "cheap"),
    ("ReleasedSpecServe", "first_confidence"): Change(0.05, {"max_num_batched_tokens": 16}, "cheap"),
    ("ReleasedSpecServe", "verifier"): Change(False, FOUR, "tight"),
    ("SloLimited", "order"): Change("specsim.schedulers.slo_batching.closest_to_violation"),
    ("SlosServe", "time_margin"): Change(2.0, {}, "cheap"),
}


FIRST: dict[tuple[str, str], Parameter] = {}
"""Of each parameter of a class that of the first YAML that has it, by class and key."""
for each in chain.from_iterable(_below(name, raw_of(name), "") for name in NAMES):
    # Where prompts are mixed with decodes, as in these, the drafter reads all.
    if each.key != "prefill_threshold" or each.scheduler not in ("smartspec", "smartspec_lookup"):
        FIRST.setdefault((each.owner, each.key), each)


def test_no_change_is_left_over():
    assert {key for _, key in FIRST} == CHANGES.keys()
    assert FIRST.keys() >= OF_ONE_CLASS.keys()


@pytest.mark.parametrize("parameter", FIRST.values(), ids=lambda each: f"{each.scheduler}-{each.path}")
def test_a_change_shows(parameter):
    """Where the shipped values hide it (one slot, an ample budget), `first` takes that away."""
    change = OF_ONE_CLASS.get((parameter.owner, parameter.key)) or CHANGES[parameter.key]
    mapping = raw_of(parameter.scheduler)
    for end, value in change.first.items():
        if (path := whole_path(parameter.scheduler, end)) != parameter.path:
            mapping = with_value(mapping, path, value, again=True)
    changed = with_value(mapping, parameter.path, change.value)
    assert not np.array_equal(finished(repr(mapping), change.scene), finished(repr(changed), change.scene))
