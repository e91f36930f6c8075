"""The checks of a session on the CPU: each gives rows, and one that fails stops no other."""

import time
from unittest.mock import Mock

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.latency.command import TIME_IS_UP  # noqa: E402
from profiler.latency.hardware import Clocks  # noqa: E402
from profiler.latency.points import GridPoint  # noqa: E402
from profiler.latency.samples import Timing  # noqa: E402
from profiler.latency.timers import Effort, HostTimer  # noqa: E402
from profiler.models.shapes import TINY_LLAMA  # noqa: E402
from tests.profiler.latency.made import sample, written  # noqa: E402
from tools.gpu_session import checks, experts  # noqa: E402
from tools.gpu_session.checks import check  # noqa: E402
from tools.gpu_session.place import Place  # noqa: E402
from tools.gpu_session.state import Row, State  # noqa: E402
from tools.gpu_session.sweeps import drift  # noqa: E402

pytestmark = pytest.mark.torch


def place(timer=None):
    cpu = torch.device("cpu")
    return Place(cpu, torch.float32, timer or HostTimer(), Clocks(None), TINY_LLAMA, "sdpa", Effort(1, 0.0))


@pytest.fixture
def state(tmp_path):
    made = State(tmp_path, {"one": ["--random-weights", "tiny-llama", "tiny-llama", "--device", "cpu"]})
    made.write()
    return made


def test_every_kernel_is_compared_over_decode_prefill_chain_and_trees_up_to_64():
    rows = [*checks.attention_errors(place()), *checks.attention_errors(place(), ("flex",))]
    (missing,) = [row for row in rows if row.case == "fa3"]
    assert missing.value is None
    assert "expected its path in SPECSIM_FA3" in missing.note
    compared = {row.case: row for row in rows if row is not missing}
    kernels = "flex", "sdpa", "split"
    assert set(compared) == {f"{kernel}, {case}" for kernel in kernels for case in checks.error_works()}
    assert max(row.value for row in compared.values()) < 1e-5
    assert not any(row.note for row in compared.values())
    sizes = {case: len(work.node_row) + 1 for case, work in checks.error_works().items() if "tree" in case}
    assert sizes == {f"tree of {size}": size for size in (3, 8, 16, 32, 64)}


def test_a_wrong_kernel_is_flagged(monkeypatch):
    monkeypatch.setattr(checks, "work_error", lambda *_, **__: 0.03)
    rows = list(checks.attention_errors(place()))
    assert {row.note for row in rows} == {"FLAGGED: beyond rounding"}


class Replays:
    """A timer with graphs: a replay takes a second, and as many more as its spin is too short for."""

    def __init__(self, spin=1):
        self._seconds = 1.0 if spin >= 10 else 1.5

    def captured(self, run, rotate, effort):
        run()
        return Timing(self._seconds, self._seconds, self._seconds, 0.0, 1)

    launched = captured


def test_a_point_whose_launch_shows_behind_the_spin_is_flagged(monkeypatch):
    monkeypatch.setattr(checks, "CudaTimer", Replays)
    monkeypatch.setattr(checks, "works", lambda _: {"decode": checks.Work.of([16], [1])})
    (row,) = checks.spin(place(Replays()))
    assert (row.value, row.note) == (pytest.approx(1 / 1.5), "FLAGGED: the launch shows, or another clock")


def fine(name):
    return lambda _: iter([Row(name, "all", "rate", 1.0)])


def test_a_check_that_fails_is_a_row_and_stops_no_other(state, monkeypatch, capsys):
    def fails(_):
        yield Row("b", "half", "rate", 1.0)
        raise RuntimeError("no kernel\nimage")

    monkeypatch.setattr(checks, "CHECKS", {"a": fine("a"), "b": fails, "c": fine("c")})
    assert check(state, time.monotonic() + 60) == 0
    told = [str(row) for row in state.rows() if row.quantity not in ("begun", "ended")]
    assert told == ["a all: rate 1", "b half: rate 1", "b : failed; RuntimeError: no kernel image", "c all: rate 1"]
    assert capsys.readouterr().out.splitlines() == told
    assert check(state, time.monotonic() + 60) == 0
    assert capsys.readouterr().out == ""


def test_a_check_that_breaks_the_device_ends_the_process_and_is_not_repeated(state, monkeypatch):
    breaks = Mock(side_effect=RuntimeError("CUDA error: an illegal memory access was encountered"))
    monkeypatch.setattr(checks, "CHECKS", {"a": breaks, "b": fine("b")})
    with pytest.raises(RuntimeError, match="illegal memory access"):
        check(state, time.monotonic() + 60)
    assert check(state, time.monotonic() + 60) == 0
    assert [row.check for row in state.rows() if row.quantity == "failed"] == ["a"]
    assert [row.check for row in state.rows() if row.quantity == "rate"] == ["b"]


def test_drift_is_the_ratio_of_the_second_time_to_the_first(tmp_path):
    points = [GridPoint("decode", n, 128, 1) for n in (1, 2, 3, 4)]
    for name, factors in (("one.samples.parquet", np.ones(4)), ("one.again.samples.parquet", [1.0, 1.02, 1.5])):
        pairs = zip(points, factors, strict=False)
        written(tmp_path / name, [sample(point, seconds=0.01 * factor) for point, factor in pairs])
    median, farthest = drift(tmp_path / "one.samples.parquet", tmp_path / "one.again.samples.parquet")
    assert (median.case, median.value) == ("one, 3 points", pytest.approx(1.02))
    assert (farthest.value, farthest.note) == (pytest.approx(1.5), "target decode/3x1@128")


def test_time_that_runs_out_within_a_check_leaves_it_for_the_next_start(state, monkeypatch):
    def two(_):
        yield Row("a", "first", "rate", 1.0)
        time.sleep(0.2)
        yield Row("a", "second", "rate", 1.0)
        pytest.fail("went on")

    monkeypatch.setattr(checks, "CHECKS", {"a": two})
    assert check(state, time.monotonic() + 0.1) == TIME_IS_UP
    assert state.ended() == set()


@pytest.mark.parametrize("tokens", [1, 40])
def test_experts_are_those_of_one_expert_after_the_other(tokens):
    pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")
    made = experts.drawn(experts.TINY, place(), seed=1)
    hidden = torch.randn(tokens, experts.TINY.hidden, generator=torch.Generator().manual_seed(0))
    expected = experts.plain(made, hidden)
    torch.testing.assert_close(experts.grouped(made, hidden), expected, rtol=1e-4, atol=1e-6)
    for tile in ((16, 16, 16, 4), (32, 64, 32, 4)):
        torch.testing.assert_close(experts.fused(made, hidden, tile), expected, rtol=1e-4, atol=1e-6)
