"""The tape of a model's own texts: what its drafter proposes at each position, and how often it is right."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from profiler.backend.future import Told
from profiler.backend.known import Known
from specsim.acceptance.recorded import LEAST_CONFIDENCE, RecordedTexts
from specsim.acceptance.tape import Tape
from specsim.core.request import Floats, Ints
from specsim.rng import stream_keys


def tape_of(texts: Sequence[Told], seed: int, confidence: float | None) -> Tape:
    """Return the tape of requests whose texts these are, position by position.

    Behind the end of a text it begins again. Off the target's path, where nobody has read, a hash picks any position of
    a draft model; a lookup reads on in what it has found, so it goes on proposing.

    Parameters
    ----------
    confidence : of a lookup's proposals; None: a draft model's own.
    """
    length = np.array([len(each.tokens) for each in texts])
    start, requests = np.cumsum(length) - length, np.arange(len(texts))
    held, rank = np.concatenate([each.confidence for each in texts]), np.concatenate([each.rank for each in texts])
    nothing, off = np.zeros_like(requests), (0, len(held))
    if confidence is None:
        held = np.maximum(held, LEAST_CONFIDENCE)
    else:
        held, rank = confidence * np.concatenate([held, [[1.0]]]), np.append(rank, 1)
        off = len(held) - 1, 1
    keys = stream_keys(seed, "text", requests)
    off_start, off_length = (np.full_like(requests, each) for each in off)
    return Tape(held, rank, RecordedTexts(keys, start, off_start, nothing, length, off_length), keys)


def differing(known: Known, texts: Sequence[Told], served: Ints) -> tuple[int, float]:
    """Return how many of the requests `served` say something else than alone, and the widest gap where they begin to.

    The gap is that of the two likeliest logits when the target reads alone: rounding may turn a small one.
    """
    count, widest = 0, 0.0
    for request in served.tolist():
        said, alone = known.output(request), texts[request].tokens
        wrong = np.flatnonzero(said != alone[: len(said)])
        if len(wrong):
            count += 1
            widest = max(widest, float(gap(texts[request])[wrong[0]]))
    return count, widest


def gap(text: Told) -> Floats:
    """Return the logit of the target's likeliest token less that of the next one, (T,)."""
    first, second = np.log(np.maximum(text.probability[:, :2], 1e-300)).T
    found: Floats = first - second
    return found
