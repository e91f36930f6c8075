"""Studies as files and as command lines, and the one line of each mistake."""

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from profiler.fidelity.command import add_arguments, study_of
from profiler.fidelity.study import REAL, REVERSE, SIMULATED, described, study_named
from specsim.files.yaml_file import shipped
from tests.made import refusal

TINY = (shipped("conf") / "fidelity" / "tiny.yaml").read_text(encoding="utf-8")
SHAPES = ["--random-weights", "tiny-llama", "tiny-llama-skip1"]


def parsed(*words):
    parser = argparse.ArgumentParser()
    add_arguments(parser)
    return study_of(parser.parse_intermixed_args(words))


def test_real_cells_come_first_and_take_turns_and_all_run_on_both_clocks():
    study = study_named("tiny")
    by_text = {pair.text: study.cells(pair) for pair in study.pairs}
    for cells in by_text.values():
        assert len(cells) == len(set(cells))
        assert Counter(each.side for each in cells) == {REAL: 2 * 2 * 3, SIMULATED: 2 * 3, REVERSE: 2 * 3}
        repeats = [each.repeat for each in cells[: 2 * 2 * 3] if each.side == REAL]
        assert len(repeats) == 2 * 2 * 3
        assert repeats == sorted(repeats)


def test_words_beside_a_study_hold_against_those_of_its_pairs_and_schedulers():
    study = parsed("tiny", "scheduler.verify_tokens=7", "scheduler.shape.width_max=2")
    words = study.words(study.pairs[1], "adaserve")
    assert {"scheduler.verify_tokens=7", "scheduler.shape.width_max=2"} <= set(words)
    assert not {"scheduler.verify_tokens=24", "scheduler.shape.width_max=1"} & set(words)


def test_a_study_is_told_whole_without_places_of_this_machine():
    study = replace(study_named("tiny"), typed=("seed=3",))
    pair = replace(study.pairs[0], prompts=(Path("/home/somebody/texts.jsonl"),))
    told = described(replace(study, pairs=(pair,)))
    assert (told["study"]["typed"], told["study"]["pairs"][0]["prompts"]) == (["seed=3"], ["texts.jsonl"])
    assert "somebody" not in json.dumps(told)


def test_a_pair_from_options():
    study = parsed("+scheduler=fcfs,vllm_spec", "requests=3", *SHAPES, "--text", "drawn", "--loads", "0.2,2")
    assert (list(study.schedulers), study.loads, study.settings) == (["fcfs", "vllm_spec"], (0.2, 2.0), ("requests=3",))
    assert (study.pairs[0].text, study.pairs[0].drafter) == ("drawn", "separate")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["requests=3", *SHAPES], "fidelity: no scheduler; expected a study, or"),
        (["scheduler=fcfs", *SHAPES[:2]], "pair pair: a draft model goes with the drafter separate"),
        (["tinny"], "fidelity tinny: no such study; did you mean 'tiny'"),
        (["tiny", "cpu"], "fidelity cpu: expected one study"),
        (["tiny", "--text", "drawn"], "--text: the study tiny says it"),
        (["tiny", "rps=3"], "rps: fidelity chooses it; expected --loads"),
        (["tiny", "+scheduler=fcfs"], "scheduler: the study tiny names them"),
        (["scheduler=fcfs", *SHAPES, "--pairs", "own"], "--pairs own: expected a study before it"),
        (["tiny", "--pairs", "onw"], "pair onw: unknown; did you mean 'own'"),
    ],
)
def test_mistakes_of_a_command_line(words, said):
    assert refusal(parsed, *words).startswith(said)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("loads: [0.5, 1.5]", "loads: [0.5, 0.5]", "loads: [0.5, 0.5] is not a list of different numbers above 0"),
        ("repeats: 2\ndtype", "graphs: true\ndtype", "graphs: CUDA captures them; expected device cuda, not cpu"),
        ("repeats: 2\ndtype", "repeatz: 2\ndtype", "repeatz: unknown key; did you mean 'repeats'"),
        ("text: drawn", "text: drawns", "pairs.two_layers.text: 'drawns' is unknown"),
        ("drafter: skip, ", "drafter: lookup, ", "pair own: skip_layers go with the drafter skip"),
        ("schedulers: {adaserve", "schedulers: {adasreve", "pairs.lookup.schedulers.adasreve: not one of the study's"),
        ("  own: {", "  ow/n: {", "pair ow/n: names files; expected a name without separators"),
    ],
)
def test_mistakes_of_a_file(tmp_path, old, new, said):
    assert old in TINY
    file = tmp_path / "study.yaml"
    file.write_text(TINY.replace(old, new), encoding="utf-8")
    assert said in refusal(study_named, str(file))
