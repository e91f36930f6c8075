"""The stage `check`: every check once, each by itself, so that a failed check says so and stops no other.

Checks are of the device, of the way passes are timed on it, and of the attention kernels that are installed: their
errors against float64, and their seconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

import numpy as np
import torch

from profiler.attention.packing import Work, pack
from profiler.attention.pages import CacheShape, breaks_the_device, deal, give_back, pages_needed
from profiler.attention.planning import KERNELS, page_tokens, planner
from profiler.latency import command
from profiler.latency.hardware import ceilings, clocks_of
from profiler.latency.points import GridPoint
from profiler.latency.timers import CudaTimer, Effort, timer_for
from profiler.models.shapes import named_shape
from profiler.passes.checks import TOLERANCE, work_error, working_kernel
from profiler.passes.forward import Inputs
from profiler.passes.paths import PASSES, working_passes
from specsim.errors import SpecsimError, first_line
from tools.gpu_session.experts import experts
from tools.gpu_session.pairs import first_arguments
from tools.gpu_session.place import Place
from tools.gpu_session.state import Row, State

Check = Callable[[Place], Iterator[Row]]
IN_A_ROW = 20
SPIN_FACTOR = 10
SPIN_MATTERS = 0.02
HELD_S, HELD_LAYERS = 2.0, 8
GAP_S = 0.05
TREES = (3, 8, 16, 32, 64)
HEAD_VOCABULARY = 32_000
FLUSHED_BYTES = 2**28
REFERENCES = ("split", "sdpa")
QUICK_TO_BEGIN = tuple(kernel for kernel in KERNELS if kernel not in ("auto", "flex"))
"""Kernels that do not compile anew for each size of pass."""
# Of a 32-head layer: passes as a server runs them. Those that verify are trees; the last two are chains of their sizes.
ON_GPU = (
    GridPoint("decode", 1, 4096, 1),
    GridPoint("decode", 64, 1024, 1),
    GridPoint("decode", 256, 1024, 1),
    GridPoint("prefill", 1, 2048, 2048),
    GridPoint("verify", 1, 4096, 64),
    GridPoint("verify", 8, 1024, 64),
    GridPoint("verify", 64, 1024, 8),
    GridPoint("verify", 128, 1024, 16),
    GridPoint("prefill", 64, 1024, 8),
    GridPoint("prefill", 128, 1024, 16),
)
ON_CPU = (
    GridPoint("decode", 1, 64, 1),
    GridPoint("decode", 4, 32, 1),
    GridPoint("decode", 8, 16, 1),
    GridPoint("prefill", 1, 16, 32),
    GridPoint("verify", 1, 64, 16),
    GridPoint("verify", 2, 32, 16),
    GridPoint("verify", 4, 32, 4),
    GridPoint("verify", 8, 16, 4),
)


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
        flagged = "FLAGGED: the launch shows, or another clock" if abs(ten / one - 1) > SPIN_MATTERS else ""
        yield Row("spin", case, f"ratio at {SPIN_FACTOR} times the spin", ten / one, note=flagged)


def place_passes(place: Place) -> str:
    """Return the path that a sweep takes on the device by default."""
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
    yield Row("peaks", "matrix product", "rate", found["flops_per_s"] / 1e12, "TFLOP/s")
    yield Row("peaks", "copy", "rate", found["bytes_per_s"] / 1e9, "GB/s")


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


def error_works() -> dict[str, Work]:
    """Return the passes over which kernels are compared: rows of unequal context, trees of several sizes."""
    chain = [-1, 0, 1, 2, 3, 4]
    works = {
        "decode": Work.of([70, 17, 200], [1, 1, 1]),
        "prefill": Work.of([0, 33], [40, 64]),
        "chain of 7": Work.of([70], [1], [0] * 6, chain),
    }
    for nodes in TREES:
        rng = np.random.default_rng(nodes)
        parent = [int(rng.integers(max(node - 4, -1), node)) if node else -1 for node in range(nodes - 1)]
        works[f"tree of {nodes}"] = Work.of([60, 20], [1, 1], [0] * (nodes - 1), parent)
    return works


def attention_errors(place: Place, kernels: Sequence[str] = QUICK_TO_BEGIN) -> Iterator[Row]:
    """Yield each kernel's largest relative error of a query's head, flagged where it exceeds its type's rounding."""
    shape = place.shape
    for kernel in kernels:
        for case, work in error_works().items():
            try:
                error = work_error(
                    kernel, work, shape.heads, shape.kv_heads, shape.head_dim, device=place.device, dtype=place.dtype
                )
            except Exception as problem:  # Compilers may raise anything; a kernel that is not there is a row too.
                if breaks_the_device(problem):
                    raise
                yield Row("attention_errors", kernel, "error", note=f"{case}: {first_line(problem)}")
                break
            note = "" if error <= TOLERANCE[place.dtype] else "FLAGGED: beyond rounding"
            yield Row("attention_errors", f"{kernel}, {case}", "error", error, note=note)


def attention_seconds(place: Place, kernels: Sequence[str] = QUICK_TO_BEGIN) -> Iterator[Row]:
    """Yield the microseconds of one layer's attention, by kernel and pass, trees first.

    On a GPU the references `split` and `sdpa` are not timed.
    """
    for kernel in kernels:
        if kernel in REFERENCES and place.on_gpu:
            continue
        for point in reversed(ON_GPU if place.on_gpu else ON_CPU):
            try:
                seconds = _attention_s(place, kernel, point)
            except Exception as problem:  # As above.
                if breaks_the_device(problem):
                    raise
                yield Row("attention_seconds", f"{kernel}, {point.key}", "time", note=first_line(problem))
                if isinstance(problem, SpecsimError):
                    break  # The kernel is not here.
                continue
            yield Row("attention_seconds", f"{kernel}, {point.key}", "time", 1e6 * seconds, "us")


@torch.inference_mode()
def _attention_s(place: Place, kernel: str, point: GridPoint) -> float:
    shape, work = place.shape, point.work()
    held = page_tokens(kernel, place.device)
    cache = CacheShape(1, shape.kv_heads, shape.head_dim, int(pages_needed(work, held).sum()) + 1, held)
    tables = deal(work, cache, np.random.default_rng(0))
    generator = torch.Generator(device=place.device).manual_seed(0)
    draw = {"generator": generator, "device": place.device, "dtype": place.dtype}
    keys, values = (torch.randn(cache.slots, shape.kv_heads, shape.head_dim, **draw) for _ in range(2))
    query = torch.randn(work.batched_tokens, shape.heads, shape.head_dim, **draw)
    made = planner(kernel, cache, shape.heads, device=place.device, dtype=place.dtype)
    plan = made.plan(work, pack(work), tables, work.batched_tokens)
    flushed = torch.empty(FLUSHED_BYTES if place.on_gpu else 1, device=place.device, dtype=torch.uint8)
    # Before each run, so that no cache holds the keys.
    return place.timed(lambda: plan(query, keys, values, shape.head_dim**-0.5), lambda _: flushed.zero_()).median_s


def flex(place: Place) -> Iterator[Row]:
    """Yield times and errors of FlexAttention, which compiles a kernel for each of them."""
    yield from attention_seconds(place, ("flex",))
    yield from attention_errors(place, ("flex",))


def head(place: Place) -> Iterator[Row]:
    """Yield the microseconds of an EAGLE-3 head of the target: one layer of doubled input, a product that joins three.

    It has a vocabulary of 32,000 tokens.
    """
    shape = place.shape
    qkv = (shape.heads + 2 * shape.kv_heads) * shape.head_dim
    every = {
        f"decode of {n} x 1024": Work.of([1024] * n, [1] * n)
        for n in ((1, 8, 32, 64, 128, 256) if place.on_gpu else (1,))
    }
    forward = place.forward(place_passes(place), 1, list(every.values()), HEAD_VOCABULARY)
    draw = {"device": place.device, "dtype": place.dtype}
    joined = torch.randn(3 * shape.hidden, shape.hidden, **draw)
    doubled = torch.randn(shape.hidden, qkv, **draw)
    for case, work in every.items():
        inputs = place.inputs(forward, work)
        three = torch.randn(work.batched_tokens, 3 * shape.hidden, **draw)

        def run(inputs: Inputs = inputs, three: torch.Tensor = three) -> None:
            (three @ joined) @ doubled
            forward.run(inputs)

        with torch.inference_mode():
            yield Row("head", case, "time", 1e6 * place.timed(run).median_s, "us")


def check(state: State, deadline: float) -> int:
    """Run the checks that have not ended; return 0, or 3 if time ran out before the last."""
    ended = state.ended()
    left = [name for name in CHECKS if name not in ended]
    if not left:
        return 0
    place = place_of(state)
    for name in left:
        if time.monotonic() > deadline or not _ended(state, name, place, deadline):
            return command.TIME_IS_UP
    return 0


def place_of(state: State) -> Place:
    """Return where the checks run: the device, type and target of the first pair."""
    from profiler.models.loading import default_device, torch_dtype

    asked = first_arguments(state)
    device = default_device(asked.device)
    dtype = torch_dtype(asked.dtype or ("bfloat16" if device.type == "cuda" else "float32"))
    return Place(
        device=device,
        dtype=dtype,
        timer=timer_for(device),
        clocks=clocks_of(device),
        shape=named_shape(asked.random_weights[0] if asked.random_weights else "llama-3.1-8b"),
        kernel=working_kernel(asked.attention, device=device, dtype=dtype),
        effort=Effort(20, 0.2) if device.type == "cuda" else Effort(3, 0.01),
    )


def _ended(state: State, name: str, place: Place, deadline: float) -> bool:
    """Run a check; return False if time ran out between two of its rows."""
    state.begin(name)
    try:
        for row in CHECKS[name](place):
            state.tell(row)
            if time.monotonic() > deadline:
                return False
    except Exception as error:  # Kernels and drivers may raise anything; the next check may work.
        state.tell(Row(name, "", "failed", note=f"{type(error).__name__}: {first_line(error)}"))
        if breaks_the_device(error):
            state.end(name)
            raise
    state.end(name)
    give_back(place.device)
    return True


CHECKS: dict[str, Check] = {
    "peaks": peaks,
    "attention_errors": attention_errors,
    "attention_seconds": attention_seconds,
    "compiles": compiles,
    "layers": layers,
    "head": head,
    "experts": experts,
    "spin": spin,
    "small_kernels": small_kernels,
    "clocks": clocks,
    "flex": flex,
}
"""In their order."""
