"""Facts that a study's measurements depend on, so that those of another configuration are not taken for them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import torch

from profiler.fidelity.models import Ready
from profiler.fidelity.serving import Scene
from profiler.fidelity.study import Study
from profiler.latency.hardware import machine_facts
from profiler.models.loading import torch_device
from specsim.config.configured import from_words
from specsim.config.identity import identity, settings_of
from specsim.runs.prepare import prepare
from specsim.runs.provenance import folder_sha256, package_sha256, sources_of

PROFILER = Path(__file__).parents[1]
CHARACTERS = 12
MODELS = ("target", "draft", "random_weights", "drafter", "skip_layers")
"""Of a pair, what its profile depends on."""


def profile_facts(study: Study, ready: Ready) -> dict[str, Any]:
    """Return what the measured profile of a pair depends on: its models, where and how they run, and the sources."""
    return {
        **{name: getattr(ready.pair, name) for name in MODELS},
        **{name: getattr(study, name) for name in ("dtype", "device", "cache_tokens", "graphs")},
        "threads": torch.get_num_threads(),
        "grid": asdict(study.grid),
        "kernel": ready.kernel,
        "passes": ready.passes,
        **machine_facts(torch_device(study.device)),
        "sources": [package_sha256(), folder_sha256(PROFILER)],
    }


def pair_facts(scene: Scene, words: Sequence[str]) -> dict[str, Any]:
    """Return what all cells of a pair depend on beside their settings.

    `words` are the settings of one of its runs, for the trace and the recording behind them.
    """
    pair = asdict(scene.ready.pair)
    pair.pop("schedulers")
    pair["prompts"] = [sha256(each.read_bytes()).hexdigest() for each in scene.ready.pair.prompts]
    return {
        **profile_facts(scene.study, scene.ready),
        "clock": scene.study.clock,
        "pair": pair,
        "files": sources_of(prepare(from_words(words, sweep=False)[0])),
        "prompt_tokens": _arrays_sha256(scene.prompts or ()),
        "text_tokens": _arrays_sha256(each for text in scene.texts or () for each in (text.tokens, text.rank)),
    }


def settings_key(words: Sequence[str]) -> str:
    """Return a hash of a run's resolved settings, the contents of its profile included but not its place."""
    config = from_words(words, sweep=False)[0].config
    choices = {name: chosen for name, chosen in config["choices"].items() if name != "profile"}
    return identity(settings_of({**config, "choices": choices}))


def key_of(facts: Mapping[str, Any]) -> str:
    """Return a hash of facts, for the name of a file."""
    return sha256(json.dumps(facts, sort_keys=True, default=str).encode()).hexdigest()[:CHARACTERS]


def _arrays_sha256(arrays: Any) -> str:
    digest = sha256()
    for each in arrays:
        array = np.ascontiguousarray(each)
        digest.update(f"{array.dtype}{array.shape}".encode())
        digest.update(array.tobytes())
    return digest.hexdigest()
