from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.attention.packing import EVERYWHERE, pack  # noqa: E402
from profiler.attention.sdpa import Sdpa  # noqa: E402
from profiler.passes.checks import (  # noqa: E402
    TOLERANCE,
    checked_error,
    checked_work,
    kernel_error,
    working_kernel,
)
from specsim.errors import SpecsimError  # noqa: E402
from tests.made import refusal  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


class Seeing:
    """A plan that takes over nothing."""

    def __init__(self, attend):
        self.attend = attend

    def __call__(self, *tensors):
        return self.attend(*tensors)

    def load(self, other):
        self.attend = getattr(other, "attend", other)


class Mutant:
    """SDPA with one interval of one key moved by one query."""

    def __init__(self, side, key, by):
        self.side, self.key, self.by = side, key, by

    def plan(self, work, packed, tables, size):
        moved = getattr(packed, self.side).copy()
        moved[self.key] += self.by
        wrong = replace(packed, **{self.side: moved})
        return Seeing(Sdpa(4, device=CPU, dtype=torch.bfloat16).plan(work, wrong, tables, size))


def test_the_kernel_check_finds_a_single_node_seen_or_missed(monkeypatch):
    packed = pack(checked_work())
    place = {"device": CPU, "dtype": torch.bfloat16}
    limit = TOLERANCE[torch.bfloat16]
    assert kernel_error("sdpa", 8, 2, 64, **place) < limit / 2
    inner = np.flatnonzero(packed.closes < EVERYWHERE)
    moves = [
        ("closes", key, 1) for key in inner if packed.closes[key] in packed.point[packed.row == row_of(packed, key)]
    ]
    moves += [("opens", key, 1) for key in range(len(packed.opens))]
    for move in moves:
        monkeypatch.setattr("profiler.passes.checks.planner", lambda *a, move=move, **k: Mutant(*move))
        assert kernel_error("sdpa", 8, 2, 64, **place) > limit, move


def row_of(packed, key):
    return int(np.searchsorted(packed.tail_start, key, side="right")) - 1


def test_the_kernel_check_sees_a_plan_that_does_not_take_over_pages(monkeypatch):
    monkeypatch.setattr("profiler.attention.sdpa.SdpaPlan.load", lambda self, other: None)
    assert "attention 'sdpa' is wrong by" in refusal(checked_error, "sdpa", 4, 2, 16, device=CPU, dtype=torch.float32)


def test_a_kernel_that_cannot_be_captured_is_passed_over(monkeypatch, capsys):
    """What a GPU says of a kernel that asks the device for a number while its graph is captured."""
    refusal = "operation not permitted when stream is capturing"
    monkeypatch.setattr("profiler.passes.checks.best_kernel", lambda device: "flex")
    tried = []

    def capture(run, warm_up, cuda):
        tried.append(run)
        warm_up()
        if len(tried) == 1:
            raise RuntimeError(refusal)
        return SimpleNamespace(replay=lambda: result.copy_(run()), reset=lambda: None), (result := run())

    monkeypatch.setattr("profiler.passes.checks.capture", capture)
    fake = SimpleNamespace(synchronize=lambda: None)
    assert working_kernel("auto", device=CPU, dtype=torch.float32, cuda=fake) == "sdpa"
    assert f"attention 'flex' does not run on cpu: {refusal}" in capsys.readouterr().err


def test_no_gpu_is_swept_with_gathered_keys_unless_that_is_asked_for(monkeypatch, capsys):
    """Every kernel fails here but SDPA: a lease spent on it would be measured for nothing."""

    def check(kernel, *_, **__):
        if kernel != "sdpa":
            raise SpecsimError(f"attention {kernel!r} does not run")
        return 0.0

    monkeypatch.setattr("profiler.passes.checks.checked_error", check)
    place = {"device": torch.device("cuda"), "dtype": torch.bfloat16}
    with pytest.raises(SpecsimError, match=r"^no fused attention works on cuda; expected .*--attention sdpa asked for"):
        working_kernel("auto", **place)
    assert "note: attention 'flex' does not run" in capsys.readouterr().err
    assert working_kernel("sdpa", **place) == "sdpa"
