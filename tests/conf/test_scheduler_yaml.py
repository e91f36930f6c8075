"""Every scheduler YAML: it builds, lists all parameters, and takes each one's change; every mistake is one line."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specsim.core.passes import MAX_DEPTH
from specsim.errors import SpecsimError
from specsim.registry.plugins import load_plugins
from specsim.schedulers.loading import AUTO, EXTRA_KEYS, scheduler_factory
from tests.laws.subjects import NAMES, raw_of, target_of, written_out

every_scheduler = pytest.mark.parametrize("name", NAMES)


def nodes(mapping: dict[str, Any], *above: str) -> Iterator[tuple[tuple[str, ...], dict[str, Any]]]:
    """Yield the mapping and every part below that is an object of its own, with the keys that lead there."""
    yield above, mapping
    for key, value in mapping.items():
        if isinstance(value, dict) and "_target_" in value:
            yield from nodes(value, *above, key)


def parameters() -> list[tuple[str, tuple[str, ...]]]:
    """Return every (scheduler, keys that lead to one plain parameter)."""
    return [
        (name, (*above, key))
        for name in NAMES
        for above, node in nodes(raw_of(name))
        for key, value in node.items()
        if not key.startswith("_") and key not in EXTRA_KEYS and not isinstance(value, dict)
    ]


def first_of_each_class() -> set[tuple[str, tuple[str, ...]]]:
    """Return of the parameters of each class and function those of the first YAML that has it."""
    found: dict[tuple[Any, str], tuple[str, tuple[str, ...]]] = {}
    for name, path in parameters():
        node = raw_of(name)
        for key in path[:-1]:
            node = node[key]
        found.setdefault((target_of(node), path[-1]), (name, path))
    return set(found.values())


FIRST = first_of_each_class()


def changed(name: str, path: tuple[str, ...], value: Any) -> dict[str, Any]:
    raw = raw_of(name)
    place = raw
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return raw


def taken_at(name: str, path: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Return where the class of a node takes the value of a path: there, or in the parts below that are handed it."""
    mark = object()
    mapping = changed(name, path, 0)
    node = mapping
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = mark
    own = inspect.signature(target_of(mapping)).parameters
    return [
        (*above, key)
        for above, node in nodes(written_out(mapping))
        for key, value in node.items()
        if value is mark and (not above or above[0] in own) and key in inspect.signature(target_of(node)).parameters
    ]


def value_of(name: str, path: tuple[str, ...]) -> Any:
    place: Any = raw_of(name)
    for key in path:
        place = place[key]
    return place


def refused(mapping: dict[str, Any]) -> str:
    with pytest.raises(SpecsimError) as caught:
        scheduler_factory(mapping, "scheduler=made")
    message = str(caught.value)
    assert "\n" not in message
    assert message.startswith("scheduler=made: ")
    return message


@every_scheduler
def test_keys_are_the_signature_no_more_and_no_less(name: str) -> None:
    assert "${" not in repr(raw_of(name)), "a key is handed down, not repeated"
    for above, node in nodes(raw_of(name)):
        if node.get("_partial_"):
            continue
        keys = {key for key in node if not key.startswith("_")} - (EXTRA_KEYS if not above else set())
        parameters = inspect.signature(target_of(node)).parameters
        taken = {key for key in parameters if key in keys or parameters[key].default is inspect.Parameter.empty}
        shared = {key for key in keys - taken if not above and len(taken_at(name, (key,)))}
        handed = {key for key in taken - keys if above and key in raw_of(name)}
        assert (keys - shared) | handed == taken, above


SHARED = {"window", "acceptance", "order"}
"""Names that two schedulers give to different things: acceptance averages and monitors, and orders of two kinds."""


def test_one_parameter_has_one_name_and_one_place_in_every_scheduler() -> None:
    """Whatever stands in several YAMLs can be set for all of them by one key."""
    places: dict[str, set[str]] = {}
    for name in NAMES:
        for above, node in nodes(raw_of(name)):
            for key in node:
                if not key.startswith("_") and key not in SHARED:
                    places.setdefault(key, set()).add(".".join((*above, key)))
    assert {key: found for key, found in places.items() if len(found) > 1} == {}


DRAFTING = sorted({path[-1] for _, path in parameters()} & {"num_speculative_tokens", "depth_max"})


@pytest.mark.parametrize(("name", "path"), [each for each in parameters() if each[1][-1] in DRAFTING], ids=str)
def test_a_draft_longer_than_any_pass_may_be_is_refused_by_its_key(name: str, path: tuple[str, ...]) -> None:
    raw = node = raw_of(name)
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = MAX_DEPTH
    scheduler_factory(raw, f"scheduler={name}")
    node[path[-1]] = MAX_DEPTH + 1
    with pytest.raises(SpecsimError, match=rf"{path[-1]}=1025 is above 1,024"):
        scheduler_factory(raw, f"scheduler={name}")


FOLLOWING = dict.fromkeys(("verify_tokens", "draft_pass_tokens", "prefill_tokens", "max_num_seqs"), 40)
SWITCHES = {"draft_len_schedule": [[8, 2]], "acceptance_rate_window_size": 9, "table_context": 8192}
NULLED: dict[str, Any] = {"slo_below": 1.5, "limit_s": 0.04, "acceptance_rate_threshold": 0.5, **SWITCHES, **FOLLOWING}
"""What a parameter whose YAML says null can be as well."""


@pytest.mark.parametrize(
    ("name", "path"), sorted(FIRST), ids=lambda part: part if isinstance(part, str) else ".".join(part)
)
def test_a_missing_key_and_a_value_of_the_wrong_kind_are_named(name: str, path: tuple[str, ...]) -> None:
    raw = raw_of(name)
    place: Any = raw
    for key in path[:-1]:
        place = place[key]
    del place[path[-1]]
    assert refused(raw).endswith(f"missing key {path[-1]!r}")
    right = None if value_of(name, path) == AUTO else value_of(name, path)
    wrong = [12, None] if isinstance(right, str) else ["twelve", True, None, [1], {"a": 1}]
    for value in [each for each in wrong if type(each) is not type(right)]:
        if value is None and path[-1] in NULLED:
            continue
        message = refused(changed(name, path, value))
        assert f"{path[-1]}: {value!r} is" in message


DERIVED = """\
from __future__ import annotations

from dataclasses import dataclass

from specsim.schedulers.smartspec.serving import SmartSpec


@dataclass(slots=True, kw_only=True)
class Mine(SmartSpec):
    pace: float
"""


def test_a_dataclass_of_your_own_may_derive_from_a_scheduler(tmp_path: Path) -> None:
    """Its inherited fields are checked too, though the types they name are not imported where it stands."""
    file = tmp_path / "derived_from_smartspec.py"
    file.write_text(DERIVED)
    mapping = raw_of("smartspec") | {"_target_": "derived_from_smartspec.Mine", "pace": 1.0}
    plugins = load_plugins([str(file)])
    made: Any = scheduler_factory(mapping, "mine", plugins)()
    assert (made.pace, made.prefill_threshold) == (1.0, mapping["prefill_threshold"])
    other = {"_target_": "specsim.schedulers.fcfs.StaticBatches", "max_num_seqs": mapping["max_num_seqs"]}
    batching = {key: value for key, value in mapping.items() if key not in ("max_num_batched_tokens", "watermark")}
    with pytest.raises(
        SpecsimError, match="mine: batching: StaticBatches does not go with GoodputChains; expected PrefillFirst"
    ):
        scheduler_factory(batching | {"batching": other}, "mine", plugins)


OUTSIDE = ["os.system", "specsim.api.simulate", "specsim.schedulersx.evil.Evil"]


@pytest.mark.parametrize("target", OUTSIDE)
def test_what_is_outside_is_never_imported(target: str, tmp_path: Any) -> None:
    witness = tmp_path / "ran"
    message = refused({"_target_": target, "command": f"touch {witness}"})
    assert f"_target_: {target!r} is not allowed" in message
    chains = {"_target_": "specsim.schedulers.vllm_spec.FixedChains", "num_speculative_tokens": 2}
    inside = {"_target_": target, "command": f"touch {witness}"}
    composed = {"_target_": "specsim.schedulers.composed.Composed", "batching": inside, "speculation": chains}
    assert f"batching: _target_: {target!r} is not allowed" in refused(composed)
    assert not witness.exists()


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ("specsim.schedulers.fcfs.Fcfss", "has no 'Fcfss'; did you mean 'Fcfs'?"),
        ("specsim.schedulers.nowhere.Fcfs", "there is no module 'specsim.schedulers.nowhere'"),
        ("Fcfs", "'Fcfs' is not allowed"),
        (3, "_target_: missing"),
    ],
)
def test_a_target_that_is_not_there_is_one_line(target: Any, said: str) -> None:
    assert said in refused({"_target_": target, "max_num_seqs": 4})


def test_an_unknown_key_is_named_with_the_nearest() -> None:
    said = refused(changed("adaserve", ("shape", "depth_maxx"), 3))
    assert "unknown key 'depth_maxx'; did you mean 'depth_max'" in said
    assert "order: unknown key 'nonsense'" in refused(changed("adaserve", ("order", "nonsense"), 3))


def test_what_has_no_step_is_no_scheduler() -> None:
    message = refused({"_target_": "specsim.schedulers.parts.tree_shape.Fixed", "depth": 2, "width": 2})
    assert "has no step(view) method" in message


def test_a_list_of_a_file_is_each_scheduler_s_own() -> None:
    factory = scheduler_factory(raw_of("vllm_dynamic"), "scheduler=vllm_dynamic")
    one, other = (typing.cast(typing.Any, factory()).speculation for _ in range(2))
    assert one.num_speculative_tokens_per_batch_size == other.num_speculative_tokens_per_batch_size
    one.num_speculative_tokens_per_batch_size[0][2] = 99
    assert other.num_speculative_tokens_per_batch_size[0][2] == 5


def test_a_scheduler_s_engine_is_one_that_is_known() -> None:
    said = "scheduler=own: served_by: 'lmdeploy': expected one of vllm, sglang, trtllm, prompts_first, mixed"
    with pytest.raises(SpecsimError, match=said):
        scheduler_factory(raw_of("vllm_spec") | {"served_by": "lmdeploy"}, "scheduler=own")
