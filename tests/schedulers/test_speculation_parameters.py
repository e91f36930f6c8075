"""Every parameter of the YAMLs that differ in how far they speculate: a change changes the output of a small run."""

from __future__ import annotations

import pytest

from specsim.schedulers.loading import scheduler_factory
from specsim.simulation import run
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of, mapping_of
from tests.schedulers.test_specserve_slo import busy

YAMLS = ("specserve", "specserve_minus", "specinfer", "threshold", "vllm_dynamic", "adaptive_verification")
BATCHING = [("batching.max_requests", 3), ("batching.prefill_tokens", 16), ("batching.watermark", 0.5)]
DRAFTING = [
    ("speculation.max_length", 1),
    ("speculation.history_steps", 1),
    ("speculation.first_confidence", 0.05),
]
CHANGES = {
    **{(name, key): value for name in YAMLS for key, value in BATCHING},
    **{(name, key): value for name in YAMLS[:2] for key, value in DRAFTING},
    ("specserve", "speculation.verifier"): False,
    ("specserve_minus", "speculation.verifier"): True,
    ("specinfer", "speculation.expansion"): [2, 2],
    ("threshold", "speculation.threshold"): 0.8,
    ("threshold", "speculation.max_length"): 2,
    ("vllm_dynamic", "speculation.num_speculative_tokens"): 2,
    ("vllm_dynamic", "speculation.num_speculative_tokens_per_batch_size"): [[1, 2, 5], [3, 64, 1]],
    ("adaptive_verification", "speculation.draft_tokens"): 2,
}


def plain_parameters(name: str) -> set[str]:
    parts = {part: mapping_of(name)[part] for part in ("batching", "speculation")}
    return {f"{part}.{key}" for part, node in parts.items() for key in node if key != "_target_"}


@pytest.mark.parametrize("name", YAMLS)
def test_the_table_below_leaves_out_no_parameter(name: str) -> None:
    assert plain_parameters(name) == {key for owner, key in CHANGES if owner == name}


@pytest.mark.parametrize(("name", "key"), list(CHANGES))
def test_every_parameter_changes_the_output_of_a_run(name: str, key: str) -> None:
    mapping = mapping_of(name)
    part, _, parameter = key.partition(".")
    mapping[part][parameter] = CHANGES[name, key]
    one = run(busy(scheduler=factory_of(name)))
    other = run(busy(scheduler=scheduler_factory(mapping, name)))
    with pytest.raises(AssertionError):
        assert_same_record(one, other)
