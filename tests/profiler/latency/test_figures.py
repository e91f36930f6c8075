"""The figures of a fit: what their lines hold, and what is said where they cannot be written."""

from __future__ import annotations

import numpy as np
import pytest

from profiler.latency import figures
from profiler.latency.choice import judge
from profiler.latency.grids import QUICK
from specsim.latency.forms import Roofline
from tests.made import one
from tests.profiler.latency.made import samples_of

LAW = Roofline(0.012, 1e-6, 0.002, 7e-5, 2e-8, 2e-9, single_s=0.004, logit_s=2e-5)
MAPPING = {
    "form": "roofline",
    "target": {"name": "Big"},
    "draft": {"name": "Small"},
    "checks": {"knee_tokens": {"target": {"fitted": 171.4}, "draft": {"fitted": None}}},
}


@pytest.fixture(scope="module")
def choices():
    return {role: judge(samples_of(LAW, role, grid=QUICK), role) for role in ("target", "draft")}


def test_a_form_is_drawn_at_whole_tokens_and_its_ridge_is_called_so(choices, tmp_path, monkeypatch):
    drawn = {}
    monkeypatch.setattr(figures, "_save", lambda figure, path: drawn.update({path.name: figure}))
    figures.draw(choices, MAPPING, tmp_path, "mine")
    target, draft = drawn["mine-tokens.png"].axes
    lines = {line.get_label(): line for line in target.lines}
    tokens, verify = (np.asarray(each) for each in lines["form, verify, no context"].get_data())
    prefill = np.asarray(lines["form, prefill, no context"].get_ydata())
    assert np.array_equal(tokens, np.unique(np.rint(tokens)))
    most = choices["target"].samples.batched.max()
    assert tokens[[0, 1, -1]].tolist() == [1, 2, most]
    fitted = choices["target"].roofline.fitted.form
    assert verify[0] == prefill[0] == pytest.approx(1e3 * fitted.seconds(one(0, 1, 1, 1)))
    assert verify[-1] == pytest.approx(1e3 * fitted.seconds(one(0, most, most, most)))
    assert prefill[-1] == pytest.approx(1e3 * fitted.seconds(one(0, most, most * (most + 1) / 2, 1)))
    assert verify[-1] > 1.1 * prefill[-1]
    assert {line.get_label() for line in draft.lines} >= {"form, draft, no context", "form, prefill, no context"}
    assert lines["ridge 171"].get_xdata()[0] == 171.4
    assert not [line for line in draft.lines if "ridge" in line.get_label()]
