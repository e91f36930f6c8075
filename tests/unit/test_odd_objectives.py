"""Objectives of a mix or a trace that may be in milliseconds."""

import numpy as np

from tests.unit.test_slo import THREE, edited, labelled, promised, trace


def odd(found):
    return [note for note in found.notes if "if ms are meant" in note]


def test_objectives_that_may_be_in_milliseconds_are_named():
    said = "TPOT objective of chat: 50 s; objectives are in s: if ms are meant, expected 0.05"
    assert odd(promised(edited(tpot_s=50))) == [said]
    said = "TTFT objective of coding, batch: 2,000 s; objectives are in s: if ms are meant, expected 2"
    assert odd(promised({**THREE, "ttft_s": 2000})) == [said]
    assert odd(promised(edited(tpot_s=0.99, ttft_s=99), slo_scale=50.0)) == []


def test_objectives_of_a_trace_that_may_be_in_milliseconds_are_named_where_they_are_used():
    given = labelled(("chat", "coding"), tpot_slo_s=np.array([50.0, 30, 50, 50, 80, np.nan]))
    own = {"classes_from": "trace", "max_tokens": 100, "ttft_s": 2.0}
    (said,) = odd(promised(own, given))
    assert said.startswith("TPOT objective of the trace (tpot_slo_s, median): 50 s; ")
    (said,) = odd(promised({**own, "classes": {"chat": {"ttft_s": 500}}}, trace(6, **_classes(given, 0.05))))
    assert said.startswith("TTFT objective of chat: 500 s; ")
    assert odd(promised(given=given)) == []


def _classes(given, tpot_s):
    return {"slo_class": given.slo_class, "slo_names": given.slo_names, "tpot_slo_s": np.full(6, tpot_s)}
