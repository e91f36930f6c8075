"""Words of vLLM, SGLang, aiperf and GuideLLM lead to the key that means the same, and no hint is refused when typed."""

import json
import re

import pytest

from specsim.cli import main
from specsim.config.configured import from_words
from specsim.config.groups import LABELS, chosen_by_default, shipped_names
from specsim.config.points import known_keys
from specsim.config.synonyms import WORDS
from specsim.files.yaml_file import peek_yaml, shipped
from specsim.runs.plan import check_idle, checked

CONDITIONAL = {"launch_s", "graph_step", "graph_most"}
"""Keys that change something only beside another, which their refusal names."""
VALUES = {"N": "64", "R": "2", "K": "3", "X": "2", "S": "3"}


def refusal(word, capsys):
    if word.startswith("--"):
        with pytest.raises(SystemExit, match="2"):
            main(["run", *word.split()])
    else:
        assert main(["run", *word.split()]) == 2
    told = capsys.readouterr().err
    assert told.count("\n") == 1
    return told


@pytest.mark.parametrize(
    ("word", "key"),
    [
        ("--request-rate 4", "rps=R"),
        ("--max-concurrency=8", "concurrency=N"),
        ("max_num_batched_tokens=8192", "scheduler=vllm scheduler.max_num_batched_tokens=N"),
        ("--goodput ttft:200", "slo.ttft_s=0.2"),
        ("qps=4", "rps=R"),
        ("trace=burstgpt", "trace=./FILE: BurstGPT_1.csv"),
    ],
)
def test_a_word_leads_to_the_key_that_means_it(word, key, capsys):
    assert f"expected {key}" in refusal(word, capsys)


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


def hint(word, capsys):
    return re.search(r"did you mean '(\w+)\.(\w+)'(?: with (\w+)=(\w+))?\?", refusal(f"{word}=1", capsys))


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
def test_a_hint_at_a_groups_key_is_not_refused_when_typed(key, capsys):
    group, name, _, choice = hint(key, capsys).groups()
    choice = choice or chosen_by_default()[group]
    value = peek_yaml(shipped("conf") / group / f"{choice}.yaml")[name]
    check_idle(from_words([f"{group}={choice}", f"{group}.{name}={str(value).lower()}"], sweep=False))


@pytest.mark.parametrize("word", ["description", "suggests", "name"])
def test_a_hint_never_crosses_roles(word, capsys):
    assert "did you mean" not in refusal(f"{word}=1", capsys)


@pytest.mark.parametrize("out", ["s3://bucket/x", "hdfs:/x"])
def test_an_address_is_no_folder(out, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for words in (f"out={out} requests=3", f"-m out={out} seed=1,2"):
        assert f"out='{out}': an address; expected a path" in refusal(words, capsys)
    assert list(tmp_path.iterdir()) == []


LENGTHS = [
    ("trace.prompt_tokens=1024", [1024]),
    ("trace.prompt_tokens={distribution: fixed, mean: 1024}", [1024]),
    ("trace.prompt_tokens.distribution=uniform trace.prompt_tokens.low=10 trace.prompt_tokens.high=11", [10, 11]),
    ("trace.prompt_tokens={distribution: lognormal, low: 700, high: 701}", [700, 701]),
]


@pytest.mark.parametrize(("word", "lengths"), LENGTHS)
def test_another_distribution_drops_the_keys_of_the_former(word, lengths):
    words = word.split(" trace") if ".distribution" in word else [word]
    words = [words[0], *(f"trace{each}" for each in words[1:])]
    (point,) = checked(from_words(["trace=poisson", "requests=20", "scheduler=fcfs", *words], sweep=False))
    assert point.config["trace"]["output_tokens"]["distribution"] == "lognormal"
    assert set(point.experiment.simulation.requests.prompt_tokens.tolist()) == set(lengths)
