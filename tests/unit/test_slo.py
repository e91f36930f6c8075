"""SLO mixes: seeded shares, objectives absolute or relative, scaling where it is meant, the cut, every error line."""

import numpy as np
import pytest

from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.workload.slo import assign_slos, mix_from_mapping
from specsim.workload.trace import Trace, TraceSource
from tests.made import refusal

BASELINE_S = 0.02
THREE = {
    "classes": {
        "coding": {"share": 0.6, "tpot_ratio": 1.2, "max_tokens": 50, "acceptance": "code", "scaled": True},
        "chat": {"share": 0.2, "tpot_s": 0.05, "ttft_s": 1.5, "max_tokens": 20},
        "batch": {"share": 0.2, "max_tokens": 9999},
    }
}


def trace(n=4000, **columns):
    rows = np.arange(n)
    return Trace(rows * 0.1, rows % 7 + 1, rows % 90 + 1, rows, TraceSource("made", "file"), **columns)


def assigned(mapping=THREE, given=None, seed=0, **scales):
    mix = mix_from_mapping(mapping, "slo=mine")
    given = trace() if given is None else given
    return assign_slos(mix, given, seed=seed, baseline_s=BASELINE_S, **scales)


def edited(**changes):
    return {**THREE, "classes": {**THREE["classes"], "chat": {**THREE["classes"]["chat"], **changes}}}


@pytest.mark.parametrize(
    ("scales", "ratio", "ttft_s"), [({}, 1.2, 1.5), ({"slo_scale": 0.5}, 0.6, 1.5), ({"ttft_scale": 2.0}, 1.2, 3.0)]
)
def test_objectives_are_absolute_or_a_ratio_and_a_scale_falls_on_scaled_classes_or_on_ttft(scales, ratio, ttft_s):
    requests = assigned(**scales).requests
    objectives = np.array([[ratio * BASELINE_S, 0.05, np.nan], [np.nan, ttft_s, np.nan]])
    np.testing.assert_equal(np.stack((requests.tpot_slo_s, requests.ttft_slo_s)), objectives[:, requests.slo_class])
    assert requests.class_names == ("coding", "chat", "batch")


def test_a_scale_that_scales_nothing_is_refused():
    """The design: a setting that changes nothing is an error."""
    nothing_scaled = {"classes": {"chat": {"share": 1.0, "tpot_s": 0.05, "max_tokens": 20}}}
    for scale in ("slo_scale", "ttft_scale"):
        assert scale in refusal(assigned, nothing_scaled, **{scale: 2.0})
    assert assigned(nothing_scaled, slo_scale=1.0)


def test_outputs_end_at_the_class_bound_which_is_all_that_is_told():
    given = trace()
    found = assigned(given=given)
    bound = np.array([50, 20, 9999])[found.requests.slo_class]
    assert np.array_equal(found.requests.max_tokens, bound)
    assert np.array_equal(found.output_tokens, np.minimum(given.output_tokens, bound))
    assert (found.output_tokens < given.output_tokens).any()


OWN = {"classes_from": "trace", "max_tokens": 30}


def of_two_classes(ttft_slo_s):
    """Return a trace whose requests are in turns of a class with a ratio and of one with a TPOT."""
    codes = np.arange(6) % 2
    tpot_s, ratio = np.where(codes == 1, 0.05, np.nan), np.where(codes == 0, 1.5, np.nan)
    return labelled(("a", "b"), tpot_slo_s=tpot_s, tpot_slo_ratio=ratio, ttft_slo_s=ttft_slo_s)


def told(requests):
    return requests.ttft_slo_s.tolist(), requests.tpot_slo_s.tolist(), requests.max_tokens.tolist()


def test_the_trace_s_own_classes_and_objectives_of_which_ratios_are_scaled_or_if_there_is_none_all():
    given = of_two_classes(np.full(6, 0.3))
    found = assigned(OWN, given, slo_scale=2.0)
    assert found.requests.class_names == found.acceptance == ("a", "b")
    assert np.array_equal(found.requests.slo_class, given.slo_class)
    assert told(found.requests) == ([0.3] * 6, [2 * 1.5 * BASELINE_S, 0.05] * 3, [30] * 6)
    found = assigned(OWN, trace(3, tpot_slo_s=np.array([0.05, np.nan, 0.1])), slo_scale=0.5)
    np.testing.assert_equal(told(found.requests), ([np.nan] * 3, [0.025, np.nan, 0.05], [30] * 3))
    assert found.requests.class_names == ("request",)


def test_a_class_takes_from_the_mix_what_it_does_not_state():
    mix = {"ttft_s": 2.0, "tpot_s": 0.07, "max_tokens": 9, "classes": {"a": {"share": 0.5}, "b": {"share": 0.5}}}
    mix["classes"]["b"] |= {"ttft_s": 0.5, "tpot_ratio": 1.5, "max_tokens": 4}
    requests = assigned(mix).requests
    found = {*zip(requests.slo_class.tolist(), *told(requests), strict=True)}
    assert found == {(0, 2.0, 0.07, 9), (1, 0.5, 1.5 * BASELINE_S, 4)}


def test_the_trace_s_objectives_give_way_to_those_set_for_a_class_and_fill_up_from_the_mix():
    given = of_two_classes(np.where(np.arange(6) < 2, 0.3, np.nan))
    assert told(assigned({**OWN, "ttft_s": 2.0}, given).requests)[0] == [0.3, 0.3, 2.0, 2.0, 2.0, 2.0]
    mix = {**OWN, "ttft_s": 2.0, "classes": {"a": {"ttft_s": 0.1, "tpot_s": 0.01, "max_tokens": 5}}}
    assert told(assigned(mix, given).requests) == ([0.1, 0.3, 0.1, 2.0, 0.1, 2.0], [0.01, 0.05] * 3, [5, 30] * 3)
    assert "classes.chat: unknown" in refusal(assigned, {**OWN, "classes": {"chat": {"ttft_s": 1.0}}}, given)
    assert assigned({**OWN, "classes": {"a": {"acceptance": "code"}}}, given).acceptance == ("code", "b")


def labelled(names, **columns):
    return trace(6, slo_class=np.arange(6) % len(names), slo_names=names, **columns)


def test_the_trace_s_classes_are_followed_refused_or_dealt_anew():
    found = assigned(given=labelled(("chat", "coding")))
    assert [found.requests.class_names[code] for code in found.requests.slo_class] == ["chat", "coding"] * 3
    assert "classes: the trace's own" in found.notes
    given = labelled(("chat", "codin"))
    with pytest.raises(SpecsimError, match=r"slo=mine has no class 'codin'.*'coding'.*slo\.redraw_classes=true"):
        assigned(given=given)
    anew = assigned({**THREE, "redraw_classes": True}, given)
    assert anew.requests.slo_class.tolist() == dealt(given=trace(6))
    assert any("dealt anew" in note for note in anew.notes)


@pytest.mark.parametrize(
    ("mapping", "named"),
    [
        ({**THREE, "max_tokens": 5}, "max_tokens: changes nothing"),
        ({"classes_from": "trace"}, "max_tokens: missing key; expected the most tokens of an output, such as max_tok"),
        ({**OWN, "redraw_classes": True}, "redraw_classes: true, but"),
        ({**OWN, "classes": {"a": {"share": 1.0}}}, "classes.a.share: unknown key"),
        ({"ttft_s": 1.0, "classes": {"a": {"share": 1.0, "ttft_s": 2.0, "max_tokens": 5}}}, "ttft_s: changes nothing"),
        (edited(tpot_ratio=1.0), "chat: tpot_s and tpot_ratio are both given"),
        (edited(share=0.3), "classes: shares add up to 1.1"),
        (edited(scaled=True, tpot_s=None), "classes.chat.scaled: true, but"),
    ],
)
def test_a_mistake_names_its_source_and_key(mapping, named):
    said = refusal(mix_from_mapping, mapping, "slo=mine")
    assert said.startswith("slo=mine: ")
    assert named in said


@pytest.mark.parametrize("count", [3, 10])
def test_shares_that_round_to_one_are_one(count):
    mix = {"classes": {f"class {place}": {"share": 1 / count, "max_tokens": 5} for place in range(count)}}
    assert [each.share for each in mix_from_mapping(mix, "x").classes] == pytest.approx([1 / count] * count)


def shipped_mix(**changes):
    return read_yaml(shipped("conf") / "slo" / "one.yaml") | changes


@pytest.mark.parametrize("classes", [{}, {"slo_class": np.arange(4000) % 2, "slo_names": ("chat", "code")}])
def test_one_objective_holds_for_all_requests_whatever_their_class_and_the_trace_say(classes):
    own = {"tpot_slo_s": np.full(4000, 0.5), "ttft_slo_s": np.full(4000, 7.0)}
    found = assigned(shipped_mix(ttft_s=1.0, tpot_s=0.04), trace(**classes, **own))
    assert (set(found.requests.tpot_slo_s), set(found.requests.ttft_slo_s)) == ({0.04}, {1.0})
    assert found.requests.class_names == classes.get("slo_names", ("request",))
    assert any("the trace's own are not used" in note for note in found.notes)
    assert set(assigned(shipped_mix(tpot_s=0.04), trace(), slo_scale=2.0).requests.tpot_slo_s) == {0.08}
    assert set(assigned(shipped_mix(objectives_from="trace"), trace(**own)).requests.tpot_slo_s) == {0.5}


def odd(found):
    return [note for note in found.notes if "if ms are meant" in note]


def test_objectives_that_may_be_in_milliseconds_are_named():
    said = "TPOT objective of chat: 50 s; objectives are in s: if ms are meant, expected 0.05"
    assert odd(assigned(edited(tpot_s=50))) == [said]
    said = "TTFT objective of coding, batch: 2,000 s; objectives are in s: if ms are meant, expected 2"
    assert odd(assigned({**THREE, "ttft_s": 2000})) == [said]
    assert odd(assigned(edited(tpot_s=0.99, ttft_s=99), slo_scale=50.0)) == []


def dealt(**given):
    return assigned(**given).requests.slo_class.tolist()
