"""SmartSpec's goodput by hand: generated lengths, the seconds of a step, the surface, and which entry wins."""

from __future__ import annotations

from itertools import product
from typing import Any

import numpy as np
import pytest

from specsim.schedulers.smartspec.goodput import (
    Batch,
    best,
    draft_seconds,
    expected_length,
    goodput,
    longest_by_survival,
    target_seconds,
)
from specsim.schedulers.smartspec.tree import HeadAverage, tree_length
from tests.made import Hardware, Linear, hardware, one


def batch_of(n: int, context: int = 256, longest: Any = 8, catch_up: int = 1) -> Batch:
    full = np.full(n, 1)
    most = np.broadcast_to(np.array(longest), n)
    return Batch(np.arange(n), full * context, full * context, full * catch_up, most)


def alike(n: int, acceptance: float = 0.7) -> Any:
    return np.full(n, acceptance)


# --- generated tokens -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("acceptance", [0.0, 0.6, 1.0])
def test_a_chains_length_is_one_and_the_chances_of_each_draft(acceptance: float) -> None:
    """l(a, k) = 1 + a + ... + a^k; k + 1 where nothing fails (Eq. 8)."""
    k = np.arange(10)
    summed = [sum(acceptance**j for j in range(each + 1)) for each in range(10)]
    assert expected_length(np.array(acceptance), k) == pytest.approx(summed)


@pytest.mark.parametrize("top", [(1, 1, 1), (3, 2, 3), (2, 2, 0), (1, 3, 2)])
def test_a_trees_length_is_the_mean_over_all_luck(top: tuple[int, ...]) -> None:
    """Every candidate of head i right with a_i, on its own; a level counts while all before it hold one right.

    The paper prints another length.
    """
    rates, mean = (0.6, 0.4, 0.8), np.zeros(4)
    for outcome in product(*(range(2) for _ in range(sum(top)))):
        chance, place, alive = 1.0, 0, [True]
        for head, count in enumerate(top):
            mine = outcome[place : place + count]
            place += count
            chance *= float(np.prod([rates[head] if each else 1 - rates[head] for each in mine]))
            alive.append(alive[-1] and any(mine))
        mean += chance * np.cumsum(alive)
    assert tree_length(np.array(rates), np.array([top]))[0] == pytest.approx(mean)


def test_a_heads_rate_is_found_again_from_steps_of_different_widths() -> None:
    """Every other step tries three tokens at 0.4, which hold a right one with 0.784, or one token."""
    average = HeadAverage(heads=1, window=6, first=0.9)
    for wrong, top in ((216, 3), (600, 1)) * 3:
        average.learn(np.array([top]), np.ones(1000, dtype=np.int64), np.repeat([0, 1], [wrong, 1000 - wrong]))
    assert average.rates() == pytest.approx([0.4])


# --- seconds ----------------------------------------------------------------------------------------------------------


def test_a_steps_seconds_by_hand() -> None:
    """Two requests, 100 and 200 cached, the second with room for one draft; the drafter lacks 1 and 3 tokens."""
    batch = Batch(np.arange(2), np.array([100, 200]), np.array([90, 180]), np.array([1, 3]), np.array([2, 1]))
    draft = draft_seconds(Linear(1e-3, 1.0, 100.0), batch, 2)
    # Pass 1 reads what is lacking: 1, 1 + 3 tokens over 90, 90 + 180; pass 2 holds the first request alone.
    first, second = (100 + 1 + 0.09, 100 + 4 + 0.27), 100 + 1 + 0.091
    assert draft == pytest.approx(np.array([[0, 0], first, [first[0] + second, first[1] + second]]))
    target = target_seconds(Linear(1e-3, 1.0, 100.0), batch, np.array([[0, 0], [1, 1], [2, 1]]))
    assert target == pytest.approx(100 + np.array([[1.1, 2.3], [2.1, 4.3], [3.1, 5.3]])), "sum of k_i + 1, roots too"


# --- the surface ------------------------------------------------------------------------------------------------------


def best_lengths(cost_model: Any, sizes: list[int], acceptance: float = 0.7) -> list[int]:
    """Return the best k of the whole batch, for each batch size."""
    return [int(np.argmax(goodput(cost_model, batch_of(n), alike(n, acceptance), 8)[:, -1])) for n in sizes]


def test_one_entry_of_the_surface_by_hand() -> None:
    """3 requests, k = 2, a = 0.5: 3 x 1.75 tokens in two draft passes of 3 tokens and one of 9."""
    made = hardware(alpha=0.0, gamma=1e-3, delta=0.02)
    surface = goodput(made, batch_of(3), alike(3, 0.5), 4)
    assert surface.shape == (5, 3)
    assert surface[2, 2] == pytest.approx(3 * 1.75 / (2 * (0.002 + 3e-4) + 0.02 + 9e-3))
    assert surface[0, 0] == pytest.approx(1 / 0.021)


def test_best_length_falls_to_none_as_the_batch_grows() -> None:
    """Fig. 5, with made linear coefficients: gamma a fiftieth of delta, so 50 tokens cost as much as the weights."""
    lengths = best_lengths(hardware(alpha=0.0, gamma=4e-4, delta=0.02), [1, 2, 4, 8, 16, 32, 64, 128, 256, 512])
    assert lengths == sorted(lengths, reverse=True)
    assert lengths[0] >= 4
    assert lengths[-1] == 0
    assert len(set(lengths)) >= 4


def test_the_best_is_the_best_that_fits_and_ties_go_to_the_longer_prefix() -> None:
    table = np.array([[1.0, 2.0, 2.0], [1.0, 3.0, 4.0]])
    assert best(table, np.ones((2, 3), dtype=bool)) == (3, 1)
    assert best(table, np.array([[True, True, True], [True, True, False]])) == (2, 1)
    assert best(table, np.array([[True, True, True], [True, False, False]])) == (3, 0)
    assert best(table, np.zeros((2, 3), dtype=bool)) == (0, 0)


# --- lengths of each request's own ------------------------------------------------------------------------------------


def goodput_of(cost_model: Hardware, batch: Batch, acceptance: Any, lengths: tuple[int, ...]) -> float:
    """Return the goodput of the whole batch with these lengths, pass by pass."""
    k, n = np.array(lengths), len(lengths)
    seconds = cost_model.target.seconds(one(batch.target_cached.sum(), n + k.sum(), 0))
    for level in range(1, max(lengths) + 1):
        on = k >= level
        read = batch.draft_cached + (batch.catch_up if level > 1 else 0)
        queries = (batch.catch_up if level == 1 else np.ones(n))[on].sum()
        seconds += cost_model.draft.seconds(one(read[on].sum(), queries, 0))
    return float(sum(acceptance[i] ** j for i in range(n) for j in range(lengths[i] + 1)) / seconds)


@pytest.mark.parametrize("seed", range(3))
def test_own_lengths_are_the_best_of_all_that_there_are(seed: int) -> None:
    """Against every k_1..k_3 up to 4, contexts alike: the survival ranking misses nothing."""
    rng = np.random.default_rng(seed)
    acceptance = rng.uniform(0.1, 0.95, 3)
    made = hardware(alpha=0.0, gamma=float(rng.choice([1e-4, 2e-3, 8e-3])), delta=0.02)
    batch = batch_of(3, longest=[4, 2, 4])
    found = tuple(longest_by_survival(made, batch, acceptance, 4).tolist())
    everything = product(range(5), range(3), range(5))
    highest = max(goodput_of(made, batch, acceptance, each) for each in everything)
    # A pass that holds one token may be worth less than one more token elsewhere: no more than that is lost.
    assert goodput_of(made, batch, acceptance, found) == pytest.approx(highest, rel=0.03)
