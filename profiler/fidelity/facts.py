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

from profiler.attention.packing import Ints
from profiler.backend.future import OracleText
from profiler.fidelity.models import Ready
from profiler.fidelity.study import Study
from profiler.latency.hardware import hardware
from profiler.models.loading import torch_device, versions
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
    about = hardware(torch_device(study.device))
    return {
        **{name: getattr(ready.pair, name) for name in MODELS},
        "dtype": study.dtype,
        "device": study.device,
        "threads": torch.get_num_threads(),
        "cache_tokens": study.cache_tokens,
        "graphs": study.graphs,
        "grid": asdict(study.grid),
        "kernel": ready.kernel,
        "passes": ready.passes,
        "hardware": about.name,
        "driver": about.driver,
        "host": about.host,
        "versions": versions(),
        "sources": [package_sha256(), folder_sha256(PROFILER)],
    }


def lookup_facts(study: Study, ready: Ready) -> dict[str, Any]:
    """Return what the measured price of a lookup depends on."""
    return {**profile_facts(study, ready), "lookup_ngrams": ready.pair.lookup_ngrams}


def pair_facts(
    study: Study, ready: Ready, words: Sequence[str], prompts: Sequence[Ints] | None, texts: Sequence[OracleText] | None
) -> dict[str, Any]:
    """Return what all cells of a pair depend on beside their settings.

    Parameters
    ----------
    words : settings of one of its runs, for the trace and the recording behind them. prompts, texts : of the requests,
        where the text is the model's.
    """
    pair = asdict(ready.pair)
    pair.pop("schedulers")
    pair["prompts"] = [sha256(each.read_bytes()).hexdigest() for each in ready.pair.prompts]
    return {
        **profile_facts(study, ready),
        "clock": study.clock,
        "pair": pair,
        "files": sources_of(prepare(from_words(words, sweep=False)[0])),
        "prompt_tokens": _arrays_sha256(prompts or ()),
        "text_tokens": _arrays_sha256(each for text in texts or () for each in (text.tokens, text.rank)),
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
