"""A simulation with a backend of its own: the engine asks it as it asks the simulated one."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.errors import ModelFault
from specsim.simulated_backend import SimulatedBackend
from specsim.simulation import run
from tests.golden.scene import scene
from tests.laws.every import assert_same_record
from tests.laws.subjects import factory_of

SWAPPING = replace(scene(), scheduler=factory_of("srpt", switching="transfer", max_num_seqs=2), host_bytes_per_s=1e3)


class Heard(SimulatedBackend):
    """The simulated backend, which notes what it is asked in `asked`."""

    def __init__(self, view, move_s=None):
        super().__init__(SWAPPING.ground_truth, SWAPPING.truth, view, SWAPPING.host_bytes_per_s)
        self.asked = []
        self._move_s = move_s

    def move(self, work, shape):
        self.asked.append(("move", work))
        return super().move(work, shape) if self._move_s is None else self._move_s

    def draft(self, work, shape):
        self.asked.append(("pass", work))
        return super().draft(work, shape)

    def verify(self, work, shape):
        self.asked.append(("pass", work))
        return super().verify(work, shape)


def heard(**changes):
    made = []

    def backend(view):
        made.append(Heard(view, **changes))
        return made[-1]

    return run(replace(SWAPPING, backend=backend)), made[0].asked


def test_the_simulated_backend_handed_in_makes_the_same_run_and_moves_caches_before_the_pass_that_needs_them():
    (record, asked), told = heard(), run(SWAPPING)
    np.testing.assert_allclose(record.moving_s, told.moving_s)
    assert record.totals.moving_s == pytest.approx(told.totals.moving_s)
    assert_same_record(replace(record, totals=replace(record.totals, moving_s=told.totals.moving_s)), told)
    moves = [place for place, (what, _) in enumerate(asked) if what == "move"]
    assert moves
    for place in moves:
        assert asked[place + 1] == ("pass", asked[place][1])


def test_the_seconds_of_moves_are_the_backends_and_shared_out_by_bytes():
    record, asked = heard(move_s=0.5)
    moves = sum(what == "move" for what, _ in asked)
    moved = record.progress.moved_bytes
    assert record.totals.moving_s == pytest.approx(0.5 * moves)
    np.testing.assert_allclose(record.moving_s, 0.5 * moves * moved / moved.sum())


class Short(Heard):
    """A backend that answers one row, whatever it is asked."""

    def verify(self, work, shape):
        answer, seconds = super().verify(work, shape)
        return answer._replace(tokens=answer.tokens[:1]), seconds


def test_an_answer_of_other_rows_is_refused():
    simulation = replace(scene(), scheduler=factory_of("continuous"), backend=Short)
    with pytest.raises(ModelFault, match=r"a backend answers tokens \(1,\) of a verification; expected \(\d+,\)"):
        run(simulation)
