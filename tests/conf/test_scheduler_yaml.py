"""Every scheduler YAML: it lists all parameters, each at one place where it is set; every mistake is one line."""

import inspect
import shutil
from functools import reduce
from operator import getitem
from typing import Any

import pytest

from specsim.config.compose import compose
from specsim.config.configured import from_words
from specsim.core.passes import MAX_DEPTH
from specsim.core.protocols import Drafting
from specsim.files.yaml_file import shipped
from specsim.registry import load_plugins
from specsim.runs.plan import checked
from specsim.schedulers.loading import AUTO, EXTRA_KEYS, scheduler_factory
from tests.laws.subjects import NAMES, factory_of, raw_of, target_of, written_out
from tests.made import refusal


def nodes(mapping, *above):
    """Yield the mapping and every part below that is an object of its own, with the keys that lead there."""
    yield above, mapping
    for key, value in mapping.items():
        if isinstance(value, dict) and "_target_" in value:
            yield from nodes(value, *above, key)


def parameters():
    """Return every (scheduler, keys that lead to one plain parameter)."""
    return [
        (name, (*above, key))
        for name in NAMES
        for above, node in nodes(raw_of(name))
        for key, value in node.items()
        if not key.startswith("_") and key not in EXTRA_KEYS and not isinstance(value, dict)
    ]


def below(mapping, path):
    return reduce(getitem, path, mapping)


def first_of_each_class():
    """Return of the parameters of each class and function those of the first YAML that has it."""
    found: dict[tuple[Any, str], tuple[str, tuple[str, ...]]] = {}
    for name, path in parameters():
        found.setdefault((target_of(below(raw_of(name), path[:-1])), path[-1]), (name, path))
    return set(found.values())


def changed(name, path, value):
    raw = raw_of(name)
    below(raw, path[:-1])[path[-1]] = value
    return raw


def taken_at(name, path):
    """Return where the class of a node takes the value of a path: there, or in the parts below that are handed it."""
    mark = object()
    mapping = changed(name, path, mark)
    own = inspect.signature(target_of(mapping)).parameters
    return [
        (*above, key)
        for above, node in nodes(written_out(mapping))
        for key, value in node.items()
        if value is mark and (not above or above[0] in own) and key in inspect.signature(target_of(node)).parameters
    ]


def refused(mapping):
    message = refusal(scheduler_factory, mapping, "scheduler=made")
    assert message.startswith("scheduler=made: ")
    return message


@pytest.mark.parametrize("name", NAMES)
def test_keys_are_the_signature_no_more_and_no_less(name):
    assert isinstance(factory_of(name).example, Drafting), "without drafts no drafter is loaded"
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


def test_one_parameter_has_one_name_and_one_place_in_every_scheduler():
    """A key of several YAMLs can be set for all of them at once."""
    places: dict[str, set[str]] = {}
    for name in NAMES:
        for above, node in nodes(raw_of(name)):
            for key in node:
                if not key.startswith("_") and key not in SHARED:
                    places.setdefault(key, set()).add(".".join((*above, key)))
    assert {key: found for key, found in places.items() if len(found) > 1} == {}


DRAFTING = sorted({path[-1] for _, path in parameters()} & {"num_speculative_tokens", "depth_max"})


@pytest.mark.parametrize(("name", "path"), [each for each in parameters() if each[1][-1] in DRAFTING], ids=str)
def test_a_draft_longer_than_any_pass_may_be_is_refused_by_its_key(name, path):
    scheduler_factory(changed(name, path, MAX_DEPTH), f"scheduler={name}")
    assert f"{path[-1]}=1025 is above 1,024" in refused(changed(name, path, MAX_DEPTH + 1))


FOLLOWING = dict.fromkeys(("verify_tokens", "draft_pass_tokens", "prefill_tokens", "max_num_seqs"), 40)
SWITCHES = {"draft_len_schedule": [[8, 2]], "acceptance_rate_window_size": 9, "table_context": 8192}
NULLED: dict[str, Any] = {"slo_below": 1.5, "limit_s": 0.04, "acceptance_rate_threshold": 0.5, **SWITCHES, **FOLLOWING}
"""What a parameter whose YAML says null can be as well."""


@pytest.mark.parametrize(
    ("name", "path"), sorted(first_of_each_class()), ids=lambda part: part if isinstance(part, str) else ".".join(part)
)
def test_a_missing_key_and_a_value_of_the_wrong_kind_are_named(name, path):
    raw = raw_of(name)
    value = below(raw, path[:-1]).pop(path[-1])
    assert refused(raw).endswith(f"missing key {path[-1]!r}")
    right = None if value == AUTO else value
    wrong = [12, None] if isinstance(right, str) else ["twelve", True, None, [1], {"a": 1}]
    for value in [each for each in wrong if type(each) is not type(right)]:
        if value is None and path[-1] in NULLED:
            continue
        assert f"{path[-1]}: {value!r} is" in refused(changed(name, path, value))


DERIVED = """\
from dataclasses import dataclass

from specsim.schedulers.smartspec.serving import SmartSpec


@dataclass(slots=True, kw_only=True)
class Mine(SmartSpec):
    pace: float
"""


def test_a_dataclass_of_your_own_may_derive_from_a_scheduler(tmp_path):
    """Its inherited fields are checked too, though the types they name are not imported where it stands."""
    file = tmp_path / "derived_from_smartspec.py"
    file.write_text(DERIVED)
    mapping = raw_of("smartspec") | {"_target_": "derived_from_smartspec.Mine", "pace": 1.0}
    plugins = load_plugins([str(file)])
    made: Any = scheduler_factory(mapping, "mine", plugins)()
    assert (made.pace, made.prefill_threshold) == (1.0, mapping["prefill_threshold"])
    other = {"_target_": "specsim.schedulers.fcfs.StaticBatches", "max_num_seqs": mapping["max_num_seqs"]}
    batching = {key: value for key, value in mapping.items() if key not in ("max_num_batched_tokens", "watermark")}
    said = refusal(scheduler_factory, batching | {"batching": other}, "mine", plugins)
    assert "mine: batching: StaticBatches does not go with GoodputChains; expected PrefillFirst" in said


@pytest.mark.parametrize("target", ["os.system", "specsim.api.simulate", "specsim.schedulersx.evil.Evil"])
def test_what_is_outside_is_never_imported(target, tmp_path):
    witness = tmp_path / "ran"
    assert f"_target_: {target!r} is not allowed" in refused({"_target_": target, "command": f"touch {witness}"})
    chains = {"_target_": "specsim.schedulers.vllm_spec.FixedChains", "num_speculative_tokens": 2}
    inside = {"_target_": target, "command": f"touch {witness}"}
    composed = {"_target_": "specsim.schedulers.composed.Composed", "batching": inside, "speculation": chains}
    assert f"batching: _target_: {target!r} is not allowed" in refused(composed)
    assert not witness.exists()


FIXED = {"_target_": "specsim.schedulers.parts.tree_shape.Fixed", "depth": 2, "width": 2}
UNKNOWN = "lmdeploy': expected one of vllm, sglang, trtllm, prompts_first, mixed"


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"_target_": "specsim.schedulers.fcfs.Fcfss"}, "has no 'Fcfss'; did you mean 'Fcfs'?"),
        ({"_target_": "specsim.schedulers.nowhere.Fcfs"}, "there is no module 'specsim.schedulers.nowhere'"),
        ({"_target_": "Fcfs"}, "'Fcfs' is not allowed"),
        ({"_target_": 3}, "_target_: missing"),
        (changed("adaserve", ("shape", "depth_maxx"), 3), "unknown key 'depth_maxx'; did you mean 'depth_max'"),
        (changed("adaserve", ("order", "nonsense"), 3), "order: unknown key 'nonsense'"),
        (FIXED, "has no step(view) method"),
        (raw_of("vllm_spec") | {"served_by": "lmdeploy"}, f"scheduler=made: served_by: '{UNKNOWN}"),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_what_is_no_scheduler_or_key_is_one_line(mapping, said):
    assert said in refused(mapping)


def test_a_list_of_a_file_is_each_scheduler_s_own():
    factory = scheduler_factory(raw_of("vllm_dynamic"), "scheduler=vllm_dynamic")
    made: list[Any] = [factory(), factory()]
    one, other = (each.speculation for each in made)
    assert one.num_speculative_tokens_per_batch_size == other.num_speculative_tokens_per_batch_size
    one.num_speculative_tokens_per_batch_size[0][2] = 99
    assert other.num_speculative_tokens_per_batch_size[0][2] == 5


TREES = sorted(
    name for name in NAMES if "verify_tokens" in (shipped("conf") / "scheduler" / f"{name}.yaml").read_text()
)


def budgets(mapping):
    """Return every verify_tokens of a scheduler, wherever it stands."""
    found = [value for key, value in mapping.items() if key == "verify_tokens"]
    return found + [each for value in mapping.values() if isinstance(value, dict) for each in budgets(value)]


@pytest.mark.parametrize("name", TREES)
def test_one_key_sets_the_whole_budget_by_name_and_by_path(name, tmp_path):
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
def test_the_other_place_is_refused_and_the_one_is_named(scheduler, key, place, tmp_path):
    shutil.copy(shipped("conf") / "scheduler" / f"{scheduler}.yaml", tmp_path / "mine.yaml")
    for chosen in (scheduler, str(tmp_path / "mine.yaml")):
        said = refusal(compose, {"scheduler": chosen, f"scheduler.{key}": "5"})
        assert said == f"scheduler.{key}=5: {chosen} has no such key; expected scheduler.{place}"


def test_a_sweep_over_schedulers_sets_one_knob_for_all():
    words = ["+scheduler=fcfs,laps_sd,adaserve,priority,continuous,sarathi,smartspec", "scheduler.max_num_seqs=2"]
    ready = [each.config for each in checked(from_words([*words, "trace=poisson", "requests=20"], sweep=True))]
    assert [config["scheduler"]["max_num_seqs"] for config in ready] == [2] * 7


COMPOSED = """\
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


def test_a_key_at_the_top_that_reaches_no_part_is_refused(tmp_path):
    def made(text):
        (tmp_path / "mine.yaml").write_text(text)
        config = compose({"scheduler": str(tmp_path / "mine.yaml")})
        return scheduler_factory(config["scheduler"], "scheduler=mine")()

    text = COMPOSED.replace("batching:\n", "batching:\n  max_num_seqs: 64\n")
    said = "max_num_seqs: 8 reaches no part: batching.max_num_seqs is 64; expected one value"
    assert refusal(made, text) == f"scheduler=mine: {said}"
    assert made(text.replace("64", "8")).batching.max_num_seqs == 8
