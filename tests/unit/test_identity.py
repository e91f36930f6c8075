"""Two configurations are one when every setting is, whatever its type of number, its order or its null keys."""

import pytest

from specsim.config.compose import compose
from specsim.config.identity import identity, settings_of

POINT = {"trace": "poisson", "scheduler": "vllm_spec"}


def of(**words):
    return identity(settings_of(compose({**POINT, **words})))


def test_an_order_a_default_said_a_type_of_number_a_null_key_or_its_place_changes_nothing():
    config = compose(POINT)
    other = dict(reversed(config.items())) | {"out": "somewhere", "new_key": None}
    assert settings_of(other) == settings_of(config)
    assert identity(settings_of(other)) == of()
    assert of(slo_scale="1.0", replicas="1") == of(slo_scale="1") == of()
    assert of(rps="2") == of(rps="2.0")


@pytest.mark.parametrize(
    "key", ["passes=true", "scheduler.num_speculative_tokens=5", "scheduler=fcfs", "cost_model=llama8b_1b_h100"]
)
def test_every_setting_counts(key):
    name, _, value = key.partition("=")
    assert of(**{name: value}) != of()
