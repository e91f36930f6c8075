"""Predictions are held against what was measured; a run that takes as long as its latency model says has no error."""

from __future__ import annotations

from dataclasses import replace

import pytest

torch = pytest.importorskip("torch")

from profiler.backend.comparison import NotingStopwatch, kind_of, pass_errors, run_numbers  # noqa: E402
from profiler.backend.served import served  # noqa: E402
from specsim.pass_shape import PassShape  # noqa: E402
from specsim.simulation import run  # noqa: E402
from tests.golden.scene import scene  # noqa: E402
from tests.laws.subjects import factory_of  # noqa: E402
from tests.profiler.backend.made import Profiled  # noqa: E402
from tests.profiler.backend.pairs import pair  # noqa: E402

pytestmark = pytest.mark.torch


class Slower(Profiled):
    def timed(self, role, shape, run):
        result, seconds = super().timed(role, shape, run)
        return result, seconds * 1.25


def noted(clock):
    simulated = replace(scene(), scheduler=factory_of("vllm_spec"))
    stopwatch = NotingStopwatch(clock(simulated))
    record = run(served(simulated, pair(simulated, "separate"), stopwatch=stopwatch))
    return simulated, stopwatch.passes, record


def test_seconds_of_the_latency_model_are_predicted_without_error():
    simulated, passes, record = noted(Profiled)
    assert record.passes is not None
    assert len(passes) == len(record.passes["seconds"])
    found = pass_errors(passes, simulated.truth)
    assert sum(each.passes for each in found) == len(passes)
    assert {each.errors for each in found} == {(0.0, 0.0, 0.0)}
    assert {"target prefill", "target verify", "draft step", "draft catch-up"} <= {each.kind for each in found}
    for name, both in run_numbers(record, run(simulated)).items():
        assert both.real == both.simulated, name


def test_a_machine_slower_by_a_quarter_shows_as_a_fifth_too_little_in_every_kind():
    simulated, passes, record = noted(Slower)
    for each in pass_errors(passes, simulated.truth):
        assert each.errors == pytest.approx((0.2, 0.2, -0.2))
    both = run_numbers(record, run(simulated))["mean_tpot_ms"]
    assert both.real == pytest.approx(1.25 * both.simulated, rel=0.1)


def test_the_worst_kind_and_size_comes_first():
    class Odd(Profiled):
        def timed(self, role, shape, run):
            result, seconds = super().timed(role, shape, run)
            return result, seconds * (2 if role == "draft" and shape.batched_tokens == 1 else 1)

    simulated, passes, _ = noted(Odd)
    first, *others = pass_errors(passes, simulated.truth)
    assert (first.batched_tokens, first.errors.mean) == ("1", -0.5)
    assert others[-1].errors.median == 0


@pytest.mark.parametrize(
    ("role", "shape", "kind"),
    [
        ("target", PassShape.decode(50, 3), "target decode"),
        ("target", PassShape.decode(50, 3).with_nodes(5, 90), "target verify"),
        ("target", PassShape.prompt(40, 2), "target prefill"),
        ("target", PassShape.prompt(40)._replace(batched_tokens=41, requests=2), "target mixed"),
        ("draft", PassShape.decode(50, 3), "draft step"),
        ("draft", PassShape.decode(50, 3)._replace(batched_tokens=5), "draft catch-up"),
        ("draft", PassShape.prompt(40, 2), "draft prefill"),
    ],
)
def test_kinds_of_pass(role, shape, kind):
    assert kind_of(role, shape) == kind
