"""Values as typed: Hydra's grammar, its functions that span several values, on keys and on groups."""

import pytest

from specsim.config.groups import names
from specsim.config.points import points
from specsim.config.values import _parsed, fitting, value_of


def swept(word):
    ((key, *_),) = {tuple(point) for point in points([word], sweep=True)}
    return [point[key] for point in points([word], sweep=True)]


@pytest.mark.parametrize(
    ("word", "values"),
    [
        ("rps=2,3", ["2", "3"]),
        ("rps=choice(2,3)", ["2", "3"]),
        ("rps=range(1,5)", ["1", "2", "3", "4"]),
        ("rps=range(5,1,-2)", ["5", "3"]),
        ("rps=range(0.1,0.5,0.1)", ["0.1", "0.2", "0.3", "0.4"]),
        ("rps=sort(3,1,2)", ["1", "2", "3"]),
        ("rps=tag(mine,choice(1,2))", ["1", "2"]),
        ("warmup=[0,5],[5,9]", ["[0,5]", "[5,9]"]),
        ("scheduler=fcfs, las", ["fcfs", "las"]),
        ("+scheduler=choice('fcfs', continuous)", ["fcfs", "continuous"]),
        ("trace=choice(./my first.csv,'b (2).csv',poisson)", ["./my first.csv", "b (2).csv", "poisson"]),
        ("trace=./a(1).csv,./b=2.csv", ["./a(1).csv", "./b=2.csv"]),
    ],
)
def test_what_a_word_spans(word, values):
    assert swept(word) == values


def test_glob_picks_among_the_names_of_a_group_as_in_hydra():
    assert swept("scheduler=glob(smart*)") == [name for name in names("scheduler") if name.startswith("smart")]
    assert len(swept("scheduler=glob(smart*)")) > 3
    rest = swept("scheduler=glob(*,exclude=[fcfs,las])")
    assert rest == [name for name in names("scheduler") if name not in ("fcfs", "las")]
    assert swept("trace=glob([azure*,poisson])") == ["azure_code", "azure_conv", "poisson"]
    assert swept("profile=glob(llama8b_1b*,exclude=*a100)") == ["llama8b_1b_h100", "llama8b_1b_h200"]


@pytest.mark.parametrize(
    ("text", "old", "value"),
    [
        ("'5'", 1, 5),
        ("'5'", "name", "5"),
        ("'5'", "${seed}", 5),
        ("'5'", None, 5),
        ("'true'", False, True),
        ("'[1,2]'", None, [1, 2]),
        ("~/x.py", [], "~/x.py"),
        ("{a: ~/x}", {}, {"a": "~/x"}),
        ('{"1-16": 3, \'b\': [{"c.d": 1}]}', {}, {"1-16": 3, "b": [{"c.d": 1}]}),
        ("'{\"a\": 1}'", "x", '{"a": 1}'),
    ],
)
def test_what_a_text_means_in_the_place_of_another_value(text, old, value):
    assert fitting("key=", text, old) == value


NUMBERS = "0 -0 7 -12 007 +7 1_000 123456789012345 1e3 2.0 0.5 -0.25 3.14159 -0.0 00.5 1. .5 0.000001 1.0e3 1.5_0"


@pytest.mark.parametrize("text", [*NUMBERS.split(), "9" * 40])
def test_a_number_is_what_hydra_reads(text):
    read = _parsed("rps=", text).value()
    assert (value_of("rps=", text), type(value_of("rps=", text))) == (read, type(read))
