"""Nightjar: its bins, what a length costs, and a drafter that leaves the pool its weights' bytes and comes back."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from specsim.core.passes import DraftPass, Emitted, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.schedulers.loading import scheduler_factory
from specsim.schedulers.nightjar import BinGreedyLengths, Bins, catching_up_s
from tests.laws.every import judge
from tests.laws.subjects import raw_of
from tests.laws.watch import watched
from tests.made import Hardware, Linear, ledger_and_view, memory, requests
from tests.schedulers.changes import scene, with_value
from tests.schedulers.test_specserve import play, verified


def known(*goodput: float) -> Bins:
    return Bins(np.array(goodput), np.array([each > 0 for each in goodput], dtype=np.int64))


def test_blocks_double_and_are_cut_into_bins_of_their_root() -> None:
    """Blocks of 1, 2, 4 and 8 steps: bins of 1; of 2; of 2 and 2; of 3, 3 and 3."""
    bins, found = known(1.0), []
    for _ in range(16):
        found.append((bins.horizon, bins.number))
        bins.go_on()
    assert found == [(1, 1)] + [(2, 1)] * 2 + [(4, 1)] * 2 + [(4, 2)] * 2 + [(8, 1)] * 3 + [(8, 2)] * 3 + [(8, 3)] * 3


def test_the_loss_is_seconds_a_token_and_a_switch_shared_by_the_length() -> None:
    """Of 20, 25 and 40 tokens/s: 50, 40 and 25 ms; a switch of 60 ms costs a length of 1 60, of 2 30, of 3 20."""
    assert known(20.0, 25.0, 40.0, 0.0).losses(0.0) == pytest.approx([0.05, 0.04, 0.025, np.inf])
    assert known(20.0, 25.0, 40.0, 0.0).losses(0.06) == pytest.approx([0.05, 0.1, 0.055, np.inf])


def test_after_a_first_bin_the_fastest_is_taken_as_often_as_not() -> None:
    """The second bin of a block explores with 1/2, at random among 3 lengths: 2/3 of the bins take the best."""
    part = BinGreedyLengths(2, 0, 0.0, 0.0)
    found = []
    for _ in range(3000):
        bins = known(20.0, 40.0, 30.0)
        bins.number = 2
        found.append(part.length(bins))
    assert np.bincount(found) / 3000 == pytest.approx([1 / 6, 2 / 3, 1 / 6], abs=0.03)


def test_going_on_costs_what_the_drafter_has_to_read() -> None:
    """1 ms a token beyond the one that any first draft pass reads: 8 are pending, of a prompt of 5 and 3 emitted."""
    part = BinGreedyLengths(0, 0, 0.0, 0.0)
    hand = play(part, Linear(0.0, 0.0, 1.0))
    hand.view.cost_model = Hardware(Linear(0.0, 0.0, 1.0), Linear(0.0, 1e-3, 0.01))
    for _ in range(2):
        verified(hand, 0.9)
        hand.emit([1])
    assert catching_up_s(hand.view) == pytest.approx(0.007)


def test_the_pool_gains_the_weights_and_gives_them_back_when_they_fit() -> None:
    """400 bytes, 600 while the drafter is away. With 500 held it stays, though it is called; with 400 it comes."""
    told = requests([0.0], [5], [40])
    ledger, view = ledger_and_view(told, replace(memory(told, 1.0, block_tokens=1), capacity_bytes=400))
    ids, roots, none = np.array([0]), Forest.roots(1), np.zeros(1, dtype=np.int64)

    def moved_by(chunk: int, away: bool) -> int:
        work = TargetPass(ids, np.array([chunk]), roots, drafter_away=away)
        shape = ledger.reserve(work)
        ledger.commit_verify(work, Emitted(none + 1, none, none, np.array([False])), 0.0, 0.01)
        ledger.end_step()
        return shape.moved_bytes

    assert moved_by(5, True) == 0
    with pytest.raises(IllegalPass, match="a draft pass while the drafter is on the host"):
        ledger.reserve(DraftPass(ids, view.draft_pending(ids), roots))
    ledger.pool.used_bytes = 500
    assert (view.capacity_bytes, view.free_bytes, view.drafter_away) == (600, 100, True)
    assert moved_by(1, False) == 0
    assert view.drafter_away
    ledger.pool.used_bytes = 397
    assert moved_by(1, False) == 0, "it comes behind the pass"
    assert (view.capacity_bytes, view.free_bytes, view.drafter_away) == (400, 0, False)
    ledger.pool.used_bytes = 100
    assert moved_by(1, False) == 200, "the next pass waits for the transfer"
    assert moved_by(1, False) == 0


def test_a_tight_crowd_runs_without_the_drafter_and_every_law_holds() -> None:
    """Cache is short for most of the crowd, and the drafter leaves at once."""
    mapping = with_value(raw_of("nightjar"), "speculation.persist_s", 0.0)
    crowd = replace(scene("tight"), scheduler=scheduler_factory(mapping, "made"), host_bytes_per_s=1e4)
    heard = watched(crowd).heard[0]
    gone = [isinstance(step.work, TargetPass) and step.work.drafter_away for step in heard]
    assert sum(gone) > 20
    assert any(isinstance(step.work, DraftPass) for step in heard[gone.index(True) :]), "it comes back"
    judge("nightjar", crowd)
