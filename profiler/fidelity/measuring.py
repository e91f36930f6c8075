"""Passes of a pair timed on the very path that serves: laid out, run, and their choice on the host."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch

from profiler.backend.drafting import likeliest_tokens
from profiler.backend.known import Known, random_tokens
from profiler.backend.layout import Row, laid_out, passed
from profiler.backend.lookup import LookupDrafter
from profiler.backend.rows import Rows
from profiler.backend.served import LookupMatch
from profiler.backend.stopwatch import DeviceStopwatch
from profiler.fidelity.models import Ready
from profiler.latency.grids import Grid
from profiler.latency.models import ceiling_facts, shared_facts, sizes
from profiler.latency.points import Point
from profiler.latency.samples import Sample
from profiler.latency.timers import timer_for
from profiler.passes.checks import checked_error
from profiler.passes.forward import PackedForward
from profiler.passes.packing import Work
from profiler.passes.paths import ASSUMPTIONS
from specsim.pass_shape import PassShape

WIDTH = 3
"""Children of a leaf that a timed draft pass chooses."""
LOOKUPS, LOOKUP_ROWS, LOOKUP_TOKENS, LOOKUP_WORDS = 15, 6, 64, 20
LEAST_LOOKUP_S = 1e-6
ROUNDS = 3
COVERS = "seconds of the serving path: inputs laid out, pass, choice on the host; passes launched kernel by kernel"
REPLAYED = ", but for decodes and levels of chains, which are replayed as CUDA graphs"


def pace(ready: Ready, grid: Grid, samples: Sequence[Sample]) -> float:
    """Return how much longer the smallest target pass takes now than when the profile was measured, as a ratio."""
    point = grid.passes("target")[0]
    (known,) = [each.median_s for each in samples if each.name == ("target", point.key, "eager")]
    return float(np.median(runs(ready, "target", point, grid, ROUNDS))) / known


def lookup_s(ready: Ready, grid: Grid) -> dict[str, float]:
    """Return the keys of a lookup's price: `pass_s`, and `request_s` of each request.

    Each search follows a pass of the target, as it does in a run, whose weights have driven its text out of the caches;
    its code is there, for a scheduler has just decided.
    """
    match, target = ready.models.draft, ready.models.target
    assert isinstance(match, LookupMatch)
    clock, shape = DeviceStopwatch(target.device), PassShape.decode(LOOKUP_TOKENS)
    # Of a few words only, so that something matches.
    texts = [random_tokens(0, row, LOOKUP_TOKENS, LOOKUP_WORDS) for row in range(LOOKUP_ROWS + 1)]
    known = Known(texts, np.zeros(LOOKUP_ROWS + 1, np.int64))
    drafter = LookupDrafter(known, clock, match.fewest, match.most, match.by_length())
    point, seconds = grid.passes("target")[0], dict[int, list[float]]()

    def searched(rows: int) -> None:
        for row in range(rows):
            drafter.search(row)

    for turn in range(LOOKUPS):
        for rows in (1, LOOKUP_ROWS):
            _prepared(target, "target", point, turn)()
            drafter.search(LOOKUP_ROWS)
            _, taken = clock.timed("draft", shape, partial(searched, rows))
            seconds.setdefault(rows, []).append(taken)
    one, all_ = (float(np.median(each)) for each in seconds.values())
    request_s = max((all_ - one) / (LOOKUP_ROWS - 1), 0.0)
    return {"pass_s": max(one - request_s, LEAST_LOOKUP_S), "request_s": request_s}


def _forward(ready: Ready, role: str) -> PackedForward:
    draft = ready.models.draft
    return ready.models.target if role == "target" or isinstance(draft, LookupMatch) else draft


def runs(ready: Ready, role: str, point: Point, grid: Grid, turn: int) -> list[float]:
    """Return the seconds of some runs of a point, as a server runs it, behind one that warms up."""
    forward = _forward(ready, role)
    clock, seconds = DeviceStopwatch(forward.device), list[float]()
    for each in range(1 + -(-grid.repeats // ROUNDS)):
        run = _prepared(forward, role, point, ROUNDS * each + turn)
        _, taken = clock.timed(role, PassShape.decode(0), run)
        seconds.append(taken)
        if len(seconds) > 1 and sum(seconds) > grid.seconds:
            break
    return seconds[1:]


def _prepared(forward: PackedForward, role: str, point: Point, turn: int) -> Callable[[], object]:
    """Return what runs a pass of that shape over fresh pages and tokens, and chooses."""
    rng = np.random.default_rng([turn, point.queries, point.requests])
    held = Rows(forward, point.work().rows)
    rows = list(_rows(point.work(), rng, forward.shape.vocab))
    laid = laid_out(rows)
    run = passed(forward, held, rows, laid)
    if role == "target":
        return lambda: run().argmax(-1).cpu().numpy()
    wanted = np.arange(laid.work.logit_tokens)
    return lambda: likeliest_tokens(run()[torch.from_numpy(wanted).to(forward.device)], WIDTH, forward.shape.vocab)


def _rows(work: Work, rng: np.random.Generator, vocabulary: int) -> Iterator[Row]:
    """Yield the rows of a work as a server has them, with random tokens."""
    for row in range(work.rows):
        mine = np.flatnonzero(work.node_row == row)
        first = int(mine[0]) if len(mine) else 0
        parents = np.where(work.node_parent[mine] < 0, -1, work.node_parent[mine] - first).tolist()
        old = int(np.count_nonzero(work.node_cached[mine]))
        yield Row(
            row,
            int(work.context[row]),
            rng.integers(0, vocabulary, int(work.chunk[row])),
            parents[:old],
            parents[old:],
            rng.integers(0, vocabulary, len(mine) - old).tolist(),
        )


def sample_facts(ready: Ready, grid: Grid) -> dict[str, Any]:
    """Return what all samples of a pair share: its models, the machine and its ceilings."""
    target = ready.models.target
    shapes = {"target": target.shape, "draft": _forward(ready, "draft").shape}
    if isinstance(ready.models.draft, LookupMatch):
        shapes["draft"] = replace(target.shape, name=f"{target.shape.name}, in the place of a draft model")
    itemsize, model_sizes = target.dtype.itemsize, {}
    for role, shape in shapes.items():
        weights = 0 if role == "draft" and " less " in shape.name else shape.parameters * itemsize
        model_sizes[role] = sizes(shape, weights, target.dtype)
    place: Any = {"device": target.device, "dtype": target.dtype}
    errors = {
        role: checked_error(ready.kernel, each.heads, each.kv_heads, each.head_dim, **place)
        for role, each in shapes.items()
    }
    return {
        **shared_facts(shapes["target"].name, shapes["draft"].name, grid, ready.kernel, ready.passes, **place),
        "assumptions": [ASSUMPTIONS[ready.passes], COVERS + (REPLAYED if target.replays is not None else "")],
        "models": model_sizes,
        "attention_error": errors,
        **ceiling_facts(timer_for(target.device), **place),
    }
