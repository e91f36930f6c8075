"""The keys of a run are declared once: what else names them says the same."""

from inspect import signature

import pytest

import specsim
from specsim.config.schema import GROUPS, commented, declared, lines
from tools import keys


def test_the_page_of_keys_is_what_the_schema_declares():
    assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "python -m tools.keys writes it"


@pytest.mark.parametrize("function", [specsim.simulate, specsim.sweep, specsim.find])
def test_the_keys_are_keywords_of_python(function):
    shown = signature(function).parameters
    for each in declared():
        assert each.name == "out" or shown[each.name.replace(".", "__")].default == each.default
    assert set(GROUPS) <= set(shown)
    assert shown["cost_model"].annotation == "str | Path | None"
    assert shown["rps"].annotation == "float | None"


def test_a_shown_configuration_says_what_each_key_means():
    shown = "split:\n  prefill: null\nrps: null\nslo:\n  rps: 1\nplugins:\n- prefill: 1".splitlines()
    said = lines()
    assert list(commented(shown)) == [
        "split:",
        f"  prefill: null  # {said['split.prefill']}",
        f"rps: null  # {said['rps']}",
        "slo:",
        "  rps: 1",
        f"plugins:  # {said['plugins']}",
        "- prefill: 1",
    ]
