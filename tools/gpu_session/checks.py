"""The stage `check`: every check once, each by itself, so that one that fails says so and stops no other."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

from profiler.latency import command
from profiler.latency.hardware import clocks_of
from profiler.latency.timers import Effort, timer_for
from profiler.models.shapes import named_shape
from profiler.passes.checks import working_kernel
from profiler.passes.memory import breaks_the_device, give_back
from specsim.errors import first_line
from tools.gpu_session import attention_checks, device_checks
from tools.gpu_session.pairs import first_arguments
from tools.gpu_session.place import Place
from tools.gpu_session.rows import Row
from tools.gpu_session.state import State

Check = Callable[[Place], Iterator[Row]]
CHECKS: dict[str, Check] = {
    "peaks": device_checks.peaks,
    "attention_errors": attention_checks.attention_errors,
    "small_kernels": device_checks.small_kernels,
    "compiles": device_checks.compiles,
    "layers": device_checks.layers,
    "spin": device_checks.spin,
    "clocks": device_checks.clocks,
    "attention_seconds": attention_checks.attention_seconds,
}


def check(state: State, deadline: float) -> int:
    """Run the checks that have not ended; return 0, or 3 if time ran out before the last."""
    ended = state.journal.ended()
    left = [name for name in CHECKS if name not in ended]
    if not left:
        return 0
    place = place_of(state)
    for name in left:
        if time.monotonic() > deadline:
            return command.TIME_IS_UP
        if not _ended(state, name, place, deadline):
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
    state.journal.begin(name)
    try:
        for row in CHECKS[name](place):
            state.tell(row)
            if time.monotonic() > deadline:
                return False
    except Exception as error:  # Kernels and drivers may raise anything; the next check may work.
        state.tell(Row(name, "", "failed", note=f"{type(error).__name__}: {first_line(error)}"))
        if breaks_the_device(error):
            state.journal.end(name)
            raise
    state.journal.end(name)
    give_back(place.device)
    return True
