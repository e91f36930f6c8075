"""Recordings made by hand, or drawn from a known law."""

from typing import Any

import numpy as np

from profiler.acceptance.trace_file import RecordedTrace
from specsim.core.request import Floats

ABOUT: dict[str, Any] = {"format": 1, "target": "big", "draft": "small", "drafter": "separate", "temperature": 0.0}
ABOUT |= {"proposals": 3, "versions": {}, "date": "2026-01-01", "hardware": "none"}
COLUMNS = ("category", "sequence", "position", "path", "confidence", "rank", "target_probability", "overlap")


def acceptance_trace_of(
    category: Any, sequence: Any, position: Any, path: Any, confidence: Floats, rank: Any, names: tuple[str, ...]
) -> RecordedTrace:
    """Return a recording of these columns, the target as sure as the draft."""
    about, overlap = ABOUT | {"proposals": confidence.shape[1]}, np.full(len(confidence), np.nan)
    columns = map(np.asarray, (category, sequence, position, path, confidence, rank, confidence, overlap))
    return RecordedTrace(about, names, *columns)


def small_trace() -> RecordedTrace:
    confidence = np.array([[0.5, 0.25, 0.125], [0.75, 0.125, 0.0], [1.0, 0.0, 0.0], [0.5, 0.5, 0.0], [0.25, 0.25, 0.0]])
    columns = [0, 0, 0, 1, 1], [0, 0, 0, 4, 4], [0, 1, 2, 0, 1], [-1, -1, -1, -1, 2]
    return acceptance_trace_of(*columns, confidence, [0, 3, 1, 2, 3], ("chat", "code"))


def drawn_trace(
    rng: np.random.Generator, *, sequences: int, tokens: int, confidence: Floats, name: str = "chat"
) -> RecordedTrace:
    """Return calibrated independent rows: top-1 confidence drawn from `confidence`, the rest halving behind it."""
    top = rng.choice(confidence, size=(sequences, tokens))
    behind = (1 - top) * np.minimum(0.5, top)
    rows = np.stack((top, behind, behind / 2), axis=-1).reshape(-1, 3)
    draws = rng.random(len(rows))[:, None]
    rank = (draws >= np.cumsum(rows, axis=1)).sum(axis=1)
    sequence, position = np.divmod(np.arange(len(rows)), tokens)
    zero = np.zeros(len(rows), int)
    return acceptance_trace_of(zero, sequence, position, zero - 1, rows, rank, (name,))
