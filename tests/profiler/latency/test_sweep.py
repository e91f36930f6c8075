"""A sweep of a tiny pair: what is measured, skipped, gone on with, and what fits the memory beside the weights."""

import itertools
from dataclasses import replace
from functools import partial
from unittest.mock import Mock

import pytest

torch = pytest.importorskip("torch")
from torch._dynamo.exc import TorchDynamoException  # noqa: E402

from profiler.attention.pages import breaks_the_device, is_out_of_memory  # noqa: E402
from profiler.latency.hardware import Clocks  # noqa: E402
from profiler.latency.measure import Bench, stated  # noqa: E402
from profiler.latency.models import Setting, Subject, needed, pool_pages, weights_bytes  # noqa: E402
from profiler.latency.points import CPU_QUICK, FULL, GridPoint  # noqa: E402
from profiler.latency.samples import SampleFile, Timing, read_samples  # noqa: E402
from profiler.latency.sweep import LatencySweep  # noqa: E402
from profiler.latency.timers import Effort, HostTimer  # noqa: E402
from profiler.models.random_weights import random_model, shape_of  # noqa: E402
from profiler.models.shapes import LLAMA_70B, QWEN_05B, QWEN_32B, TINY_LLAMA  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.profiler.latency.made import FACTS  # noqa: E402

pytestmark = pytest.mark.torch
GRID = replace(CPU_QUICK, requests=(1, 4), contexts=(16, 128), chunks=(8, 32), leaves=(1,), max_batched_tokens=64)
POINTS = len(GRID.passes("target")) + len(GRID.passes("draft"))
SETTING = Setting(torch.device("cpu"), torch.float32, "sdpa", GRID, 1, "nvlink4", 0)
TINY = {role: Subject("tiny-llama", random=True) for role in ("target", "draft")}


class CountingTimer:
    """Runs each pass once and says it took a second; fails, or lets time pass, where it is told to."""

    def __init__(self, captures=False, fail_at=(), failure=torch.OutOfMemoryError, after_each=lambda: None):
        self.captured = partial(self._timed, "graph") if captures else None
        self.launched = partial(self._timed, "eager")
        self.fail_at, self.failure, self.after_each, self.calls = fail_at, failure, after_each, []

    def _timed(self, mode, run, rotate, effort):
        self.calls.append(mode)
        self.after_each()
        if len(self.calls) - 1 in self.fail_at:
            raise self.failure
        rotate(0)
        run()
        return Timing(1.0, 1.0, 1.0, 0.0, 1)

    def host(self, run, runs=5):
        run()
        return 0.001


def sweep(path, timer, setting=SETTING, **changes):
    return LatencySweep(TINY, setting, timer, SampleFile(path, {**FACTS, "models": {}}), **changes)


def test_a_sweep_that_is_killed_goes_on_where_it_was_and_measures_every_point_of_both_models_once(tmp_path):
    def die():
        if len(dying.calls) == 8:
            raise KeyboardInterrupt

    dying = CountingTimer(after_each=die)
    with pytest.raises(KeyboardInterrupt):
        sweep(tmp_path / "s.parquet", dying).run()
    kept = read_samples(tmp_path / "s.parquet")[1]
    assert len(kept) == 7
    rest = CountingTimer()
    assert sweep(tmp_path / "s.parquet", rest).run() == 0
    samples = read_samples(tmp_path / "s.parquet")[1]
    assert len(rest.calls) + 7 == len(samples)
    assert [(each.name, each.measured_at) for each in samples[:7]] == [(each.name, each.measured_at) for each in kept]
    wanted = [(role, point.key, "ok") for role in ("target", "draft") for point in GRID.passes(role)]
    assert sorted((each.role, each.key, each.status) for each in samples) == sorted(wanted)
    nothing = CountingTimer()
    assert sweep(tmp_path / "s.parquet", nothing).run() == len(nothing.calls) == 0


def test_time_that_is_up_stops_it_after_a_point_at_least_and_at_the_last_one_leaves_nothing_to_do(tmp_path):
    for calls in (1, 2):
        timer = CountingTimer()
        assert sweep(tmp_path / "s.parquet", timer, deadline=-1, clock=lambda: 0.0).run() == POINTS - calls
        assert (len(timer.calls), len(read_samples(tmp_path / "s.parquet")[1])) == (1, calls)
    timer = CountingTimer()
    late = sweep(tmp_path / "late.parquet", timer, deadline=0, clock=lambda: float(len(timer.calls) == POINTS))
    assert late.run() == 0


class CompilerError(TorchDynamoException):
    """A kernel that does not compile."""


@pytest.mark.parametrize(
    ("failure", "status"),
    [(torch.OutOfMemoryError, "out of memory"), (CompilerError, "its kernel does not compile: CompilerError")],
)
def test_a_point_that_cannot_be_measured_is_skipped_and_listed(tmp_path, failure, status):
    assert sweep(tmp_path / "s.parquet", CountingTimer(fail_at=(2, 5), failure=failure)).run() == 0
    skipped = [each for each in read_samples(tmp_path / "s.parquet")[1] if each.status != "ok"]
    assert [each.status for each in skipped] == [status] * 2
    assert all(each.median_s != each.median_s for each in skipped)


def test_memory_that_runs_out_before_the_first_point_is_one_line(tmp_path, monkeypatch):
    full = Mock(side_effect=RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 8 bytes"))
    with monkeypatch.context() as patch:
        patch.setattr("profiler.passes.checks.kernel_error", full)
        with pytest.raises(SpecsimError, match=r"^attention 'sdpa': too little memory on cpu$"):
            sweep(tmp_path / "s.parquet", CountingTimer()).run()
    monkeypatch.setattr("profiler.passes.forward.PagedCache", full)
    with pytest.raises(SpecsimError, match=r"^the cache of target tiny-llama: too little memory on cpu$"):
        sweep(tmp_path / "s.parquet", CountingTimer()).run()
    assert list(tmp_path.iterdir()) == []


def test_inputs_come_round_again_only_when_the_others_have_outgrown_the_cache_twice():
    point, turns = GridPoint("decode", 4, 64, 1), []
    read = 4 * 64 * 512
    forward = Forward(random_model(TINY_LLAMA, device=torch.device("cpu"), dtype=torch.float32), TINY_LLAMA, 100)
    for cache_bytes, repeats, others in ((4 * read, 20, 9), (4 * read, 5, 5), (0, 20, 2), (read // 9, 1, 2)):
        bench = Bench("target", forward, TINY_LLAMA, HostTimer(), Clocks(None), Effort(repeats, 1.0), cache_bytes)
        ready = bench._rotation(point.work(), 4)
        assert len({tuple(each.slots.tolist()) for each in ready}) == len(ready) == 1 + others
        ready[0].load = turns.append
        turns.clear()
        bench._timing(ready)
        assert all(one is not two for one, two in itertools.pairwise(turns))


def test_a_loaded_models_weights_are_its_own():
    """A mixture of experts holds more than its shape says."""
    from transformers import MixtralConfig, MixtralForCausalLM

    sizes = {"hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1, "vocab_size": 50}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "pad_token_id": 0}
    model = MixtralForCausalLM(MixtralConfig(**sizes, **heads, num_local_experts=8))
    experts = 8 * 3 * 16 * 24
    whole = shape_of(model, "moe")
    assert 4 * experts < weights_bytes(Subject("moe", random=False), model, whole) < 4 * (experts + 4000)
    tiny = random_model(TINY_LLAMA, device=torch.device("cpu"), dtype=torch.float32)
    assert weights_bytes(Subject("tiny-llama", random=True), tiny, LLAMA_70B) == 4 * LLAMA_70B.parameters


def test_a_point_that_breaks_the_device_is_kept_so_that_the_next_run_passes_it(tmp_path, monkeypatch):
    nothing_runs = Mock(side_effect=RuntimeError("CUDA error: unspecified launch failure"))
    lost = RuntimeError("CUDA error: an illegal memory access was encountered\nCompile with TORCH_USE_CUDA_DSA")
    with monkeypatch.context() as patch:
        patch.setattr("profiler.latency.models.give_back", nothing_runs)
        with pytest.raises(SpecsimError, match=r"^(target|draft) .*: CUDA error: an illegal memory access was encoun"):
            sweep(tmp_path / "s.parquet", CountingTimer(fail_at=(2,), failure=lost)).run()
    kept = read_samples(tmp_path / "s.parquet")[1]
    assert [each.status[:32] for each in kept] == ["ok", "ok", "CUDA error: an illegal memory ac"]
    assert sweep(tmp_path / "s.parquet", CountingTimer()).run() == 0
    names = [each.name for each in read_samples(tmp_path / "s.parquet")[1]]
    assert len(names) == len(set(names)) == POINTS


def test_points_that_the_memory_does_not_hold_are_left_out_and_said(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr("profiler.latency.models.pool_pages", lambda points, shapes, setting: dict.fromkeys(points, 20))
    assert sweep(tmp_path / "s.parquet", CountingTimer()).run() == 0
    facts, samples = read_samples(tmp_path / "s.parquet")
    keys = {each.key for each in samples if each.role == "target"}
    assert "decode/4x1@128" not in keys
    assert "decode/1x1@128" in keys
    assert {each.status for each in samples} == {"ok"}
    assert facts["lowered"] == {"target": [304, 2], "draft": [304, 2]}
    assert "note: lower grid: 304 tokens of tiny-llama's cache fit in the memory; 2 target p" in capsys.readouterr().err


def test_where_graphs_are_captured_every_point_is_replayed_at_a_captured_size(tmp_path):
    timer = CountingTimer(captures=True)
    assert sweep(tmp_path / "s.parquet", timer).run() == 0
    samples = read_samples(tmp_path / "s.parquet")[1]
    assert {each.mode for each in samples} == set(timer.calls) == {"graph"}
    verify = next(each for each in samples if each.key == "verify/1x3@16")
    assert (verify.batched_tokens, verify.captured_tokens) == (3, 4)


def test_a_shard_is_measured_and_its_all_reduce_modelled(tmp_path):
    setting = Setting(torch.device("cpu"), torch.float32, "sdpa", GRID, 2, "nvlink4", 0)
    assert sweep(tmp_path / "s.parquet", CountingTimer(), setting).run() == 0
    samples = read_samples(tmp_path / "s.parquet")[1]
    one = next(each for each in samples if each.role == "target" and each.batched_tokens == 32)
    assert "a line whose median error is 8 to 16% on NCCL's times" in stated("nvlink4", 2)
    assert one.all_reduce_s == pytest.approx(2 * 2 * (7.9e-6 + 32 * 64 * 4 / 248e9))
    assert {each.all_reduce_s for each in samples if each.role == "draft"} == {0.0}


def test_only_memory_that_ran_out_is_called_so():
    assert is_out_of_memory(RuntimeError("CUDA error: out of memory"))
    assert is_out_of_memory(MemoryError())
    assert not is_out_of_memory(RuntimeError("CUDA error: an illegal memory access was encountered"))
    assert breaks_the_device(RuntimeError("Triton Error [CUDA]: invalid argument"))
    assert not breaks_the_device(RuntimeError("CUDA error: out of memory"))
    assert not breaks_the_device(ValueError("CUDA error: none"))
    assert not breaks_the_device(RuntimeError("CUDA error: operation not permitted when stream is capturing"))


def test_too_little_memory_for_any_cache(monkeypatch):
    monkeypatch.setattr("profiler.latency.models.free_bytes", lambda device: 10**6)
    with pytest.raises(SpecsimError, match=r"Llama-3.1-70B: too little memory on cpu: its weights leave room for 0"):
        pool_pages({"target": [GridPoint("decode", 1, 128, 1)]}, {"target": LLAMA_70B}, SETTING)


def test_both_models_of_the_largest_pair_share_an_h200(monkeypatch):
    """143,771 MiB hold the 32B and the 0.5B in bfloat16, and all but the largest points."""
    free = 143771 * 2**20 - 10**9 - QWEN_32B.weights_bytes - QWEN_05B.weights_bytes
    monkeypatch.setattr("profiler.latency.models.free_bytes", lambda device: free)
    setting = Setting(torch.device("cuda"), torch.bfloat16, "flex", FULL, 1, None, 0)
    shapes = {"target": QWEN_32B, "draft": QWEN_05B}
    pages = pool_pages({role: FULL.passes(role) for role in shapes}, shapes, setting)
    held = sum(pages[role] * 128 * shape.kv_bytes_per_token for role, shape in shapes.items())
    assert free - held > 6e9
    over = {role: [each for each in FULL.passes(role) if needed(each, 128) > pages[role]] for role in pages}
    assert {point.requests * point.context for every in over.values() for point in every} <= {2**18}
    assert sum(map(len, over.values())) <= 2
