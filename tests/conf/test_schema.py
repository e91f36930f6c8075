"""The keys of a run are declared once: what else names them says the same."""

from dataclasses import replace
from inspect import signature

import pytest
import yaml

import specsim
from specsim.config.schema import (
    GROUPS,
    UNALTERING,
    Settings,
    commented,
    declared,
    defaults,
    known_keys,
    lines,
    settings_in,
)
from specsim.errors import SpecsimError
from specsim.files.yaml_file import shipped
from tools import keys


def test_the_page_of_keys_is_what_the_schema_declares():
    assert keys.PAGE.read_text(encoding="utf-8") == keys.page(), "python -m tools.keys writes it"


def test_the_yaml_of_a_run_holds_no_second_declaration():
    assert set(yaml.safe_load((shipped("conf") / "config.yaml").read_text())) == {"defaults"}


def test_defaults_are_typed_values():
    assert settings_in(defaults()) == settings_in({}) == Settings()
    assert set(known_keys()) == {*defaults(), *GROUPS}


def test_a_value_is_read_as_its_declaration_says():
    read = settings_in({"rps": 2, "split": {"prefill": 1}, "plugins": "mine", "warmup": "10%", "shed": {}})
    expected = replace(Settings(), rps=2.0, split=replace(Settings().split, prefill=1), plugins=("mine",), warmup="10%")
    assert read == expected
    assert isinstance(read.rps, float)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ({"rps": 0}, "rps: 0 is not a finite number of at least 1e-12"),
        ({"seed": None}, "seed: None is not a whole number"),
        ({"split": {"prefil": 1}}, "split.prefil: unknown key; did you mean 'prefill'?"),
        ({"split": 1}, "split: 1 is not a mapping"),
        ({"passes": "yes"}, "passes: 'yes' is not true or false"),
    ],
)
def test_a_value_out_of_bounds_is_one_line(config, said):
    with pytest.raises(SpecsimError, match="^" + said.replace("?", r"\?")):
        settings_in(config)


@pytest.mark.parametrize("function", [specsim.simulate, specsim.sweep, specsim.find])
def test_the_keys_are_keywords_of_python(function):
    shown = signature(function).parameters
    for each in declared():
        assert each.name == "out" or shown[each.name.replace(".", "__")].default == each.default
    assert set(GROUPS) <= set(shown)
    assert shown["belief"].annotation == "str | Path | None"
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


def test_each_line_about_a_key_is_short_prose():
    for each in declared():
        assert 10 < len(each.key.doc) < 96, each.name
        assert not each.key.doc.startswith(("what ", "who ", "whether ")), each.name
    assert {"out", "step_limit_s"} <= set(UNALTERING)
