"""Checks of the device and of the way passes are timed on it."""

from __future__ import annotations

import time
from collections.abc import Iterator

import numpy as np
import torch

from profiler.latency.hardware import ceilings
from profiler.latency.timers import CudaTimer
from profiler.passes.packing import Work
from profiler.passes.paths import PASSES
from specsim.errors import SpecsimError, first_line
from tools.gpu_session.place import Place
from tools.gpu_session.rows import Row

IN_A_ROW = 20
SPIN_FACTOR = 10
SPIN_MATTERS = 0.02
HELD_S, HELD_LAYERS = 2.0, 8
GAP_S = 0.05


def works(place: Place) -> dict[str, Work]:
    """Return three passes of the pair: a decode, a verification, a prompt's chunk."""
    n, chunk = (64, 2048) if place.on_gpu else (2, 16)
    parents = [-1, -1, 0, 0, 1, 3, 4]
    rows = np.repeat(np.arange(n), len(parents))
    return {
        "decode": Work.of([128], [1]),
        "verify": Work.of(
            [128] * n, [1] * n, rows, [p + len(parents) * r if p >= 0 else p for r in range(n) for p in parents]
        ),
        "prefill": Work.of([0], [chunk]),
    }


@torch.inference_mode()
def small_kernels(place: Place) -> Iterator[Row]:
    """Yield the microseconds of a small kernel in a row of them: what a pass of many kernels cannot go below."""
    rows, hidden = 8, place.shape.hidden
    a, b = (torch.randn(rows, hidden, device=place.device, dtype=place.dtype) for _ in range(2))
    weight = torch.randn(hidden, hidden, device=place.device, dtype=place.dtype)
    pool = torch.zeros(64, hidden, device=place.device, dtype=place.dtype)
    at = torch.arange(rows, device=place.device)
    kernels = {
        "add": lambda: a.add_(b, alpha=1e-3),
        "silu": lambda: torch.nn.functional.silu(a),
        "rms_norm": lambda: torch.nn.functional.rms_norm(a, (hidden,)),
        "index_copy": lambda: pool.index_copy_(0, at, a),
        "matmul": lambda: a @ weight,
    }
    for name, kernel in kernels.items():
        seconds = place.timed(lambda kernel=kernel: [kernel() for _ in range(IN_A_ROW)]).median_s
        yield Row("small_kernels", f"{name}, {rows} x {hidden}", "time", 1e6 * seconds / IN_A_ROW, "us")


def layers(place: Place) -> Iterator[Row]:
    """Yield the microseconds of one layer by path, from models of one and of three layers."""
    for passes in PASSES:
        for case, work in works(place).items():
            try:
                few, many = (_pass_s(place, passes, count, work) for count in (1, 3))
            except SpecsimError as problem:
                yield Row("layers", passes, "time", note=first_line(problem))
                break
            yield Row("layers", f"{passes}, {case}", "time", 1e6 * (many - few) / 2, "us")


def _pass_s(place: Place, passes: str, count: int, work: Work) -> float:
    forward = place.forward(passes, count, [work])
    inputs = place.inputs(forward, work)
    return place.timed(lambda: forward.run(inputs)).median_s


def spin(place: Place) -> Iterator[Row]:
    """Yield how much longer a replay takes behind a spin ten times as long, flagged from 2% on."""
    if not place.on_gpu:
        yield Row("spin", "all", "ratio", note="no graphs on this device")
        return
    every = works(place)
    forward = place.forward(place_passes(place), place.shape.layers, list(every.values()))
    for case, work in every.items():
        inputs = place.inputs(forward, work)
        one, ten = (
            place.timed(lambda inputs=inputs: forward.run(inputs), timer=CudaTimer(spin=factor)).median_s
            for factor in (1, SPIN_FACTOR)
        )
        flagged = "FLAGGED: the launch shows" if abs(ten / one - 1) > SPIN_MATTERS else ""
        yield Row("spin", case, f"ratio at {SPIN_FACTOR} times the spin", ten / one, note=flagged)


def place_passes(place: Place) -> str:
    """Return the path that a sweep takes on the device by default."""
    from profiler.passes.paths import working_passes

    return working_passes(None, (), place.device)


def compiles(place: Place) -> Iterator[Row]:
    """Yield the seconds of the first run of each of three passes, most of which is compiling."""
    every = works(place)
    forward = place.forward(place_passes(place), 1, list(every.values()))
    for case, work in every.items():
        started = time.perf_counter()
        forward.run(place.inputs(forward, work))
        if place.device.type == "cuda":
            torch.cuda.synchronize()
        yield Row("compiles", case, "first run", time.perf_counter() - started, "s")


def peaks(place: Place) -> Iterator[Row]:
    """Yield the two ceilings."""
    found = ceilings(place.timer, device=place.device, dtype=place.dtype)
    yield Row("peaks", "matrix product", "rate", found.flops_per_s / 1e12, "TFLOP/s")
    yield Row("peaks", "copy", "rate", found.bytes_per_s / 1e9, "GB/s")


def clocks(place: Place) -> Iterator[Row]:
    """Yield seconds and clocks of one prompt's chunk held for two seconds, and in bursts with pauses between."""
    work = works(place)["prefill"]
    forward = place.forward(place_passes(place), HELD_LAYERS if place.on_gpu else 1, [work])
    inputs = place.inputs(forward, work)
    held_s = HELD_S if place.on_gpu else HELD_S / 20
    for case, gap_s in (("held", 0.0), ("bursts", GAP_S)):
        seconds, until = [], time.perf_counter() + held_s
        with place.clocks.watch() as seen:
            while time.perf_counter() < until:
                seconds.append(place.timer.host(lambda: forward.run(inputs), runs=1))
                time.sleep(gap_s)
        yield Row("clocks", case, "pass", 1e3 * float(np.median(seconds)), "ms")
        for name, mhz in zip(("multiprocessors", "memory"), seen.median(), strict=True):
            known = not np.isnan(mhz)
            yield Row("clocks", case, name, mhz if known else None, "MHz" if known else "", "" if known else "not read")
