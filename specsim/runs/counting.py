"""Which requests of a run its metrics count, and who sends them: the trace at its times, or clients that wait."""

from __future__ import annotations

import re

import numpy as np
import numpy.typing as npt

from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, is_number, shown
from specsim.results.window import Window, counts

PERCENT = re.compile(r"(\d{1,2}(?:\.\d+)?)%", re.ASCII)


def counted(node: CheckedMapping, arrival_s: npt.NDArray[np.float64]) -> tuple[Window | None, str | None]:
    """Return the seconds of arrival [a, b] that the metrics count, None for all, and a note about a warm-up.

    Parameters
    ----------
    node : a configuration with the keys ``warmup`` and ``metrics.window``. arrival_s : (N,), rising.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, both are given, or nothing is left to count.
    """
    metrics = node.child("metrics")
    if not node.given("warmup"):
        window = metrics.span("window", "[a, b], finite seconds a < b") if metrics.given("window") else None
        if window is not None and not counts(window, arrival_s).any():
            last = f"{arrival_s[-1]:g}"
            raise SpecsimError(
                f"metrics.window: no request arrives in {list(window)}; the last one arrives at {last} s"
            )
        return window, None
    if metrics.given("window"):
        node.refuse("warmup", f"{shown(node.values['warmup'])} and metrics.window are both given; expected one of them")
    last_s = float(arrival_s[-1])
    warmup_s = _warmup_s(node, last_s)
    left_out = int((arrival_s < warmup_s).sum())
    if left_out == 0:
        node.refuse("warmup", f"{shown(node.values['warmup'])} of arrivals that span {last_s:g} s leaves nothing out")
    if left_out == len(arrival_s):
        node.refuse("warmup", f"{warmup_s:g} s leaves no request to count; the last one arrives at {last_s:g} s")
    note = f"warmup: {left_out} of {len(arrival_s)} requests arrive in the first {warmup_s:.6g} s and are not counted"
    return (warmup_s, last_s), note


def concurrency(node: CheckedMapping, requests: int) -> tuple[int | None, str | None]:
    """Return how many clients wait for their answers, None where requests arrive by themselves, and a note about them.

    Raises
    ------
    SpecsimError
        One line when a value is wrong, or a setting needs arrivals that are known before the run.
    """
    if not node.given("concurrency"):
        return None, None
    clients = node.whole("concurrency", 1, requests)
    for name, of in (("rps", node), ("warmup", node), ("window", node.child("metrics"))):
        if of.given(name):
            said = f"{shown(of.values[name])} and concurrency={clients}: clients send as they are answered"
            of.refuse(name, f"{said}; expected one of them")
    return clients, f"concurrency={clients}: requests are sent as answers come; the trace's arrivals are not used"


def _warmup_s(node: CheckedMapping, last_s: float) -> float:
    value = node.values["warmup"]
    if is_number(value) and value > 0:
        return float(value)
    share = PERCENT.fullmatch(value) if isinstance(value, str) else None
    if share is None or float(share[1]) == 0:
        node.fail("warmup", "seconds above 0, or a share of the arrivals' span such as 10%")
    return float(share[1]) / 100 * last_s
