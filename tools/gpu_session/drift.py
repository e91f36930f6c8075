"""How far a device has drifted: points of a sweep measured once more."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from profiler.latency.samples import read_samples
from tools.gpu_session.rows import Row

POINTS = 20


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
