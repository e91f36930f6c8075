"""The stages `sweep` and `rest`: the first pair, its drift, and the other pairs."""

from __future__ import annotations

import argparse
import time

from profiler.latency import command
from profiler.latency.result import Places
from specsim.errors import SpecsimError, say
from tools.gpu_session.drift import POINTS, drift
from tools.gpu_session.pairs import QUICK, arguments_of
from tools.gpu_session.stage import FAILED
from tools.gpu_session.state import State

TO_BEGIN_S = 30.0
"""The least seconds left to begin another pair: drawing its weights and checking its kernel take about as long."""


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
    known = state.journal.ended()
    if "drift" in known:
        return 0
    places = Places(state.folder / f"{name}.again.yaml", again, state.folder)
    left = command.measure(_arguments(state, pair, deadline), places, POINTS)
    if left == 0:
        for row in drift(before, again):
            state.tell(row)
        state.journal.end("drift")
    return left


def _arguments(state: State, pair: str, deadline: float) -> argparse.Namespace:
    words = [*state.pairs[pair], *(["--quick"] if state.quick else [])]
    minutes = max(deadline - time.monotonic(), 0.0) / 60
    return arguments_of(pair, [*words, "--minutes", str(minutes), "--out", str(state.folder / f"{pair}.yaml")])
