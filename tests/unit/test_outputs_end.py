"""Outputs that end before their cap: the mean, the law, the seed, and what a trace says of it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.config.compose import compose
from specsim.workload.load import trace_recipe
from specsim.workload.synthetic import ended_early, hazard_of
from specsim.workload.trace import Trace, TraceSource
from tests.made import refusal

CLASSES = ("coding", "chat", "summarization")


def capped(n: int = 30_000, cap: int = 256) -> Trace:
    place = np.arange(n)
    source = TraceSource("mine", "file")
    return Trace(place * 0.1, place + 1, np.full(n, cap), place, source, place % 3, CLASSES)


@pytest.mark.parametrize("mean", [1.5, 40.0, 202.0, 250.0])
def test_outputs_have_the_mean_after_the_cut_and_one_hazard(mean: float) -> None:
    trace = ended_early(capped(), {"coding": mean}, seed=3)
    output = trace.output_tokens[trace.slo_class == 0]
    assert output.min() >= 1
    assert output.max() <= 256
    assert output.mean() == pytest.approx(mean, abs=4 * output.std() / np.sqrt(len(output)))
    hazard = hazard_of(mean, 256)
    for at in (1, 10, 100):
        reached = output[output >= at]
        if len(reached) > 200:
            error = np.sqrt(hazard * (1 - hazard) / len(reached))
            assert (reached == at).mean() == pytest.approx(hazard, abs=4.5 * error)
    assert (trace.output_tokens[trace.slo_class != 0] == 256).all()


def test_a_request_ends_alike_whatever_else_is_there() -> None:
    trace = capped(900)
    whole, part = (ended_early(each, {"coding": 99.0}, 5) for each in (trace, trace.head(100)))
    assert np.array_equal(whole.output_tokens[:100], part.output_tokens)
    assert not np.array_equal(whole.output_tokens, ended_early(trace, {"coding": 99.0}, 6).output_tokens)


def entry(**more: Any) -> dict[str, Any]:
    config = compose({"trace": "adaserve_fig8"})
    return {**config["trace"], **more}


def test_the_published_workload_ends_early_where_its_entry_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", "/nonexistent")
    plain = trace_recipe(entry())
    ends = trace_recipe(entry(mean_output_tokens={"coding": 202.0, "chat": 225.0}))
    assert (plain.drawn, ends.drawn) == (frozenset(), frozenset({"lengths"}))
    one, other = plain.trace(0), ends.trace(0)
    assert one.output_tokens.min() == one.output_tokens.max() == 256
    assert other.output_tokens[other.slo_class == 0].mean() < 230
    assert (other.output_tokens[other.slo_class == 2] == 256).all()
    assert np.array_equal(one.arrival_s, other.arrival_s)


@pytest.mark.parametrize(
    ("means", "said"),
    [
        ({"code": 202.0}, "trace.mean_output_tokens.code"),
        ({"coding": 0.5}, "trace.mean_output_tokens.coding: 0.5 is not a finite number of at least 1"),
    ],
)
def test_bad_means_are_one_line(means: object, said: str) -> None:
    assert said in refusal(lambda: trace_recipe(entry(mean_output_tokens=means)).trace(seed=0))
