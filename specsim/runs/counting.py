"""Which requests of a run its metrics count, and who sends them: the trace at its times, or clients that wait."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from specsim.config.schema import written
from specsim.errors import SpecsimError
from specsim.results.window import Window, counts


def counted(
    warmup: float | str | None, window: Window | None, arrival_s: npt.NDArray[np.float64]
) -> tuple[Window | None, str | None]:
    """Return the seconds of arrival [a, b] that the metrics count, None for all, and a note about a warm-up.

    Parameters
    ----------
    warmup : seconds, or a share of the arrivals' span such as "10%". window : ``metrics.window``.
    arrival_s : (N,), rising.

    Raises
    ------
    SpecsimError
        One line when both are given, or nothing is left to count.
    """
    if warmup is None:
        if window is not None and not counts(window, arrival_s).any():
            last = f"{arrival_s[-1]:g}"
            raise SpecsimError(
                f"metrics.window: no request arrives in {list(window)}; the last one arrives at {last} s"
            )
        return window, None
    if window is not None:
        raise SpecsimError(f"warmup: {written(warmup)} and metrics.window are both given; expected one of them")
    last_s = float(arrival_s[-1])
    warmup_s = float(warmup.removesuffix("%")) / 100 * last_s if isinstance(warmup, str) else warmup
    left_out = int((arrival_s < warmup_s).sum())
    if left_out == 0:
        raise SpecsimError(f"warmup: {written(warmup)} of arrivals that span {last_s:g} s leaves nothing out")
    if left_out == len(arrival_s):
        raise SpecsimError(f"warmup: {warmup_s:g} s leaves no request to count; the last one arrives at {last_s:g} s")
    note = f"warmup: {left_out} of {len(arrival_s)} requests arrive in the first {warmup_s:.6g} s and are not counted"
    return (warmup_s, last_s), note


def closed_loop(clients: int | None, requests: int, rivals: Mapping[str, object]) -> str | None:
    """Return a note about so many clients that wait for their answers; None where requests arrive by themselves.

    `rivals` are by key the settings that need arrivals which are known before the run.

    Raises
    ------
    SpecsimError
        One line when there are more clients than requests, or a rival is given.
    """
    if clients is None:
        return None
    if clients > requests:
        raise SpecsimError(f"concurrency: {clients} is not a whole number between 1 and {requests}, the requests")
    for name, value in rivals.items():
        if value is not None:
            said = f"{name}: {written(value)} and concurrency={clients}: clients send as they are answered"
            raise SpecsimError(f"{said}; expected one of them")
    return f"concurrency={clients}: requests are sent as answers come; the trace's arrivals are not used"
