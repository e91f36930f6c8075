"""The profile of a pair, timed on the very path that serves, in rounds: the first before its runs, others between."""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from profiler.attention.packing import LARGEST_CAPTURED, Work
from profiler.attention.planning import SPLIT
from profiler.backend.drafting import LookupDrafter, likeliest_tokens
from profiler.backend.known import Known, random_tokens
from profiler.backend.layout import LaidRow, laid_out, passed
from profiler.backend.rows import CachedSequences
from profiler.backend.served import LookupMatch
from profiler.backend.stopwatch import DeviceStopwatch
from profiler.fidelity.models import Ready
from profiler.latency.hardware import ceilings
from profiler.latency.models import shared_facts, sizes
from profiler.latency.points import ROLES, Grid, GridPoint, interleaved
from profiler.latency.profile_file import HEADING, profile_mapping
from profiler.latency.samples import WRITE_EVERY_S, Sample, SampleFile, Timing, read_samples, sample_of
from profiler.latency.timers import timer_for
from profiler.passes.checks import checked_error
from profiler.passes.forward import PackedForward
from profiler.passes.paths import ASSUMPTIONS
from profiler.text import write, yaml_text
from specsim.pass_shape import PassShape

WIDTH = 3
"""Children of a leaf that a timed draft pass chooses."""
LOOKUPS, LOOKUP_ROWS, LOOKUP_TOKENS, LOOKUP_WORDS = 15, 6, 64, 20
LEAST_LOOKUP_S = 1e-6
ROUNDS = 3
COVERS = "seconds of the serving path: inputs laid out, pass, choice on the host; passes launched kernel by kernel"
REPLAYED = {
    True: f", but for all of up to {LARGEST_CAPTURED} tokens without a prompt's, which are replayed as CUDA graphs",
    False: ", but for decodes and levels of chains, which are replayed as CUDA graphs",
}
"""By whether attention is in two parts."""
FIRST = "first"
Turn = tuple[int, str, GridPoint]


def slowdown(ready: Ready, grid: Grid, samples: Sequence[Sample]) -> float:
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
    drafter = LookupDrafter(known, clock, match.fewest, match.most, match.confidence)
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


def runs(ready: Ready, role: str, point: GridPoint, grid: Grid, turn: int) -> list[float]:
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


def _prepared(forward: PackedForward, role: str, point: GridPoint, turn: int) -> Callable[[], object]:
    """Return what runs a pass of that shape over fresh pages and tokens, and chooses."""
    rng = np.random.default_rng([turn, point.queries, point.requests])
    held = CachedSequences(forward, point.work().rows)
    rows = list(_rows(point.work(), rng, forward.shape.vocab))
    laid = laid_out(rows)
    run = passed(forward, held, rows, laid)
    if role == "target":
        return lambda: run().argmax(-1).cpu().numpy()
    wanted = np.arange(laid.work.logit_tokens)
    return lambda: likeliest_tokens(run()[torch.from_numpy(wanted).to(forward.device)], WIDTH, forward.shape.vocab)


def _rows(work: Work, rng: np.random.Generator, vocabulary: int) -> Iterator[LaidRow]:
    """Yield the rows of a work as a server has them, with random tokens."""
    for row in range(work.rows):
        mine = np.flatnonzero(work.node_row == row)
        first = int(mine[0]) if len(mine) else 0
        parents = np.where(work.node_parent[mine] < 0, -1, work.node_parent[mine] - first).tolist()
        old = int(np.count_nonzero(work.node_cached[mine]))
        yield LaidRow(
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
        "assumptions": [
            *grid.left_out,
            ASSUMPTIONS[ready.passes],
            COVERS + ("" if target.replays is None else REPLAYED[ready.kernel in SPLIT]),
        ],
        "models": model_sizes,
        "attention_error": errors,
        **ceilings(timer_for(target.device), **place),
    }


class ProfileRounds:
    """Times all points of a grid in each of some rounds, so that a disturbance of the machine meets few runs of any.

    The first round makes a first profile, by which schedulers decide. The seconds of passes are those of the
    later ones, which lie between the runs that they predict. Every timing is kept, share by share.

    Parameters
    ----------
    place : where the profiles are kept, a name without suffix.
    notify : is called with a line about each round.
    """

    def __init__(self, ready: Ready, grid: Grid, place: Path, notify: Callable[[str], None]) -> None:
        self._ready, self._grid, self._place, self._notify = ready, grid, place, notify
        self._kept = _named(place, "runs.json")
        self._seconds: dict[str, list[float]] = (
            json.loads(self._kept.read_text(encoding="utf-8")) if self._kept.exists() else {}
        )
        points = list(interleaved({role: grid.passes(role) for role in ROLES}))
        # Behind a lookup the target stands in the place of a draft model, whose price no run pays.
        lasting = points if not isinstance(ready.models.draft, LookupMatch) else [p for p in points if p[0] == "target"]
        self._first: list[Turn] = [(0, *each) for each in points]
        self._later: list[Turn] = [(turn, *each) for turn in range(1, ROUNDS) for each in lasting]

    def first(self) -> Path:
        """Return the profile of the first round."""
        return self._profile(f"{self._place.name}.{FIRST}", self._first, "its first round")

    def go_on(self, share: float) -> None:
        """Time what is missing of the first `share` of the later rounds, 0 to 1."""
        self._time(self._later[: round(share * len(self._later))])

    def whole(self) -> Path:
        """Return the profile of the rounds between the runs, and of the first where there are no others."""
        again = {each[1:] for each in self._later}
        once = [each for each in self._first if each[1:] not in again]
        return self._profile(self._place.name, once + self._later, "the rounds between the runs")

    def _profile(self, name: str, turns: list[Turn], said: str) -> Path:
        """Return the profile's file of that name, measured and fitted unless it is there."""
        file = self._place.with_name(f"{name}.yaml")
        if file.exists():
            return file
        self._notify(f"profile: {said}, {len(turns)} passes")
        self._time(turns)
        seconds = defaultdict[tuple[str, GridPoint], list[float]](list)
        for turn, role, point in turns:
            seconds[role, point] += self._seconds[_key(turn, role, point)]
        samples = samples_file(file)
        samples.unlink(missing_ok=True)
        # The ceilings of the machine are found once.
        first = samples_file(self._place.with_name(f"{self._place.name}.{FIRST}.yaml"))
        facts = read_samples(first)[0] if first.exists() else sample_facts(self._ready, self._grid)
        kept = SampleFile(samples, facts)
        timings = {key: Timing.of(each) for key, each in seconds.items()}
        kept.samples += [sample_of(*key, "eager", "ok", each) for key, each in timings.items()]
        kept.write()
        mapping, _ = profile_mapping(self._ready.pair.name, [kept.path], "mean")
        # This profile holds the host's time: no engine adds any.
        mapping.pop("suggests", None)
        mapping["assumptions"] = kept.facts["assumptions"]
        write(file, yaml_text(mapping, HEADING.replace("latency", "fidelity")))
        return file

    def _time(self, turns: list[Turn]) -> None:
        """Time what is missing of some turns, and keep it."""
        written_s = time.monotonic()
        missing = [each for each in turns if _key(*each) not in self._seconds]
        for place, (turn, role, point) in enumerate(missing, start=1):
            self._seconds[_key(turn, role, point)] = runs(self._ready, role, point, self._grid, turn)
            if place == len(missing) or time.monotonic() - written_s > WRITE_EVERY_S:
                write(self._kept, json.dumps(self._seconds) + "\n")
                written_s = time.monotonic()


def samples_file(profile: Path) -> Path:
    """Return the file of the points behind a measured profile."""
    return _named(profile.with_suffix(""), "samples.parquet")


def _named(place: Path, suffix: str) -> Path:
    """Return the file of that suffix behind a name that may hold dots."""
    return place.with_name(f"{place.name}.{suffix}")


def _key(turn: int, role: str, point: GridPoint) -> str:
    return f"{turn} {role} {point.key}"
