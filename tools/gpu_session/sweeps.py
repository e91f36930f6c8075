"""The stages `sweep` and `rest`: the first pair, how far its device has drifted since, and the other pairs."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from profiler.latency import command
from profiler.latency.profile_file import Places
from profiler.latency.samples import read_samples
from specsim.errors import SpecsimError, say
from tools.gpu_session.pairs import QUICK, arguments_of
from tools.gpu_session.state import FAILED, Row, State

TO_BEGIN_S = 30.0
"""The least seconds left to begin another pair: drawing its weights and checking its kernel take about as long."""
POINTS = 20


def sweep(state: State, deadline: float) -> int:
    """Profile the first pair; return 3 if time ran out, 4 if the fit is not fit for use."""
    return _profiled(state, next(iter(state.pairs)), deadline)


def rest(state: State, deadline: float) -> int:
    """Measure points of the first pair once more, then profile the others; return 3 if time ran out."""
    first, *others = state.pairs
    if _again(state, first, deadline):
        return command.TIME_IS_UP
    codes = [0]
    for pair in others:
        if time.monotonic() > deadline - TO_BEGIN_S:
            say(f"time is up before {pair}")
            return command.TIME_IS_UP
        try:
            code = _profiled(state, pair, deadline)
        except SpecsimError as error:
            say(f"specsim: {pair}: {error}", error=True)
            codes.append(FAILED)
            continue
        codes.append(code)
        if code == command.TIME_IS_UP:
            return code
    return FAILED if FAILED in codes else max(codes)


def _profiled(state: State, pair: str, deadline: float) -> int:
    name = f"{pair}{QUICK}" if state.quick else pair
    out = state.folder / f"{name}.yaml"
    arguments = _arguments(state, pair, deadline)
    arguments.out, arguments.samples, arguments.figures = out, state.samples(name), state.folder
    return command.run(arguments)


def _again(state: State, pair: str, deadline: float) -> int:
    """Measure the first points again; return how many there was no time for."""
    name = f"{pair}{QUICK}" if state.quick else pair
    before, again = state.samples(name), state.samples(name, again=True)
    if not before.exists():
        say(f"{name}: not swept, so nothing is measured again")
        return 0
    known = state.ended()
    if "drift" in known:
        return 0
    places = Places(state.folder / f"{name}.again.yaml", again, state.folder)
    left = command.measure(_arguments(state, pair, deadline), places, POINTS)
    if left == 0:
        for row in drift(before, again):
            state.tell(row)
        state.end("drift")
    return left


def _arguments(state: State, pair: str, deadline: float) -> argparse.Namespace:
    words = [*state.pairs[pair], *(["--quick"] if state.quick else [])]
    minutes = max(deadline - time.monotonic(), 0.0) / 60
    return arguments_of(pair, [*words, "--minutes", str(minutes), "--out", str(state.folder / f"{pair}.yaml")])


def drift(before: Path, again: Path) -> Iterator[Row]:
    """Yield the ratio of the second time to the first: its median, and the one farthest from 1."""
    first = {each.name: each.median_s for each in read_samples(before)[1] if each.status == "ok"}
    second = {each.name: each.median_s for each in read_samples(again)[1] if each.status == "ok"}
    ratios = {name: second[name] / first[name] for name in second if name in first}
    if not ratios:
        yield Row("drift", before.stem, "ratio", note="no point was measured twice")
        return
    worst = max(ratios, key=lambda name: abs(ratios[name] - 1))
    case = f"{before.name.partition('.')[0]}, {len(ratios)} points"
    yield Row("drift", case, "median ratio", float(np.median(list(ratios.values()))))
    yield Row("drift", case, "farthest ratio", ratios[worst], note=f"{worst[0]} {worst[1]}")
