"""The engine's own words: a silent scheduler is named, an illegal pass is refused, an idle one may wait."""

from __future__ import annotations

import numpy as np
import pytest

from specsim.engine import Stalled
from specsim.errors import IllegalPass
from specsim.forest import Forest
from specsim.protocols import Step, View
from specsim.simulation import run
from specsim.work import Verify
from tests.laws.subjects import factory_of
from tests.made import requests, simulation


class Silent:
    def step(self, view: View) -> Step:
        yield from ()


class Greedy:
    """Asks for one token more than there is."""

    def step(self, view: View) -> Step:
        ids = np.array(view.waiting)
        yield Verify(ids, view.pending(ids) + 1, Forest.roots(len(ids)))


class Patient:
    """Waits until two requests are there, then lets `continuous` go on."""

    def __init__(self) -> None:
        self.inner = factory_of("continuous")()

    def step(self, view: View) -> Step:
        if view.emitted_tokens.any() or len(view.waiting) > 1:
            yield from self.inner.step(view)


def test_a_scheduler_that_runs_nothing_is_named() -> None:
    with pytest.raises(Stalled, match=r"scheduler Silent runs nothing at 2 s although 2 requests wait"):
        run(simulation(requests([0.0, 2.0], [4, 4], [9, 9]), [3, 3], Silent))


def test_an_illegal_pass_names_the_scheduler_and_the_time() -> None:
    with pytest.raises(IllegalPass, match=r"scheduler Greedy at 0 s: a chunk must hold"):
        run(simulation(requests([0.0], [4], [9]), [3], Greedy))


def test_a_scheduler_may_wait_for_the_next_arrival() -> None:
    columns = run(simulation(requests([0.0, 2.0], [4, 4], [9, 9]), [3, 3], Patient)).columns
    assert (columns.output_tokens == 3).all()
    assert (columns.first_token_s > 2.0).all()
