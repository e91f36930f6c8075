"""The answer of a tuning by hand: names of configurations, marks of rates, and whose the exported settings are."""

import numpy as np
import pytest

from specsim.metrics.capacity import Asked
from specsim.search.found import FOOTNOTES, FULL, TOO_SHORT, Found, Judged, Line
from specsim.search.tuned import AS_GIVEN, SPEEDUP, Candidate, Export, Judgement, Tuned, export_lines
from specsim.store.sweeps import Sweep

SHARES = np.array([0.97, 0.96, 0.98])
"""0.97 in the mean; twice the three: half of the 95% interval is 2.571 * 0.0089 / sqrt(6) = 0.0094."""
EXPORT = Export("vllm", "vllm serve a/b", {}, "vllm_spec", {}, of=1)


def judgement(overloaded=0, too_short=0):
    return Judgement(SHARES, -SHARES, {"chat": SHARES}, overloaded, too_short)


def found(places):
    runs = {1.0: [Judged(0.97, 0.03, 90, False, False)] * 3, 2.0: [Judged(0.5, 1.0, 90, True, False)] * 3}
    tested = {1.0: [0.97, 0.96, 0.98], 2.0: [0.5, 0.5, 0.5]}
    lines = [Line({"scheduler": str(place)}, tested=tested, judged=runs) for place in places]
    return Found(Asked(0.95, 1.0, 2.0, 1.0), "worst", lines, Sweep([]), "of this search")


def tuned(names=("adaserve", "vllm_spec", "vllm"), words=("", "", ""), export=EXPORT, fleet=None):
    candidates = [Candidate(name, {}, {}, 0.9, word) for name, word in zip(names, words, strict=True)]
    judgements = dict.fromkeys((AS_GIVEN, SPEEDUP), dict.fromkeys(range(3), judgement()))
    told = ("worst", 0.95, 1.0, dict.fromkeys(names, 2), candidates, judgements, None, found([0, 2]), [0, 2], 2)
    return Tuned(*told, 3, 0, fleet or judgement(), export, [], [])


def test_the_line_to_paste_stands_below_the_name_of_its_scheduler_and_the_number_of_servers():
    lines = list(export_lines(tuned()))
    assert lines == ["settings of vllm_spec for vllm, not of adaserve, which it cannot express:", "vllm serve a/b"]
    own = list(export_lines(tuned(export=EXPORT._replace(of=0, servers=3))))
    assert own[0] == "settings of adaserve for vllm; start 3 such servers:"
    assert not list(export_lines(tuned(export=None)))


@pytest.mark.parametrize(("overloaded", "too_short", "marks"), [(0, 0, ""), (1, 0, FULL), (2, 3, TOO_SHORT + FULL)])
def test_servers_stand_beside_what_they_attain_and_rates_have_marks(overloaded, too_short, marks, monkeypatch):
    said = str(tuned(fleet=judgement(overloaded, too_short))).splitlines()
    whose = "97.0% of the worst class meet their objectives over 3 seeds"
    assert f"GPUs for 1 requests/s: 6{marks} (3 x 2) with adaserve: {whose}" in said
    (rate,) = (each for each in said if each.startswith("highest rate") and each.endswith("with adaserve"))
    assert f"{TOO_SHORT} requests/s" in rate
    assert f"{TOO_SHORT} {FOOTNOTES[TOO_SHORT]}" in said
    assert (f"{FULL} {FOOTNOTES[FULL]}" in said) == (overloaded > 0)
    assert "\u00b1" not in "".join(said)
    monkeypatch.setattr(f"{__name__}.SHARES", np.tile(SHARES, 2))
    assert "97.0 \u00b1 0.9% of the worst class meet their objectives." in str(tuned())


def test_two_configurations_of_a_scheduler_are_told_apart_in_words():
    words = ("second trial", "default settings", "")
    said = str(tuned(("vllm_spec", "vllm_spec", "vllm"), words))
    assert "\nvllm_spec (second trial) " in said
    assert "\nvllm_spec (default settings) " in said
    assert "lead over vllm_spec (default settings)" in said
    assert said.count("with vllm_spec (second trial)") == 2, "of the highest rate and of the servers"
