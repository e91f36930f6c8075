"""The answer of a tuning by hand: names of configurations, marks of rates, and whose the exported settings are."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from specsim.config.schema import Settings, Split
from specsim.errors import SpecsimError
from specsim.metrics.capacity import Asked
from specsim.search.found import FOOTNOTES, FULL, TOO_SHORT, Found, Judged, Line
from specsim.search.tune import Goal, _carried
from specsim.search.tuned import AS_GIVEN, SPEEDUP, Candidate, Export, Judgement, Tuned, export_lines, overtaker
from specsim.store.sweeps import Sweep

SHARES = np.array([0.97, 0.96, 0.98])
"""0.97 in the mean; twice the three: half of the 95% interval is 2.571 * 0.0089 / sqrt(6) = 0.0094."""
EXPORT = Export("vllm", "vllm serve a/b", {}, "vllm_spec", {}, of=1)


def judgement(overloaded=0, too_short=0, drafts=3):
    return Judgement(SHARES, -SHARES, {"chat": SHARES}, overloaded, too_short, drafts)


def found(places):
    runs = {1.0: [Judged(0.97, 0.03, 90, False, False)] * 3, 2.0: [Judged(0.5, 1.0, 90, True, False)] * 3}
    tested = {1.0: [0.97, 0.96, 0.98], 2.0: [0.5, 0.5, 0.5]}
    lines = [Line({"scheduler": str(place)}, tested=tested, judged=runs) for place in places]
    return Found(Asked(0.95, 1.0, 2.0, 1.0), "worst", lines, Sweep([]), "of this search")


def tuned(names=("adaserve", "vllm_spec", "vllm"), words=("", "", ""), export=EXPORT, fleet=None, plain=None, keep=3):
    candidates = [Candidate(name, {}, {}, 0.9, word) for name, word in zip(names, words, strict=True)]
    judgements = {said: dict.fromkeys(range(3), judgement()) for said in (AS_GIVEN, SPEEDUP)}
    judgements[SPEEDUP][2] = plain or judgement()
    told = ("worst", 0.95, 1.0, dict.fromkeys(names, 2), candidates, judgements, None, "", found([0, 2]), [0, 2], 2)
    return Tuned(*told, keep, 0, fleet or judgement(), 3, 3, export, [], [])


def test_the_line_to_paste_stands_below_the_name_of_its_scheduler_and_the_number_of_servers():
    lines = list(export_lines(tuned()))
    assert lines == ["settings of vllm_spec for vllm, not of adaserve, which it cannot express:", "vllm serve a/b"]
    own = list(export_lines(tuned(export=EXPORT._replace(of=0, servers=3, router="affinity"))))
    assert own[0] == "settings of adaserve for vllm; start 3 such servers behind router=affinity:"
    assert not list(export_lines(tuned(export=None)))


def test_drafts_behind_the_positions_that_the_acceptance_knows_are_marked():
    deep = tuned(export=EXPORT._replace(of=2), plain=judgement(drafts=7))
    assert "guessed" not in str(deep)
    deep.judgements[AS_GIVEN].update({0: judgement(drafts=7), 2: judgement(drafts=4)})
    assert str(deep).splitlines()[1] == "Its drafts 4 to 7 are guessed: the acceptance knows 3."
    assert "; draft 4 is guessed: the acceptance knows 3:" in next(export_lines(deep))


@pytest.mark.parametrize(("overloaded", "too_short", "marks"), [(0, 0, ""), (1, 0, FULL), (2, 3, TOO_SHORT + FULL)])
def test_servers_stand_beside_what_they_attain_and_rates_have_marks(overloaded, too_short, marks, monkeypatch):
    said = str(tuned(fleet=judgement(overloaded, too_short))).splitlines()
    whose = "97.0% of the worst class meet their objectives over 3 seeds"
    assert f"GPUs for 1 requests/s: 6{marks} (3 x 2) with adaserve: {whose}" in said
    none = str(tuned(fleet=judgement(overloaded, too_short), keep=None))
    assert f"GPUs for 1 requests/s: no number of servers was found; 6{marks} (3 x 2) with adaserve: {whose}" in none
    (rate,) = (each for each in said if each.startswith("highest rate") and each.endswith("with adaserve"))
    assert f"{TOO_SHORT} requests/s" in rate
    assert f"{TOO_SHORT} {FOOTNOTES[TOO_SHORT]}" in said
    assert (f"{FULL} {FOOTNOTES[FULL]}" in said) == (overloaded > 0)
    assert "\u00b1" not in "".join(said)
    monkeypatch.setattr(f"{__name__}.SHARES", np.tile(SHARES, 2))
    assert "97.0 \u00b1 0.9% of the worst class meet their objectives." in str(tuned())
    assert repr(tuned()) == "<Tuned: adaserve: 97 \u00b1 0.94% of the worst class>"


def test_two_configurations_of_a_scheduler_are_told_apart_in_words():
    said = str(tuned(("vllm_spec", "vllm_spec", "vllm"), ("second trial", "default settings", "")))
    there = ("\nvllm_spec (second trial) ", "\nvllm_spec (default settings) ", "lead over vllm_spec (default settings)")
    assert [each for each in there if each not in said] == []
    assert said.count("with vllm_spec (second trial)") == 2, "of the highest rate and of the servers"


def test_the_gain_of_drafts_respects_the_intervals():
    scattered = judgement()._replace(measure=SHARES - np.array([0.9, 0.1, 0.9]))
    each, higher = replace(tuned(plain=scattered), found=found(range(3)), searched=[0, 1, 2]), "rate 20% higher"
    each.found.lines[1].tested = {2.0: [0.6] * 3}
    each.judgements[higher] = {place: judgement()._replace(measure=SHARES + 0.02 * (place % 3)) for place in (0, 2, 1)}
    lines = str(each).splitlines()
    beyond = f"no gain of drafts of adaserve shows beyond the noise: {SPEEDUP}"
    nothing = "drafts of adaserve gain nothing: as given; from 1 requests/s on"
    assert lines[-3:] == [f"drafts of adaserve lose: {higher}", nothing, beyond]
    level = "+0.0 points against vllm: level, no difference shows beyond the noise."
    assert lines[2:5] == [level.replace("vllm", "vllm_spec"), level, f"At a {higher} vllm leads by 4.0 points."]
    each.judgements[AS_GIVEN][2] = judgement()._replace(measure=SHARES + np.array([0.9, -0.1, 0.9]))
    assert "-56.7 points against vllm: 3 seeds cannot tell." in str(each)
    assert str(each).endswith(f"gain nothing: from 1 requests/s on\n{beyond.replace(SPEEDUP, f'as given; {SPEEDUP}')}")
    each.judgements[higher][2] = scattered
    assert overtaker(each.judgements) == (higher, 1)


@pytest.mark.parametrize(
    ("typed", "prefill", "needed", "refused", "told"),
    [
        *((typed, None, needed, "", (needed, needed)) for typed, needed in ((8, 5), (8, 2), (2, 5), (2, 3), (5, 5))),
        *((2, None, 9, "", (None, 6)), (8, 2, 5, "", (None, 8)), (2, None, 5, "5", (6, 6))),
        *((8, None, 3, refused, (3, 3)) for refused in ("4", "4567")),
    ],
)
def test_the_fewest_servers_are_searched_whatever_number_was_typed(typed, prefill, needed, refused, told):
    """As many as are typed carry 1 request/s: both ways from the four that one's rate asks for."""

    def judge(places, changed):
        if changed["replicas"] in refused:
            raise SpecsimError("cannot be shared")
        return {places[0]: of(int(changed["replicas"]))}

    def of(servers):
        return judgement()._replace(measure=SHARES - (servers < needed))

    judge.goal, judge.runs = Goal("worst", 0.95, 2, [0, 1, 2]), SimpleNamespace(say=lambda _: None, notes=[])
    first = SimpleNamespace(settings=Settings(replicas=typed, split=Split(prefill=prefill)))
    rate, lines = 0.5 if typed == 8 else 2.0, found([0, 2])
    carried = _carried(judge, dict(zip([0, 2], lines.lines, strict=True)), lines, rate, first, of(typed))
    assert (carried.replicas, carried.tried, carried.fleet is None) == (*told, prefill is not None)
    assert all(note.endswith("servers are not tried: cannot be shared") for note in judge.runs.notes)
    assert bool(judge.runs.notes) == bool(refused)
