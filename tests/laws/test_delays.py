"""Waiting never pays: whatever an engine delays, no headline figure rises, and enough delay brings each to zero.

A delayed token delays those behind it, as in an engine. A first token held back alone, with the same last token, would
shorten vLLM's TPOT: docs/metrics.md says so.
"""

from __future__ import annotations

from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.config.groups import choices
from specsim.files.yaml_file import read_yaml, shipped
from specsim.metrics.requests import RunTotals
from specsim.metrics.summary import summarise
from specsim.workload.slo import mix_from_mapping
from tests.made import table_of

RATES = ("request_throughput", "request_goodput", "output_throughput", "total_token_throughput")
HEADLINES = ("slo_attainment", "slo_goodput_tokens_per_s", "slo_goodput_in_arrivals_tokens_per_s")
LATENCIES = ("p99_ttft_s", "p99_e2el_s", "longest_pause_s")
TTFT_SLO_S, TPOT_SLO_S = np.array([0.5, 2.0]), np.array([0.1, np.nan])
GAP_S = st.sampled_from((0.0, 0.01, 0.05, 0.1, 0.2, 0.5, 3.0))


@st.composite
def emissions(draw: st.DrawFn) -> tuple[list[float], list[np.ndarray], list[int]]:
    """Draw arrivals, the time of every token of each request, and classes."""
    count = draw(st.integers(1, 6))
    arrival_s = np.cumsum([0.0, *draw(st.lists(GAP_S, min_size=count - 1, max_size=count - 1))])
    # A pass takes time: no first token at the instant of the arrival.
    tokens = [at + 0.01 + np.cumsum(draw(st.lists(GAP_S, min_size=1, max_size=6))) for at in arrival_s]
    return arrival_s.tolist(), tokens, draw(st.lists(st.integers(0, 1), min_size=count, max_size=count))


def metrics_of(arrival_s, tokens, classes, cancelled_s=MappingProxyType({})) -> dict[str, Any]:
    """Return the metrics of requests that emit one token at each of these times, a pass of 10 ms each.

    Those that are `cancelled_s` have emitted nothing.
    """
    n = len(tokens)
    count = np.array([len(each) * (place not in cancelled_s) for place, each in enumerate(tokens)])
    code, gone = np.array(classes), np.array([cancelled_s.get(place, np.nan) for place in range(n)])
    tokens = [np.full(1, np.nan) if place in cancelled_s else each for place, each in enumerate(tokens)]
    table = table_of(
        ("chat", "batch"),
        dict.fromkeys(cancelled_s, "timeout"),
        cancelled_s=gone,
        slo_class=code,
        arrival_s=np.array(arrival_s),
        first_token_s=np.array([each[0] for each in tokens]),
        finish_s=np.array([each[-1] for each in tokens]),
        first_decode_s=np.array([each[1] - 0.01 if len(each) > 1 else np.nan for each in tokens]),
        prompt_tokens=np.ones(n, dtype=np.int64),
        emitted_tokens=count,
        verifications=np.maximum(count - 1, 0),
        decoded_tokens=np.maximum(count - 1, 0),
        longest_pause_s=np.array([np.diff(each).max() if len(each) > 1 else np.nan for each in tokens]),
        tpot_slo_s=TPOT_SLO_S[code],
        ttft_slo_s=TTFT_SLO_S[code],
    )
    return summarise(table, RunTotals(1, 0, 0.0, 0.0, 0.0, 1.0, 0.0, itl_s=np.empty(0)))


def parts(run: dict[str, Any]) -> list[dict[str, Any]]:
    return [run, *run["classes"].values()]


@given(emissions(), st.data())
def test_a_delay_never_raises_a_headline_figure(drawn, data):
    arrival_s, tokens, classes = drawn
    before = metrics_of(*drawn)["specsim"]
    request = data.draw(st.integers(0, len(tokens) - 1))
    place = data.draw(st.integers(0, len(tokens[request]) - 1))
    delayed = [each.copy() for each in tokens]
    delayed[request][place:] += data.draw(st.sampled_from((0.01, 0.3, 10.0)))
    after = metrics_of(arrival_s, delayed, classes)["specsim"]
    assert after["worst_class_attainment"] <= before["worst_class_attainment"]
    for old, new in zip(parts(before), parts(after), strict=True):
        for name in HEADLINES:
            assert (new[name] or 0.0) <= (old[name] or 0.0) + 1e-12, name
        for name in LATENCIES:
            assert new[name] is None or new[name] >= old[name] - 1e-12, name


@given(emissions(), st.data())
def test_an_answer_so_late_that_it_is_cancelled_never_raises_a_rate(drawn, data):
    tokens = drawn[1]
    request = data.draw(st.integers(0, len(tokens) - 1))
    gone_s = tokens[request][-1] + data.draw(st.sampled_from((0.0, 0.3, 10.0)))
    before, after = (metrics_of(*drawn, cancelled_s) for cancelled_s in ({}, {request: float(gone_s)}))
    assert after["specsim"]["worst_class_attainment"] <= before["specsim"]["worst_class_attainment"]
    runs = [[each, *parts(each["specsim"])] for each in (before, after)]
    for old, new in zip(*runs, strict=True):
        for name in {*RATES, "generated_tokens_per_s", *HEADLINES, "ttft_attainment", "tpot_attainment"} & old.keys():
            assert (new[name] or 0.0) <= (old[name] or 0.0) + 1e-12, name


@given(emissions())
def test_enough_delay_brings_every_headline_figure_to_zero(drawn):
    arrival_s, tokens, classes = drawn
    run = metrics_of(arrival_s, [each + 1e6 for each in tokens], classes)["specsim"]
    for part in parts(run):
        assert [part[name] or 0.0 for name in HEADLINES] == [0.0, 0.0, 0.0]
    assert run["worst_class_attainment"] == 0.0


@pytest.mark.parametrize("name", choices("slo"))
def test_every_shipped_mix_has_a_limit_on_the_first_token(name):
    mix = mix_from_mapping(read_yaml(shipped("conf") / "slo" / f"{name}.yaml"), f"slo={name}")
    assert mix.default.ttft_s is not None
    assert all(each.objectives.ttft_s is not None for each in mix.classes)
