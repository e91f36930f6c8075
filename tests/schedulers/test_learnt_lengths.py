"""Lengths that are learnt, by hand: Nightjar's bins and its drafter that leaves, UCBSpec's arms, DSDE's divergences."""

from dataclasses import replace
from math import log, sqrt
from types import SimpleNamespace

import numpy as np
import pytest

from specsim.core.passes import DraftPass, Emitted, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.schedulers.banditspec import UcbLengths
from specsim.schedulers.dsde import LONG, UNSTEADY, DivergenceLengths, divergences, variance_ratio
from specsim.schedulers.loading import scheduler_factory
from specsim.schedulers.nightjar import BinGreedyLengths, Bins, catching_up_s
from specsim.schedulers.parts.protocols import Sequences
from tests.laws.every import judge, watched
from tests.laws.subjects import raw_of
from tests.made import Hardware, Linear, ledger_and_view, memory, requests
from tests.schedulers.test_every_parameter import scene, with_value
from tests.schedulers.test_specserve import chains, play, verified


def known(*goodput: float) -> Bins:
    return Bins(np.array(goodput), np.array([each > 0 for each in goodput], dtype=np.int64))


def test_blocks_double_and_are_cut_into_bins_of_their_root():
    """Blocks of 1, 2, 4 and 8 steps: bins of 1; of 2; of 2 and 2; of 3, 3 and 3."""
    bins, found = known(1.0), []
    for _ in range(16):
        found.append((bins.horizon, bins.number))
        bins.go_on()
    assert found == [(1, 1)] + [(2, 1)] * 2 + [(4, 1)] * 2 + [(4, 2)] * 2 + [(8, 1)] * 3 + [(8, 2)] * 3 + [(8, 3)] * 3


def test_the_loss_is_seconds_a_token_and_a_switch_shared_by_the_length():
    """Of 20, 25 and 40 tokens/s: 50, 40 and 25 ms; a switch of 60 ms costs a length of 1 60, of 2 30, of 3 20."""
    assert known(20.0, 25.0, 40.0, 0.0).losses(0.0) == pytest.approx([0.05, 0.04, 0.025, np.inf])
    assert known(20.0, 25.0, 40.0, 0.0).losses(0.06) == pytest.approx([0.05, 0.1, 0.055, np.inf])


def test_after_a_first_bin_the_fastest_is_taken_as_often_as_not():
    """The second bin of a block explores with 1/2, at random among 3 lengths: 2/3 of the bins take the best."""
    part, found = BinGreedyLengths(2, 0, 0.0, 0.0), []
    for _ in range(3000):
        bins = known(20.0, 40.0, 30.0)
        bins.number = 2
        found.append(part.length(bins))
    assert np.bincount(found) / 3000 == pytest.approx([1 / 6, 2 / 3, 1 / 6], abs=0.03)


def test_going_on_costs_what_the_drafter_has_to_read():
    """1 ms a token beyond the one that any first draft pass reads: 8 are pending, of a prompt of 5 and 3 emitted."""
    hand = play(BinGreedyLengths(0, 0, 0.0, 0.0), Linear(0.0, 0.0, 1.0))
    hand.view.cost_model = Hardware(Linear(0.0, 0.0, 1.0), Linear(0.0, 1e-3, 0.01))
    for _ in range(2):
        verified(hand, 0.9)
        hand.emit([1])
    assert catching_up_s(hand.view) == pytest.approx(0.007)


def test_the_pool_gains_the_weights_and_gives_them_back_when_they_fit():
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
    assert (moved_by(1, False), view.drafter_away) == (0, True)
    ledger.pool.used_bytes = 397
    assert moved_by(1, False) == 0, "it comes behind the pass"
    assert (view.capacity_bytes, view.free_bytes, view.drafter_away) == (400, 0, False)
    ledger.pool.used_bytes = 100
    assert moved_by(1, False) == 200, "the next pass waits for the transfer"
    assert moved_by(1, False) == 0


def test_a_tight_crowd_runs_without_the_drafter_and_every_law_holds():
    """Cache is short for most of the crowd, and the drafter leaves at once."""
    mapping = with_value(raw_of("nightjar"), "speculation.persist_s", 0.0)
    crowd = replace(scene("tight"), scheduler=scheduler_factory(mapping, "made"), host_bytes_per_s=1e4)
    heard = watched(crowd).heard[0]
    gone = [isinstance(step.work, TargetPass) and step.work.drafter_away for step in heard]
    assert sum(gone) > 20
    assert any(isinstance(step.work, DraftPass) for step in heard[gone.index(True) :]), "it comes back"
    judge("nightjar", crowd)


# --- UCBSpec: its confidence radius, which arm it pulls, and what a step is worth -------------------------------------


def test_the_radius_is_that_of_equation_6():
    """L = 4, K = 2, delta = 0.1, t = 4 + 1 steps: 2 sqrt(5 / 16 (1 + 2 log(2 x 25 x sqrt 5 / 0.1))) = 4.34."""
    part = UcbLengths([0, 4], 0.1, 1.0)
    part.pulls[:] = [4, 1]
    wanted = [2 * sqrt(share * (1 + 2 * log(500 * sqrt(each)))) for share, each in ((5 / 16, 5), (2, 2))]
    assert (part.radius(), part.radius()[0]) == (pytest.approx(wanted), pytest.approx(4.34, abs=0.01))
    part.delta = 1e-320
    assert np.isfinite(part.radius()).all()


@pytest.mark.parametrize(
    ("pulls", "means", "exploration", "arm"),
    [
        *(([0, 0, 0], [0, 0, 0], 1.0, 0), ([1, 1, 0], [9, 9, 0], 1.0, 2)),
        ([50, 50, 50], [1.0, 1.2, 1.1], 1.0, 1),
        ([50, 50, 5], [1.0, 1.2, 1.1], 1.0, 2),
        ([50, 50, 5], [1.0, 1.2, 1.1], 0.0, 1),
    ],
)
def test_each_arm_is_pulled_once_then_the_highest_bound(pulls, means, exploration, arm):
    part = UcbLengths([0, 1, 3], 0.1, exploration)
    part.pulls[:], part.means[:] = pulls, means
    assert part.arm == arm


def test_a_step_is_worth_its_tokens_over_its_time_in_plain_steps():
    """Every pass takes 10 ms, a plain step is believed to take 15: one token in 10 ms, 3 (of 2 right) in 3 x 10 ms."""
    hand = play(part := UcbLengths([0, 2], 0.1, 0.0), Linear(0.0, 0.0, 0.015))
    assert verified(hand, 0.9) == [0]
    hand.emit([1])
    assert verified(hand, 0.9) == [2]
    hand.emit([3], [2])
    assert (part.means.tolist(), part.pulls.tolist()) == (pytest.approx([1.5, 1.5]), [1, 1])
    assert verified(hand, 0.9) == [0], "the first of equals"
    hand.emit([1])
    assert part.pulls.tolist() == [2, 1]
    hand = play(part := UcbLengths([0, 2], 0.1, 0.0), Linear(0.0, 0.0, 1.0))
    verified(hand, 0.9)
    hand.emit([1])
    assert part.means.tolist() == [3.0, 0.0], "no step is worth more than an arm can bring"


def test_a_step_without_memory_for_its_chains_teaches_nothing():
    part, view = UcbLengths([0, 2], 0.1, 0.0), SimpleNamespace(forward_s=1.0)
    one, none = np.ones(1, dtype=np.int64), np.zeros(1, dtype=np.int64)
    rows, answer = Sequences(none, one, 1, none), Emitted(one, none, none, none > 0)
    for _ in range(3):
        part.on_verified(view, rows, Forest.roots(1), answer)  # type: ignore[arg-type]
    assert part.pulls.tolist() == [1, 0], "the second would have drafted"


@pytest.mark.parametrize(
    ("arms", "delta", "said"),
    [([], 0.1, "is no list of draft tokens"), ([-1, 2], 0.1, "arms=-1 is below 0"), ([0], 0.0, "delta=0.0 is not in")],
)
def test_what_is_no_arm_is_refused(arms, delta, said):
    with pytest.raises(ValueError, match=said):
        UcbLengths(arms, delta, 1.0)


# --- DSDE: the divergence that stands for KL, its weighted variances, the lengths of Eq. 8, calibration and cap -------


def begun() -> DivergenceLengths:
    part = DivergenceLengths(10, 2, True)
    part.begin(4)
    return part


def test_a_sure_target_diverges_by_the_surprise_of_its_token():
    """Right tokens of 0.9 and 0.5: -log 0.9, -log 0.5; the wrong one of 0.8 leaves 0.2; the one behind has none."""
    found = divergences(chains([[0.9, 0.5, 0.8, 0.7], [0.25]]), np.array([2, 0]))
    assert found == pytest.approx(np.array([[-log(0.9), -log(0.5), -log(0.2), 0], [-log(0.75), 0, 0, 0]]))


def test_the_ratio_of_variances_weighs_the_latest_most():
    """Divergences 1, 0, 0, ...: a weighted mean p and variance p (1 - p), where p is the first weight's share."""
    past = np.zeros((2, LONG))
    past[0, 0] = 1.0
    short, long = ((1 - 0.85) / (1 - 0.85**n) for n in (10, 30))
    assert variance_ratio(past) == pytest.approx([short * (1 - short) / (long * (1 - long)), UNSTEADY])


def test_a_length_falls_with_the_divergence_of_the_last_step():
    """Eq. 8 with a ratio of 20 (nothing varies): (exp(2 x 0.01) - 1) x 20 = 0.404, so 0.596 x (8 - 2) + 2 = 5.6: 6.

    At 0.0249 it is 1.02, at its first order 2 x 0.0249 x 20 = 0.996, which would leave a length of 3.
    """
    part = begun()
    part._longest[:], part._judged[:], part._divergence[:] = 8, LONG, 0.01
    assert part._steadied(np.arange(4), np.array([0.01, 0.0, 0.5, 0.0249])).tolist() == [6, 8, 2, 2]


def test_the_mean_length_caps_the_calibrated_alone():
    """Of 2, 3 and 8 the mean is 4.33, rounded up 5; the fourth is not calibrated yet."""
    part, rows = begun(), Sequences(np.arange(4), np.ones(4, dtype=np.int64), 4, np.zeros(4, dtype=np.int64))
    part._lengths[:], part._longest[:3] = [2, 3, 8, 10], 8
    assert part.lengths(rows).tolist() == [2, 3, 5, 10]
    part.sl_cap = False
    assert part.lengths(rows).tolist() == [2, 3, 8, 10]


def test_a_request_doubles_until_it_has_thirty_judged_tokens():
    """2 + 4 + 8 + 10 + 10 tokens are all right: 10 accepted, times 1 + mean / max = 2, bounded by 10."""
    hand = play(part := DivergenceLengths(10, 2, True), Linear(0.0, 0.0, 1.0), most=200)
    for length in (2, 4, 8, 10, 10):
        assert verified(hand, 0.9) == [length]
        assert part._longest[0] == 0
        hand.emit([length + 1], [length])
    assert part._longest[0] == 10
    # The next: nothing varies, so 20 x (exp(-2 log 0.9) - 1) is above 1.
    assert verified(hand, 0.9) == [2]


def test_calibration_is_the_most_accepted_and_how_even_divergence_was():
    """Two of 3 right each time at 0.5: every divergence is log 2, so 2 x (1 + 1) = 4."""
    hand = play(part := DivergenceLengths(10, 3, True), Linear(0.0, 0.0, 1.0), most=200)
    for _ in range(10):
        assert verified(hand, 0.5) == [3]
        hand.emit([3], [2])
    assert part._longest[0] == pytest.approx(4.0)
