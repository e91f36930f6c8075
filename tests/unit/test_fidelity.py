"""Closed loops of clients, and the points of whole engines that passes are held against."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from specsim.files.paths import shipped
from specsim.latency.forms import Linear
from specsim.latency.model import ModelLatency
from tests.unit.test_profile_public import DATA, needs_data
from tools.fidelity.__main__ import main, served_by
from tools.fidelity.closed_loop import Load, closed_loop
from tools.fidelity.points import points, rows_of

LOADS = [Load(10, 4, 1), Load(10, 4, 3), Load(300, 7, 5), Load(64, 2, 8), Load(100, 30, 16)]
BUDGET = 128


def model_of(form: Linear) -> ModelLatency:
    return ModelLatency("made", {"made": form}, "made", 1, 0, 0.0)


def test_one_client_by_hand() -> None:
    """A prompt of 10, then 3 decodes that read 10, 11 and 12 tokens; the next request comes at once."""
    loop = closed_loop(Load(10, 4, 1), 2, BUDGET)
    assert loop.shapes.context_tokens.tolist() == [0, 10, 11, 12] * 2
    assert loop.shapes.batched_tokens.tolist() == [10, 1, 1, 1] * 2
    assert loop.shapes.attention_pairs.tolist() == [55, 11, 12, 13] * 2
    assert loop.shapes.logit_tokens.tolist() == [1] * 8
    assert (loop.arrived.tolist(), loop.first.tolist(), loop.last.tolist()) == ([0, 4], [0, 4], [3, 7])


def test_latencies_by_hand() -> None:
    """A pass takes a second, and one more for each ten tokens: 2 s to the first token, 1.1 s for each other."""
    loop = closed_loop(Load(10, 4, 1), 2, BUDGET)
    assert loop.latencies(model_of(Linear(0.0, 0.1, 1.0)), 4) == pytest.approx((2.0, 1.1))


def test_a_prompt_longer_than_the_budget_is_read_in_chunks() -> None:
    loop = closed_loop(Load(300, 2, 1), 1, BUDGET)
    assert loop.shapes.batched_tokens.tolist() == [128, 128, 44, 1]
    assert loop.shapes.context_tokens.tolist() == [0, 128, 256, 300]
    assert loop.shapes.attention_pairs.sum() == 300 * 301 / 2 + 301
    assert loop.first.tolist() == [2]


@pytest.mark.parametrize("load", LOADS)
def test_every_request_gets_its_tokens(load: Load) -> None:
    """What is decoded in a pass follows from when each request began: counted here request by request."""
    loop = closed_loop(load, 6, BUDGET)
    passes = np.arange(len(loop.shapes.batched_tokens))[:, None]
    assert (loop.last - loop.first == load.osl - 1).all()
    assert (loop.arrived <= loop.first).all()
    decoding = (loop.first < passes) & (passes <= loop.last)
    fed = loop.shapes.batched_tokens - decoding.sum(axis=1)
    assert fed.sum() == 6 * load.concurrency * load.isl
    assert (fed >= 0).all()
    assert (loop.shapes.batched_tokens <= BUDGET).all()
    cached = (decoding * (load.isl + passes - loop.first - 1)).sum(axis=1)
    assert (loop.shapes.context_tokens >= cached).all()
    assert (loop.shapes.context_tokens[fed == 0] == cached[fed == 0]).all()
    in_flight = ((loop.arrived <= passes) & (passes <= loop.last)).sum(axis=1)
    assert in_flight.max() == load.concurrency


@needs_data
def test_points_beyond_the_memory_are_left_out() -> None:
    assert DATA is not None
    served = served_by("qwen3_32b_06b_2xh100", "Qwen/Qwen3-32B", None)
    held = list(points(DATA, served))
    assert 0 < len(held) < len(rows_of(DATA, served))
    assert all(point.load.concurrency * (point.load.isl + point.load.osl) <= served.cache_tokens for point in held)


@needs_data
def test_the_docs_hold_what_the_command_prints(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(DATA)]) == 0
    table = capsys.readouterr().out
    assert table.count("| `") == 8
    assert table in (shipped("conf").parent / "docs" / "profiles.md").read_text(encoding="utf-8")


def test_missing_points_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--data", str(tmp_path)]) == 2
    message = capsys.readouterr().err
    assert message.count("\n") == 1
    assert "perf/serving_points" in message
