"""The order of a sweep: whatever the time, its first part can be fitted."""

from __future__ import annotations

import pytest

from profiler.latency.choice import judge
from profiler.latency.grids import CPU, CPU_QUICK, FULL, QUICK
from profiler.latency.points import DRAFT_KINDS, TARGET_KINDS, interleaved, spread
from specsim.latency.forms import Roofline
from tests.profiler.latency.made import samples_of

LAW = Roofline(0.012, 1e-6, 0.002, 7e-5, 2e-8, 2e-9)
ROLES = ("target", "draft")


def order_of(grid):
    return interleaved({role: grid.passes(role) for role in ROLES})


def test_a_sequence_is_taken_from_its_ends_inwards():
    assert spread(range(9)) == [0, 8, 4, 2, 6, 1, 5, 3, 7]
    assert [spread(range(count)) for count in range(4)] == [[], [0], [0, 1], [0, 2, 1]]


@pytest.mark.parametrize("grid", [FULL, QUICK, CPU, CPU_QUICK])
def test_every_point_has_one_turn(grid):
    order = order_of(grid)
    wanted = [(role, point) for role in ROLES for point in grid.passes(role)]
    assert len(order) == len(set(order)) == len(wanted)
    assert set(order) == set(wanted)


def test_a_fifth_of_the_grid_has_every_kind_of_both_roles_small_and_large():
    first = order_of(FULL)[: len(order_of(FULL)) // 5]
    for role, kinds in (("target", TARGET_KINDS), ("draft", DRAFT_KINDS)):
        tokens = [point.tokens_most()[1] for each, point in first if each == role]
        assert {point.kind for each, point in first if each == role} == set(kinds)
        assert min(tokens) == 1
        assert max(tokens) >= 2048


@pytest.mark.parametrize("share", [0.3, pytest.param(0.6, marks=pytest.mark.slow)])
def test_what_is_measured_before_a_cut_can_be_fitted(share):
    order = order_of(FULL)
    for role in ROLES:
        before = {point.key for each, point in order[: int(share * len(order))] if each == role}
        found = judge([each for each in samples_of(LAW, role) if each.key in before], role).roofline
        assert max(error.median for error in found.errors.values()) < 0.1
        unseen = [each for each in samples_of(LAW, role) if each.key not in before]
        columns = judge(unseen, role).samples
        off = abs(columns.predicted_by(found.fitted.form) / columns.seconds - 1)
        assert sorted(off)[len(off) // 2] < 0.02
