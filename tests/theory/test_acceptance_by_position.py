"""Acceptance by draft position: rates come out as they were typed, whatever drafts, however it is asked."""

import csv
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy.special import expit, logit
from scipy.stats import norm

from specsim import simulate
from specsim.acceptance.curves import Acceptance, ConfidenceCalibration, level_means, level_rates, pooled
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.acceptance.trace import AcceptanceTrace
from specsim.config.compose import compose
from specsim.core.passes import TargetPass
from specsim.core.request import Ints
from specsim.rng import mix
from specsim.simulation import Simulation, run
from tests.data import real_file
from tests.laws.every import watched
from tests.laws.subjects import KINDS, factory_of
from tests.made import memory, requests, simulation

MEASURED = (0.85, 0.73, 0.68, 0.62, 0.58, 0.55)
RISING = (0.65, 0.62, 0.71, 0.74)


def loaded(mapping: dict[str, Any]) -> Acceptance:
    made = acceptance_from_mapping(mapping, "acceptance")
    assert isinstance(made, Acceptance)
    return made


def acceptance(**body: Any) -> Acceptance:
    kind = "length" if {"length", "lengths", "rate"} & body.keys() else "positions"
    return loaded({"kind": kind, "categories": {"default": body}})


def text_of(made: Acceptance, count: int, seed: int = 0) -> AcceptanceTrace:
    return made.acceptance_trace(["text"], np.zeros(count, dtype=np.int64), np.arange(count), seed)


def drafting(made: Acceptance, chain: int, count: int = 240, length: int = 400) -> Simulation:
    """Return a run that always drafts as many tokens: slots, memory, a budget and `max_tokens` leave room for all."""
    told = requests([0.0] * count, [3] * count, [length + chain + 1] * count)
    limits = {"max_num_seqs": count, "max_num_batched_tokens": count * (chain + 1)}
    factory = factory_of("vllm_spec", num_speculative_tokens=chain, **limits)
    room = memory(told, 2.0 * count)
    return simulation(told, [length] * count, factory, text=text_of(made, count), pool=room, keep_passes=False)


def accepted_of(made: Acceptance, chain: int, *size: int) -> Ints:
    """Return how many verifications of as many drafts accepted 0, 1, ... of them, (chain + 1,)."""
    progress = run(drafting(made, chain, *size)).progress
    verified = progress.speculations.sum()
    assert progress.draft_tokens.sum() == chain * verified
    return -np.diff([verified, *progress.accepted_at.sum(axis=0)[:chain], 0])


def mean_length(accepted: Ints) -> float:
    """Return the mean tokens of a verification, its bonus token included."""
    return 1 + float(accepted @ np.arange(len(accepted)) / accepted.sum())


def length_at(chain: int, **body: Any) -> float:
    return mean_length(accepted_of(acceptance(**body), chain))


def test_measured_conditional_rates_give_their_length():
    """A single rate with the same length at k = 3 promises 12% more at k = 6."""
    assert abs(length_at(6, conditional=list(MEASURED), spread=0) - 3.39) < 0.03
    single = acceptance(k=3, length=1 + float(np.cumprod(MEASURED[:3]).sum())).curves["default"].rates[0]
    assert abs(length_at(6, conditional=single, spread=0) - 3.81) < 0.03


def test_a_list_is_read_as_conditional_or_as_cumulative():
    """The same numbers, typed in both readings."""
    assert abs(length_at(6, cumulative=list(MEASURED), spread=0) - (1 + sum(MEASURED))) < 0.06
    cumulative = [float(each) for each in np.cumprod(MEASURED)]
    assert acceptance(cumulative=cumulative).curves["default"].rates == pytest.approx((*MEASURED, 0.55, 0.55))


@pytest.mark.parametrize("body", [{"k": 3, "length": 2.83}, {"k": 3, "rate": 0.61}, {"lengths": [1.77, 2.37, 2.83]}])
def test_a_length_comes_out(body):
    """Field case c07: an engine logs 61% of drafted tokens accepted at k = 3, and a mean length of 2.83."""
    assert abs(length_at(3, **body, spread=0) - 2.83) < 0.03
    assert (acceptance(**body).known, acceptance(conditional=0.7).known) == (3, None)


@pytest.mark.parametrize(
    ("lengths", "rates"), [({2: 2.19, 4: 2.5575}, (0.7, 0.7, 0.5, 0.5)), ([1.5, 1.7, 2.1], (0.5, 0.6, 0.999))]
)
def test_lengths_by_k_are_steps_of_cumulative_rates(lengths, rates):
    """1 + .7 + .49 = 2.19, and .49 (.5 + .25) more. Steps of .5, .2 and .4 are .5, .3 and .3, as they may not rise."""
    assert acceptance(lengths=lengths).curves["default"].rates[: len(rates)] == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize("rates", [MEASURED, RISING])
@pytest.mark.parametrize(("spread", "match"), [(0.0, 1.0), (0.5, 1.0), (1.5, 1.0), (1.5, 0.5)])
def test_rates_pooled_over_verifications_are_those_typed(rates, spread, match):
    """However much requests differ: in closed form over the levels, for the chain that was typed."""
    made = acceptance(conditional=list(rates), spread=spread, match=match)
    levels = level_rates(made.curves["default"], made.levels)
    reached = np.cumprod(levels[:, : len(rates)], axis=1)
    verifications = 1 / (1 + match * reached.sum(axis=1))
    assert verifications @ reached / verifications.sum() == pytest.approx(np.cumprod(rates), rel=1e-6)
    shorter = 1 / np.mean(1 / (1 + match * reached[:, :2].sum(axis=1)))
    assert 1 + match * sum(pooled(made.curves["default"], 2, made.levels)) == pytest.approx(shorter)
    assert logit(levels[:, 0]).std() == pytest.approx(0.961 * spread, abs=1e-3), "16 levels (docs/your-acceptance.md)"
    assert level_means(1e-60 * rates[0], spread, made.levels).mean() == pytest.approx(1e-60 * rates[0], rel=1e-6, abs=0)


@pytest.mark.parametrize("name", KINDS)
def test_every_kind_of_scheduler_meets_the_same_text(name):
    """A verification accepts the path that request, output and draft position say, whatever batch, replicas, memory."""
    text = text_of(acceptance(conditional=[0.9, 0.7, 0.5, 0.3]), 6)
    told = requests([0.0, 0.0, 0.1, 0.4, 0.4, 0.5], [9, 3, 30, 5, 5, 8], [40] * 6)
    plain = simulation(told, [40, 31, 23, 11, 37, 25], factory_of(name), text=text)
    simulated = (replace(plain, memory=memory(told, 1.5)), replace(plain, replicas=3))
    for heard in (heard for each in simulated for heard in watched(each).heard):
        emitted = np.zeros(6, dtype=np.int64)
        for step in heard:
            if not isinstance(step.work, TargetPass):
                continue
            for row, request in enumerate(step.work.requests.tolist()):
                assert step.answer.matched[row] == _walked(text, step.work, row, int(emitted[request]))
            emitted[step.work.requests] += step.answer.tokens


def _walked(text: AcceptanceTrace, work: TargetPass, row: int, position: int) -> int:
    """Return how many nodes of a row's tree the target's own tokens lead along."""
    forest, node, depth = work.forest, row, 0
    request = work.requests[row : row + 1]
    while True:
        key = text.on_path(request, np.array([position + depth]))
        at = text.rows(request, key, mix(key), np.ones(1, dtype=np.bool_), np.array([depth]))
        children = np.flatnonzero((forest.parent == node) & (forest.token == text.rank[at][0]))
        children = children[children >= forest.rows]
        if not len(children):
            return depth
        node, depth = int(children[0]), depth + 1


def test_typed_rates_work_from_the_command_line_and_python():
    small = {"trace": "poisson", "requests": 60, "scheduler__num_speculative_tokens": 3}
    long = [0.9123456789012345 ** (place + 1) for place in range(16)]
    assert simulate("vllm_spec", acceptance=long, **small).metrics["completed"], "more bytes than a file's name has"
    one = simulate("vllm_spec", acceptance=[0.76, 0.56, 0.43], **small)
    same = simulate("vllm_spec", acceptance="[.76,.56,.43]", **small)
    assert one.requests.equals(same.requests)
    rates = one.metrics["spec_decode_per_position_acceptance_rates"]
    assert rates == pytest.approx([0.76, 0.56, 0.43], abs=0.04)
    columns = [f"accepted_tokens_per_pos.{place}" for place in range(3)]
    drafts = one.requests["speculations"].sum()
    assert [one.requests[name].sum() / drafts for name in columns] == rates
    (said,) = [note for note in one.notes if note.startswith("acceptance=")]
    assert "cumulative [0.76, 0.56, 0.43] means 2.75 tokens a verification at k = 3, 58.3% of drafted" in said
    assert "spread between requests assumed: 0.5" in said
    two = simulate("vllm_spec", acceptance=[0.76, 0.56, 0.43], **small | {"scheduler__num_speculative_tokens": 2})
    here = ": default: 2.33 tokens a verification at k = 2, 66.4% of drafted tokens accepted"
    assert any(here in note for note in two.notes)
    kinds = simulate("vllm_spec", acceptance="gemma4_31b_dflash", acceptance_scale=0.9, **small).notes
    (said,) = [note for note in kinds if "before acceptance_scale=0.9: coding: cumulative [0.858, " in note]
    assert re.findall(r"(\w+): cumulative", said) == ["coding", "summarization", "default"], (
        "no category without a class"
    )


@pytest.mark.parametrize("k", [1, 8])
def test_what_rates_are_worth_at_another_k_is_what_a_run_gives(k):
    """Requests of high acceptance have fewer verifications a token the longer chains are."""
    long = {"trace": "poisson", "requests": 200, "rps": 0.1, "scheduler__num_speculative_tokens": k}
    run = simulate("vllm_spec", acceptance=0.7, trace__output_tokens=600, **long)
    (said,) = [note for note in run.notes if f"tokens a verification at k = {k}," in note]
    wanted = float(re.search(r"([\d.]+) tokens a verification", said)[1])
    assert run.metrics["specsim"]["mean_tokens_per_verification"] == pytest.approx(wanted, rel=0.015)
    assert abs(wanted - sum(0.7**place for place in range(k + 1))) > 0.005


def test_a_lookup_drafts_in_the_stated_share_of_steps():
    chain = 3
    record = watched(drafting(acceptance(conditional=0.6, match=0.3, spread=0.0), chain, 100)).heard[0]
    verified = [step for step in record if isinstance(step.work, TargetPass)][1:100]
    drafts = np.concatenate([step.work.forest.tree_tokens() for step in verified])
    matched = np.concatenate([step.answer.matched for step in verified])
    assert set(drafts.tolist()) == {0, chain}
    assert np.mean(drafts > 0) == pytest.approx(0.3, abs=0.02)
    assert np.mean(matched[drafts > 0]) == pytest.approx(0.6 + 0.6**2 + 0.6**3, abs=0.05)
    assert not matched[drafts == 0].any(), "such a request verifies one token"


# --- every public row of rates by draft position, typed as it is listed, gives the length that these rates state ------

MEASURED_ROWS = real_file("speculation/measured.csv")
TOLERANCE = 0.01


def rows() -> list[tuple[str, list[float], int, float | None]]:
    """Return pair and data set, cumulative rates, k and the stated length of each row whose rates are numbers."""
    found = []
    if MEASURED_ROWS is not None:
        for row in csv.DictReader(MEASURED_ROWS.read_text(encoding="utf-8").splitlines()):
            if not re.fullmatch(r"[\d.]+(;[\d.]+)*", row["acceptance_per_position"]):
                continue
            rates = [float(each) for each in row["acceptance_per_position"].split(";")]
            k = int(re.findall(r"\d+", row["k_or_tree"])[0])
            stated = float(row["acceptance_length"]) if row["acceptance_length"] else None
            found.append((f"{row['target']} with {row['drafter']}, {row['dataset']}", rates, k, stated))
    return found


ROWS = rows()
CONTRADICTORY = {"cnn": 0.24, "gsm8k": 0.19, "instructcoder": 0.55, "sharegpt": 0.40, "SPEED-Bench coding": -0.57}
"""Data sets whose stated length is not that of their rates, and the difference (docs/acceptance.md lists them)."""


@pytest.mark.skipif(not ROWS, reason="needs speculation/measured.csv of the data folder")
@pytest.mark.parametrize(("named", "rates", "k", "stated"), ROWS or [("", [], 0, None)])
def test_rates_typed_on_a_line_give_their_length(named, rates, k, stated):
    """The chain drafts k; 8,000 requests of 100 tokens have a standard error of about a quarter of the tolerance.

    The first row of each k and number of rates is run.
    """
    assert len(ROWS) == 44, "all numeric rows are there"
    made, wanted = loaded(compose({"acceptance": str(rates)})["acceptance"]), 1 + sum(rates[:k])
    if rates == next(each for _, each, drafted, _ in ROWS if (drafted, len(each)) == (k, len(rates))):
        assert abs(mean_length(accepted_of(made, k, 8000, 100)) / wanted - 1) < TOLERANCE
    if stated is not None:
        known = CONTRADICTORY.get(named.rpartition(", ")[2], 0.0)
        assert wanted - stated == pytest.approx(known, abs=0.006)


# --- acceptance pinned as engines pin it for benchmarks: each rule's own length, from the trace and from runs ---------

SGLANG, METHOD = "SGLANG_SIMULATE_ACC_LEN", "SGLANG_SIMULATE_ACC_METHOD"
TRTLLM = "TLLM_SPEC_DECODE_FORCE_NUM_ACCEPTED_TOKENS"


def pinned(**knobs: Any) -> Acceptance:
    return loaded({"kind": "pinned", **knobs})


@pytest.mark.parametrize(
    ("knobs", "accepts"),
    [
        ({"synthetic_acceptance_length": 3.6}, {2: 0.4, 3: 0.6}),
        ({"synthetic_acceptance_rates": [0.9, 0.5, 0.2]}, {0: 0.1, 1: 0.4, 2: 0.3, 3: 0.2}),
        ({SGLANG: 2.25, METHOD: "match-expected"}, {1: 0.75, 2: 0.25}),
        ({TRTLLM: 1.78}, {1: 0.22, 2: 0.78}),
        *(({"synthetic_acceptance_length": each + 1}, {each: 1.0}) for each in (0, 1, 3)),
    ],
)
def test_a_rule_accepts_as_often_as_the_engine(knobs, accepts):
    """Chains of five; the counts within four standard deviations, and no other count at all."""
    counts = accepted_of(made := pinned(**knobs), 5)
    assert made.scaled(1.0) == made
    for number, count in enumerate(counts.tolist()):
        wanted = accepts.get(number, 0.0)
        assert abs(count / counts.sum() - wanted) <= 4 * (wanted * (1 - wanted) / counts.sum()) ** 0.5 + 1 / 2048
        assert (count > 0) == (wanted > 0)


@pytest.mark.parametrize("length", [1.4, 2.6])
def test_sglang_multinomial_is_a_rounded_normal_and_its_mean_is_not_the_length(length):
    """Length l in 1 ... 4 of chains of three: the normal's share between l - 0.5 and l + 0.5, its ends in 1 and 4."""
    counts = accepted_of(pinned(**{SGLANG: length}), 3)
    below = norm.cdf(np.array([1.5, 2.5, 3.5]), length)
    wanted = np.diff([0.0, *below, 1.0])
    assert counts / counts.sum() == pytest.approx(wanted, abs=0.015)
    told = 1 + float(norm.sf(np.arange(1.5, 4), length).sum())
    assert abs(told - length) > 0.01
    assert mean_length(counts) == pytest.approx(told, abs=0.03)


@pytest.mark.parametrize("scheduler", ["vllm_spec", "adaserve"])
def test_a_pinned_benchmark_and_a_run_have_one_length(scheduler):
    """Each verification of two drafts or more accepts two, a tree's no more; an output's last one may end it."""
    run = simulate(scheduler, "poisson", requests=20, acceptance="pinned_vllm")
    first, *deeper = run.metrics["spec_decode_per_position_acceptance_rates"]
    assert first > 0.95
    assert not any(deeper[1:])
    said = "synthetic_acceptance_length 3 accepts by position (cumulative) 1, 1: 3 tokens"
    assert any(said in each for each in run.notes)


# --- reported confidences: by draft position, and made surer or blunter than right, which changes nothing but them ----


@pytest.mark.parametrize(("temperature", "bias"), [(0.5, 0.0), (3.0, -1.0)])
def test_the_likeliest_token_is_reported_by_the_rule_and_a_row_stays_a_row(temperature, bias):
    text = text_of(replace(acceptance(conditional=list(MEASURED)), pool_rows=1), 8)
    told = ConfidenceCalibration(temperature, bias).applied(text)
    assert told.confidence[:, 0] == pytest.approx(expit(logit(text.confidence[:, 0]) / temperature + bias))
    assert (np.diff(told.confidence, axis=1) <= 0).all()
    assert (told.confidence >= 0).all()
    assert told.confidence.sum(axis=1).max() <= 1 + 1e-12
    assert np.array_equal(told.rank, text.rank)
    assert np.array_equal(told.truth, text.truth)


def test_a_run_reports_how_far_confidences_are_from_right():
    """Right 70% of the time, reported at logit 0.8473 / 0.5 + 0.5 = 2.1946: 0.8998, an error of 0.1998."""
    surer = {"acceptance__confidence__temperature": 0.5, "acceptance__confidence__bias": 0.5}
    told = simulate("vllm_spec", "poisson", requests=40, acceptance="bernoulli", **surer)
    for numbers in told.metrics["specsim"]["acceptance"].values():
        assert numbers["top1_agreement"] == pytest.approx(0.7, abs=1e-3)
        assert numbers["mean_confidence"] == pytest.approx(0.8998, abs=1e-4)
        assert numbers["calibration_error"] == pytest.approx(0.1998, abs=1e-3)


def test_schedulers_that_ignore_confidences_serve_the_same_and_others_do_not():
    """AdaServe sizes trees by confidence: of a drafter that is too unsure it verifies other tokens."""
    temperature = "acceptance__confidence__temperature"
    for scheduler, same in (("vllm_spec", True), ("continuous", True), ("adaserve", False)):
        own, told = (simulate(scheduler, "poisson", requests=60, rps=20, **{temperature: each}) for each in (1, 4))
        assert own.requests.equals(told.requests) == same
        assert own.requests["output_tokens"].equals(told.requests["output_tokens"])
