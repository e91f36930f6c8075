"""Seconds of passes that no clock can wait for: refused by the model that they are of."""

from __future__ import annotations

from math import inf, nan

import numpy as np
import pytest

from specsim.errors import ModelFault
from specsim.server.planning import check_rounds, delays, possible

IMPOSSIBLE = [-1e-9, nan, inf, -inf]


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
def test_no_pass_takes_less_than_nothing_or_for_ever(wrong):
    with pytest.raises(ModelFault, match="a pass of the target takes"):
        possible(wrong)
    for seconds in ([wrong], [1.0, wrong], [wrong, 1.0]):
        with pytest.raises(ModelFault, match="a pass of the drafter takes"):
            delays(0.0, seconds)


@pytest.mark.parametrize("wrong", IMPOSSIBLE)
@pytest.mark.parametrize(("place", "model"), [(0, "drafter"), (1, "drafter"), (2, "target")])
def test_a_round_names_the_model_whose_pass_is_wrong(wrong, place, model):
    seconds = np.ones((4, 3))
    seconds[2, place] = wrong
    with pytest.raises(ModelFault, match=f"a pass of the {model} takes"):
        check_rounds(seconds, float(seconds.sum()))


def test_a_pass_may_take_no_time():
    assert possible(0.0) == 0.0
    assert delays(1.0, [0.0]) == [0.0]
    check_rounds(np.zeros((2, 2)), 0.0)
