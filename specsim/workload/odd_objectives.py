"""Objectives so long that their unit may be wrong, as arrivals are checked in `specsim.workload.pace`."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from specsim.workload.slo import Promise, SloMix
from specsim.workload.trace import Trace

LONG_S = {"TPOT": 1.0, "TTFT": 100.0}
"""Objectives from which on milliseconds may be meant: few wait a second for each token, or minutes for the first."""


def odd_objectives(mix: SloMix, trace: Trace) -> list[str]:
    """Return a line for each objective that may be in milliseconds: of the mix, and of the trace where it is used."""
    whose: dict[tuple[str, float], list[str]] = {}
    for name, kind, seconds in [*_of_mix(mix), *([] if mix.classes else _of_trace(trace))]:
        if seconds is not None and seconds >= LONG_S[kind]:
            whose.setdefault((kind, seconds), []).append(name)
    return [
        f"{kind} objective of {', '.join(names)}: {seconds:,.4g} s; objectives are in s: if ms are meant, expected "
        f"{seconds / 1000:g}"
        for (kind, seconds), names in whose.items()
    ]


def _of_mix(mix: SloMix) -> Iterator[tuple[str, str, float | None]]:
    promises: dict[str, Promise] = {each.name: each.promise for each in mix.classes}
    for name, promised in (promises or {"requests without their own": mix.default, **mix.of_trace}).items():
        yield name, "TPOT", promised.tpot_s
        yield name, "TTFT", promised.ttft_s


def _of_trace(trace: Trace) -> Iterator[tuple[str, str, float | None]]:
    """Yield the median objective of each column of the trace."""
    for name, kind, column in (("tpot_slo_s", "TPOT", trace.tpot_slo_s), ("ttft_slo_s", "TTFT", trace.ttft_slo_s)):
        if column is not None and not np.isnan(column).all():
            yield f"the trace ({name}, median)", kind, float(np.nanmedian(column))
