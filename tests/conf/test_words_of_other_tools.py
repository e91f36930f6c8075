"""Words of vLLM, SGLang, aiperf and GuideLLM lead to the key that means the same, and no hint is refused when typed."""

import json
import re

import pytest

from specsim.config.configured import from_words
from specsim.config.groups import LABELS, chosen_by_default, shipped_names
from specsim.config.points import known_keys
from specsim.config.synonyms import WORDS
from specsim.files.yaml_file import peek_yaml, shipped
from specsim.runs.plan import check_idle, checked
from tests.made import refusal

CONDITIONAL = {"launch_s", "graph_step", "graph_most"}
"""Keys that change something only beside another, which their refusal names."""
VALUES = {"N": "64", "R": "2", "K": "3", "X": "2", "S": "3"}


def typed(expected):
    """Return the settings in what was expected, with values in the place of capital letters."""
    named = re.findall(r"[a-z][a-z_.]*=[A-Z]\b|[a-z][a-z_.]*=(?:\d[\d.]*%?|vllm\w*|poisson|gamma|true)", expected)
    return [f"{key}={VALUES.get(value, value)}" for key, value in (each.split("=") for each in named)]


@pytest.mark.parametrize("expected", [each for each in WORDS if typed(each)])
def test_what_is_expected_is_accepted(expected, tmp_path):
    """Where no trace is named, a file with blocks of prompts, which caching needs."""
    words, file = typed(expected), tmp_path / "blocks.jsonl"
    lengths = {"input_length": 700, "output_length": 5}
    rows = [{"timestamp": 500 * row, "hash_ids": [0, row], **lengths} for row in range(99)]
    file.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    trace = [] if any(each.startswith("trace=") for each in words) else [f"trace={file}", "trace.time_unit=ms"]
    checked(from_words([*words, *trace], sweep=False))


def plain_keys():
    """Return every key of a group's file that is not a label, whose value is a number or a truth value."""
    found = set()
    for group in chosen_by_default():
        for name in shipped_names(group):
            values = peek_yaml(shipped("conf") / group / f"{name}.yaml")
            found |= {key for key, each in values.items() if isinstance(each, int | float) and key not in LABELS[group]}
    other = {word for words in WORDS.values() for word in words.split()}
    return sorted(found - set(known_keys()) - other - CONDITIONAL)


@pytest.mark.parametrize("key", plain_keys())
def test_a_hint_at_a_groups_key_is_not_refused_when_typed(key):
    said = refusal(from_words, [f"{key}=1"], sweep=False)
    group, name, choice = re.search(r"did you mean '(\w+)\.(\w+)'(?: with \w+=(\w+))?\?", said).groups()
    choice = choice or chosen_by_default()[group]
    value = peek_yaml(shipped("conf") / group / f"{choice}.yaml")[name]
    check_idle(from_words([f"{group}={choice}", f"{group}.{name}={str(value).lower()}"], sweep=False))


@pytest.mark.parametrize("word", ["description", "suggests", "name"])
def test_a_hint_never_crosses_roles(word):
    assert "did you mean" not in refusal(from_words, [f"{word}=1"], sweep=False)


@pytest.mark.parametrize(
    ("set_to", "lengths"),
    [
        (["=1024"], [1024]),
        (["={distribution: fixed, mean: 1024}"], [1024]),
        ([".distribution=uniform", ".low=10", ".high=11"], [10, 11]),
        (["={distribution: lognormal, low: 700, high: 701}"], [700, 701]),
    ],
)
def test_another_distribution_drops_the_keys_of_the_former(set_to, lengths):
    words = [f"trace.prompt_tokens{each}" for each in set_to]
    (point,) = checked(from_words(["trace=poisson", "requests=20", "scheduler=fcfs", *words], sweep=False))
    assert point.config["trace"]["output_tokens"]["distribution"] == "lognormal"
    assert set(point.experiment.simulation.requests.prompt_tokens.tolist()) == set(lengths)
