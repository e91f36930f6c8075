"""Acceptance by draft position: rates come out as they were typed, whatever drafts, however it is asked."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from specsim import simulate
from specsim.acceptance.curves import Acceptance, level_rates
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.acceptance.trace import AcceptanceTrace
from specsim.core.passes import TargetPass
from specsim.core.request import Ints
from specsim.rng import mix
from specsim.simulation import Simulation, run
from tests.laws.subjects import NAMES, factory_of
from tests.laws.watch import watched
from tests.made import memory, requests, simulation

MEASURED = (0.85, 0.73, 0.68, 0.62, 0.58, 0.55)
RISING = (0.65, 0.62, 0.71, 0.74)


def acceptance(**body: Any) -> Acceptance:
    kind = "length" if {"length", "lengths", "rate"} & body.keys() else "positions"
    made = acceptance_from_mapping({"kind": kind, "categories": {"default": body}}, "acceptance")
    assert isinstance(made, Acceptance)
    return made


def acceptance_trace(count: int, **body: Any) -> AcceptanceTrace:
    return acceptance(**body).acceptance_trace(["text"], np.zeros(count, dtype=np.int64), np.arange(count), 0)


def drafting(made: Acceptance, chain: int, count: int = 240, length: int = 400) -> Simulation:
    """Return a run that always drafts as many tokens: slots, memory, a budget and `max_tokens` leave room for all."""
    told = requests([0.0] * count, [3] * count, [length + chain + 1] * count)
    text = made.acceptance_trace(["text"], np.zeros(count, dtype=np.int64), np.arange(count), 0)
    limits = {"max_num_seqs": count, "max_num_batched_tokens": count * (chain + 1)}
    factory = factory_of("vllm_spec", num_speculative_tokens=chain, **limits)
    return simulation(told, [length] * count, factory, text=text, pool=memory(told, 2.0 * count), keep_passes=False)


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


def test_measured_conditional_rates_give_their_length() -> None:
    """A single rate with the same length at k = 3 promises 12% more at k = 6."""
    assert abs(length_at(6, conditional=list(MEASURED), spread=0) - 3.39) < 0.03
    single = acceptance(k=3, length=1 + float(np.cumprod(MEASURED[:3]).sum())).curves["default"].rates[0]
    assert abs(length_at(6, conditional=single, spread=0) - 3.81) < 0.03


def test_a_list_is_read_as_conditional_or_as_cumulative() -> None:
    """The same numbers, typed in both readings."""
    assert abs(length_at(6, cumulative=list(MEASURED), spread=0) - (1 + sum(MEASURED))) < 0.06
    cumulative = [float(each) for each in np.cumprod(MEASURED)]
    assert acceptance(cumulative=cumulative).curves["default"].rates == pytest.approx((*MEASURED, 0.55, 0.55))


@pytest.mark.parametrize("body", [{"k": 3, "length": 2.83}, {"k": 3, "rate": 0.61}, {"lengths": [1.77, 2.37, 2.83]}])
def test_a_length_comes_out(body: dict[str, Any]) -> None:
    """Field case c07: an engine logs 61% of drafted tokens accepted at k = 3, and a mean length of 2.83."""
    assert abs(length_at(3, **body, spread=0) - 2.83) < 0.03


@pytest.mark.parametrize(
    ("lengths", "rates"),
    [({2: 2.19, 4: 2.5575}, (0.7, 0.7, 0.5, 0.5)), ([1.5, 1.7, 2.1], (0.5, 0.6, 0.999))],
    ids=["equal between two k", "evened out"],
)
def test_lengths_by_k_are_steps_of_cumulative_rates(lengths: Any, rates: tuple[float, ...]) -> None:
    """1 + .7 + .49 = 2.19, and .49 (.5 + .25) more. Steps of .5, .2 and .4 are .5, .3 and .3, as they may not rise."""
    assert acceptance(lengths=lengths).curves["default"].rates[: len(rates)] == pytest.approx(rates, abs=1e-6)


@pytest.mark.parametrize("rates", [MEASURED, RISING])
@pytest.mark.parametrize("spread", [0.0, 0.5, 1.5])
def test_rates_pooled_over_verifications_are_those_typed(rates: tuple[float, ...], spread: float) -> None:
    """However much requests differ: in closed form over the levels, for the chain that was typed."""
    made = acceptance(conditional=list(rates), spread=spread)
    levels = level_rates(made.curves["default"], made.levels)
    reached = np.cumprod(levels[:, : len(rates)], axis=1)
    verifications = 1 / (1 + reached.sum(axis=1))
    assert verifications @ reached / verifications.sum() == pytest.approx(np.cumprod(rates), rel=1e-6)
    assert (levels[:, 0].std() > 0.01) == (spread > 0)


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_meets_the_same_text(name: str) -> None:
    """A verification accepts the target's own path through the tree, as request, output and draft position say.

    Never as batch, replicas, memory or preemption do.
    """
    text = acceptance_trace(6, conditional=[0.9, 0.7, 0.5, 0.3])
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


def test_typed_rates_work_from_the_command_line_and_python() -> None:
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


def test_a_lookup_drafts_in_the_stated_share_of_steps() -> None:
    chain = 3
    record = watched(drafting(acceptance(conditional=0.6, match=0.3, spread=0.0), chain, 100)).heard[0]
    verified = [step for step in record if isinstance(step.work, TargetPass)][1:100]
    drafts = np.concatenate([step.work.forest.tree_tokens() for step in verified])
    matched = np.concatenate([step.answer.matched for step in verified])
    assert set(drafts.tolist()) == {0, chain}
    assert np.mean(drafts > 0) == pytest.approx(0.3, abs=0.02)
    assert np.mean(matched[drafts > 0]) == pytest.approx(0.6 + 0.6**2 + 0.6**3, abs=0.05)
    assert not matched[drafts == 0].any(), "such a request verifies one token"
