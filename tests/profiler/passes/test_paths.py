from __future__ import annotations

from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from profiler.attention.operations import Plain  # noqa: E402
from profiler.latency.points import GridPoint  # noqa: E402
from profiler.latency.samples import SampleFile  # noqa: E402
from profiler.models.random_weights import random_model  # noqa: E402
from profiler.models.shapes import TINY_LLAMA  # noqa: E402
from profiler.passes import paths  # noqa: E402
from profiler.passes.paths import forward_of, working_passes  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.profiler.latency.made import FACTS, sample, written  # noqa: E402

pytestmark = pytest.mark.torch
CPU, CUDA = torch.device("cpu"), torch.device("cuda")
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
    told = (
        "note: passes of transformers' model instead of 'fused': a model of type 'mistral'; expected llama or qwen2\n"
    )
    assert capsys.readouterr().err == told
    monkeypatch.setattr(paths, "find_spec", lambda name: None)
    assert working_passes(None, [LLAMA], CUDA) == "transformers"
    assert "instead of 'fused': triton is not installed\n" in capsys.readouterr().err


def test_what_was_asked_for_is_never_replaced(monkeypatch):
    with pytest.raises(
        SpecsimError, match=r"^passes 'fused' have no .*'mistral'; expected llama or qwen2, or --passes t"
    ):
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
