"""The stage `engine`: times of a whole engine, vLLM on dummy weights, in a process of its own."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from threading import Timer
from typing import Any

from profiler.latency import command
from profiler.models.shapes import TransformerShape, named_shape
from specsim.errors import say
from tools.gpu_session.pairs import first_arguments
from tools.gpu_session.state import Row, State

PARTS = ("alone", "drafting")
"""Engines that are started one after the other: the target alone, and with its draft model."""
MARK = "row "
"""Beginning of a line of the engine's process that holds a row; all others are the engine's own words."""


def engine(state: State, deadline: float) -> int:
    """Time the engine of the first pair; return 0 also where none is installed, 3 if time ran out."""
    if find_spec("vllm") is None:
        state.tell(Row("engine", "vllm", "absent", note="vllm is not installed: no engine is timed"))
        return 0
    folder = state.folder / "engine"
    given = first_arguments(state).random_weights
    names = given if len(given) == 2 else ["llama-3.1-8b", "llama-3.2-1b"]
    models = [_config(folder / role, named_shape(each)) for role, each in zip(("target", "draft"), names, strict=True)]
    ended = state.ended()
    for part in PARTS:
        name = f"engine {part}"
        left = deadline - time.monotonic()
        if name in ended:
            continue
        if left <= 0:
            return command.TIME_IS_UP
        state.begin(name)
        code = _timed(state, name, [part, *map(str, models)], left)
        if code != 0:
            state.tell(Row(name, "vllm", "failed", note=f"its process ended with {code}; session.log has its words"))
        state.end(name)
    return 0


def _timed(state: State, name: str, words: list[str], seconds: float) -> int | str:
    """Run the engine's process for at most so many seconds, and keep its rows as they come."""
    with subprocess.Popen(
        [sys.executable, "-m", "tools.gpu_session.vllm_times", *words],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,  # An engine has processes of its own, which end with it.
    ) as process:
        limit = Timer(seconds, _end, [process])
        limit.start()
        try:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith(MARK):
                    state.tell(Row(name, **json.loads(line.removeprefix(MARK))))
                else:
                    say(line.rstrip("\n"), error=True)
            code = process.wait()
            return "its time" if code < 0 and not limit.is_alive() else code
        finally:
            limit.cancel()
            _end(process)


def _end(process: subprocess.Popen[str]) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def _config(folder: Path, shape: TransformerShape) -> Path:
    """Write the configuration of a model whose weights the engine draws itself; return its folder."""
    kind = "Qwen2" if shape.qkv_bias else "Llama"
    config: dict[str, Any] = {
        "architectures": [f"{kind}ForCausalLM"],
        "model_type": kind.lower(),
        "vocab_size": shape.vocab,
        "hidden_size": shape.hidden,
        "intermediate_size": shape.ffn,
        "num_hidden_layers": shape.layers,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "max_position_embeddings": 8192,
        "rms_norm_eps": 1e-5,
        "rope_theta": 500000.0,
        "hidden_act": "silu",
        "tie_word_embeddings": shape.tied,
        "torch_dtype": "bfloat16",
        "bos_token_id": 1,
        "eos_token_id": 2,
    }
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
