"""One way to read a mapping: what passes, what is refused, and that each refusal is one line naming all of it."""

import math

import pytest

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping

NAN, INF, HUGE = math.nan, math.inf, 10**400


def node(value):
    return CheckedMapping("slo=mine", "classes.chat", {"it": value})


def refusal(read, *given, **bounds):
    with pytest.raises(SpecsimError) as caught:
        read(*given, **bounds)
    assert len(str(caught.value).splitlines()) == 1
    return str(caught.value)


@pytest.mark.parametrize("value", [True, False, NAN, INF, -INF, HUGE, -HUGE, -1, "1", None, [1], {}])
def test_no_number(value):
    said = refusal(node(value).number, "it")
    assert said.startswith("slo=mine: classes.chat.it: ")
    assert said.endswith(" is not a finite number of at least 0")


@pytest.mark.parametrize(
    ("bounds", "told"),
    [
        ({"above": 2, "below": 5}, "above 2 and below 5"),
        ({"least": 3, "most": 4}, "of at least 3 and at most 4"),
        ({"above": 2, "most": 4}, "above 2 and at most 4"),
    ],
)
def test_a_number_keeps_its_bounds(bounds, told):
    assert [node(value).number("it", **bounds) for value in (3, 4)] == [3.0, 4.0]
    for value in (2, 5):
        assert refusal(node(value).number, "it", **bounds).endswith(f"{value} is not a finite number {told}")


@pytest.mark.parametrize("value", [True, 1.0, NAN, 0, 10**9 + 1, HUGE, "1", None])
def test_no_whole_number(value):
    for read, given in ((node(value).whole, "a whole number"), (node([2, value]).wholes, "a list of whole numbers")):
        assert refusal(read, "it").endswith(f" is not {given} between 1 and 1000000000")


@pytest.mark.parametrize(
    "value", [[1], [1, 2, 3], [2, 1], [1, 1], [-1, 1], [0, INF], [NAN, 1], [True, 5], [0, "1"], 3, None]
)
def test_no_span(value):
    assert refusal(node(value).span, "it", "[a, b]", least=0).endswith(" is not [a, b]")


@pytest.mark.parametrize("value", ["hart", ["heart"], {}, None, 1])
def test_no_choice(value):
    assert refusal(node(value).choice, "it", ("heart", "lung")).startswith(
        f"slo=mine: classes.chat.it: {value!r} is unk"
    )
    assert refusal(node("hart").choice, "it", ("heart", "lung")).endswith("; did you mean 'heart'?")


def test_mappings_below_say_where_they_stand():
    below = node({"a": {"b": 0}})
    ((name, child),) = below.children("it", "parts").items()
    assert (name, child.key) == ("a", "classes.chat.it.a")
    assert refusal(below.children("it", "parts")["a"].whole, "b").startswith("slo=mine: classes.chat.it.a.b: 0 is not")
    assert [each.key for each in node([{}, {}]).items("it", "parts")] == ["classes.chat.it[0]", "classes.chat.it[1]"]
    for value in ({}, [], 3, None):
        assert refusal(node(value).children, "it", "parts").endswith(" is not a mapping of parts")
    for value in ([], [1], {}, None):
        assert refusal(node(value).items, "it", "parts").endswith(" is not a list of parts")
    assert refusal(node({"a": 1}).children, "it", "parts", "bits").endswith("it.a: 1 is not a mapping of bits")


def test_keys_are_the_ones_that_are_known():
    refused = CheckedMapping("mine.yaml", "", {"shar": 1})
    assert refusal(refused.only, ("share",)) == "mine.yaml: shar: unknown key; did you mean 'share'?"
    assert refusal(CheckedMapping("", "", {}).only, ("share",)) == "share: missing key"
    assert refusal(CheckedMapping("mine.yaml", "", {"a\nb": 1}).only, ()) == "mine.yaml: a b: unknown key"
    assert refusal(CheckedMapping("mine.yaml", "", {3: 1}).only, ()) == "mine.yaml: 3: unknown key"
    CheckedMapping("mine.yaml", "", {"share": 1}).only(("share",), ("scaled",))


def test_a_long_value_is_cut():
    assert len(refusal(node(list(range(1000))).flag, "it")) < 120
