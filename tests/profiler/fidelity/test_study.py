"""Studies as files and as command lines, the one line of each mistake; the clock of a run run again, and its noise."""

import argparse
import json
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from profiler.fidelity.command import add_arguments, study_of
from profiler.fidelity.study import REAL, REVERSE, SIMULATED, described, study_named
from profiler.fidelity.verdicts import Step, accounted, pass_errors, run_verdicts
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
        assert (len(repeats), repeats) == (2 * 2 * 3, sorted(repeats))


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


KEYS = {"pair": "p", "load": 1.0}
METRICS = ("mean_ttft_ms", "mean_tpot_ms", "mean_e2el_ms", "slo_attainment")


def cell(scheduler, side, repeat=0, numbers=(100.0, 10.0, 200.0, 0.9)):
    return {**KEYS, "scheduler": scheduler, "side": side, "repeat": repeat, **dict(zip(METRICS, numbers, strict=True))}


def noise_of(*cells):
    """Return the noise of mean E2E latency by scheduler, of real runs of these seconds, all simulated as 200."""
    turns = [(name, turn, ms) for name, *all_ms in cells for turn, ms in enumerate(all_ms)]
    rows = [cell(name, "real", turn, numbers=(1.0, 1.0, ms, 1.0)) for name, turn, ms in turns]
    rows += [cell(name, "simulated", numbers=(1.0, 1.0, 200.0, 1.0)) for name, *_ in cells]
    return {each.scheduler: each.noise for each in run_verdicts(pd.DataFrame(rows)) if each.metric == "mean_e2el_ms"}


def test_noise_is_of_further_runs_and_a_disturbed_run_allows_its_cell_nothing():
    assert noise_of(("a", 190.0)) == pytest.approx({"a": float("nan")}, nan_ok=True)
    assert noise_of(("a", 196.0, 204.0, 196.0, 204.0)) == pytest.approx({"a": 0.04 * 4 / 6})
    disturbed = noise_of(("a", 100.0, 300.0), ("b", 198.0, 202.0), ("c", 196.0, 204.0))
    assert disturbed == pytest.approx(dict.fromkeys("abc", 0.04))


def test_one_real_run_is_held_to_the_target_and_cells_that_failed_have_no_verdict():
    verdict, *_ = run_verdicts(pd.DataFrame([cell("a", "real"), cell("a", "simulated")]))
    assert verdict.allowed == verdict.target
    failed = cell("a", "simulated", numbers=(None,) * 4) | {"error": "no"}
    assert run_verdicts(pd.DataFrame([failed, cell("a", "real")])) == []
    assert run_verdicts(pd.DataFrame([cell("b", "real")])) == []


def test_the_noise_of_passes_does_not_depend_on_how_often_a_shape_came():
    """Of three the middle one lies on their median: distances from it said 0.57 of the noise."""
    place, seconds = np.arange(15000), np.random.default_rng(0).normal(1, 0.02, 15000)
    alike = {"pair": "p", "kind": "k", "context_tokens": 1, "batched_tokens": 4, "attention_pairs": 3, "predicted_s": 1}
    for repeats in (2, 3, 5):
        passes = pd.DataFrame({"requests": place // repeats, "measured_s": seconds}).assign(**alike)
        assert pass_errors(passes, by_size=False)[0].noise == pytest.approx(0.6745 * 0.02, rel=0.05)


ARRIVAL_S = np.array([0.0, 1.0, 10.0])


def test_tokens_come_at_the_ends_of_passes_and_the_clock_waits_for_who_runs():
    steps = [Step((0,), (1,), 2.0), Step((0, 1), (), 0.5), Step((0, 1), (2, 1), 1.0), Step((1, 2), (3, 1), 4.0)]
    times = accounted(steps, ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [2.0, 3.5, 14.0])
    np.testing.assert_allclose(times.finish_s, [3.5, 14.0, 14.0])
    np.testing.assert_allclose(times.tokens, [3, 4, 1])
    means = {"ttft_s": (2 + 2.5 + 4) / 3, "tpot_s": (1.5 / 2 + 10.5 / 3) / 2, "e2el_s": (3.5 + 13 + 4) / 3}
    assert times.means(ARRIVAL_S) == pytest.approx(means)


def test_a_row_that_emits_nothing_has_no_first_token_yet_and_without_tokens_there_are_no_means():
    times = accounted([Step((0, 1), (0, 2), 1.0), Step((0, 1), (1, 0), 1.0)], ARRIVAL_S)
    np.testing.assert_allclose(times.first_token_s, [3.0, 2.0, np.nan])
    np.testing.assert_allclose(times.finish_s, [3.0, 2.0, np.nan])
    assert np.isnan(list(accounted([], ARRIVAL_S).means(ARRIVAL_S).values())).all()
