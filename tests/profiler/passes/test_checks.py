"""Checks and choices before a sweep: the attention kernel and the path of passes."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.attention.operations import Plain  # noqa: E402
from profiler.attention.packing import EVERYWHERE, pack  # noqa: E402
from profiler.attention.sdpa import Sdpa  # noqa: E402
from profiler.latency.points import GridPoint  # noqa: E402
from profiler.latency.samples import SampleFile  # noqa: E402
from profiler.models.random_weights import random_model  # noqa: E402
from profiler.models.shapes import TINY_LLAMA  # noqa: E402
from profiler.passes import paths  # noqa: E402
from profiler.passes.checks import TOLERANCE, checked_error, checked_work, kernel_error, working_kernel  # noqa: E402
from profiler.passes.paths import forward_of, working_passes  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.latency.made import FACTS, sample, written  # noqa: E402

pytestmark = pytest.mark.torch
CPU, CUDA = torch.device("cpu"), torch.device("cuda")


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
    place, limit = {"device": CPU, "dtype": torch.bfloat16}, TOLERANCE[torch.bfloat16]
    assert kernel_error("sdpa", 8, 2, 64, **place) < limit / 2
    row = np.searchsorted(packed.tail_start, np.arange(len(packed.opens)), side="right") - 1
    inner = np.flatnonzero(packed.closes < EVERYWHERE)
    moves = [("closes", key, 1) for key in inner if packed.closes[key] in packed.point[packed.row == row[key]]]
    moves += [("opens", key, 1) for key in range(len(packed.opens))]
    for move in moves:
        monkeypatch.setattr("profiler.passes.checks.planner", lambda *a, move=move, **k: Mutant(*move))
        assert kernel_error("sdpa", 8, 2, 64, **place) > limit, move


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


LLAMA = SimpleNamespace(model_type="llama", hidden_act="silu", rope_parameters={"rope_type": "llama3"})
MISTRAL = SimpleNamespace(model_type="mistral")


def test_the_default_is_fused_on_a_gpu_where_it_can_be_had(monkeypatch, capsys):
    monkeypatch.setattr(paths, "find_spec", lambda name: name)
    assert working_passes(None, [], CUDA) == working_passes(None, [LLAMA], CUDA) == "fused"
    assert working_passes(None, [LLAMA], CPU) == "transformers"
    assert working_passes("transformers", [LLAMA], CUDA) == "transformers"
    assert working_passes("fused", [LLAMA], CPU) == "fused"
    assert capsys.readouterr().err == ""


def test_a_gpu_without_the_fused_path_says_why(monkeypatch, capsys):
    monkeypatch.setattr(paths, "find_spec", lambda name: name)
    assert working_passes(None, [LLAMA, MISTRAL], CUDA) == "transformers"
    told = "note: passes of transformers' model instead of 'fused': a model of type 'mistral'; expected llama or qwen2"
    assert capsys.readouterr().err == f"{told}\n"
    monkeypatch.setattr(paths, "find_spec", lambda name: None)
    assert working_passes(None, [LLAMA], CUDA) == "transformers"
    assert "instead of 'fused': triton is not installed\n" in capsys.readouterr().err


def test_what_was_asked_for_is_never_replaced(monkeypatch):
    with pytest.raises(SpecsimError, match=r"^passes 'fused' have no .*'mistral'; expected llama or qwen2, or --pass"):
        working_passes("fused", [LLAMA, MISTRAL], CPU)
    monkeypatch.setattr(paths, "find_spec", lambda name: None)
    with pytest.raises(SpecsimError, match=r"^passes 'fused' need triton: pip install \"specsim\[profiler\]\"$"):
        working_passes("fused", [LLAMA], CUDA)


class Wrong(Plain):
    def silu_multiply(self, gate_up):
        return gate_up[:, ::2]


def test_operations_are_checked_before_a_sweep(monkeypatch):
    monkeypatch.setattr("profiler.passes.fused.operations_of", lambda device: Wrong())
    model = random_model(TINY_LLAMA, device=CPU, dtype=torch.float32)
    with pytest.raises(SpecsimError, match="the torch operations of passes 'fused' are wrong by"):
        forward_of("fused", model, TINY_LLAMA, 4, "sdpa")


def test_samples_older_than_the_fused_path_are_of_transformers(tmp_path):
    path = written(tmp_path / "s.parquet", [sample(GridPoint("decode", 1, 16, 1))])
    assert len(SampleFile(path, {**FACTS, "passes": "transformers"}).samples) == 1
    with pytest.raises(SpecsimError, match="holds samples of passes 'transformers', not 'fused'"):
        SampleFile(path, {**FACTS, "passes": "fused"})
