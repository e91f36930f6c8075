"""The engine file that points become: the keys of the engine that it was fitted from, its own host time, its source."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from specsim.calibration.fit import Fit, Group
from specsim.calibration.reading import MeasuredPoint
from specsim.latency.engine import LABELS, Engine

DIGITS = 4
MOST_MEDIAN = 0.25
"""The largest median of held-out TPOT errors that is fit for use."""


def rounded(engine: Engine) -> dict[str, float | int]:
    """Return the keys that a fit sets, as the file holds them."""
    drafter = {} if engine.draft_launch_s is None else {"draft_launch_s": engine.draft_launch_s}
    drafter["speculation_s"] = engine.speculation_s
    return {
        "overhead_s": float(f"{engine.overhead_s or 0.0:.{DIGITS}g}"),
        "request_s": float(f"{engine.request_s:.{DIGITS}g}"),
        "pipeline_steps": engine.pipeline_steps,
        "frontend_s": engine.frontend_s,
        **{key: float(f"{seconds:.{DIGITS}g}") for key, seconds in drafter.items()},
    }


def misfit(all_points: Group) -> str | None:
    """Return why the calibration is not fit for use, None if it is."""
    median = all_points.tpot.median
    said = f"the median held-out error of TPOT is {100 * median:.0f}%, above {100 * MOST_MEDIAN:.0f}%"
    return said if median > MOST_MEDIAN else None


def engine_keys(
    base: Mapping[str, Any], engine: Engine, description: str, source: str, wrong: str | None = None
) -> dict[str, Any]:
    """Return the keys of the file, in the order of the shipped ones.

    `base` are those of the fit's own base. `wrong` is its `misfit`.
    """
    kept = {key: value for key, value in base.items() if key not in LABELS}
    marked = {} if wrong is None else {"misfit": wrong}
    return {"description": description, "source": source} | marked | kept | rounded(engine)


def counted(points: Sequence[MeasuredPoint]) -> str:
    """Return how many loads of which kind there are."""
    at_a_rate = sum(each.load.rate > 0 for each in points)
    kinds = ((len(points) - at_a_rate, "closed"), (at_a_rate, "open"))
    return f"{' and '.join(f'{number} {kind}' for number, kind in kinds if number)} loops"


def source(
    fit: Fit,
    began: str,
    drafter: str,
    files: Sequence[Path],
    sha256: str,
    points: Sequence[MeasuredPoint],
    all_points: Group,
) -> str:
    """Return where the numbers are from, in a line without dates; the fit `began` with the engine of this name."""
    more = f" and {len(files) - 1} more files" if len(files) > 1 else ""
    errors = ", ".join(
        f"{name} {100 * each.median:.1f} / {100 * each.p90:.1f} / {100 * each.mean:+.1f}"
        for name, each in (("TPOT", all_points.tpot), ("E2E", all_points.e2e), ("TTFT", all_points.ttft))
    )
    speculating = sum(each.load.drafts > 0 for each in points)
    drafted = f", {speculating} of them with drafts of {drafter}" if speculating else ""
    return (
        f"specsim calibrate: {counted(points)} of {files[0].name}{more} (sha256 {sha256}){drafted}, "
        f"profile {fit.server.profile.name}, from engine {began}, passes of at most {fit.server.budget_tokens} tokens; "
        f"held-out error in %, median / p90 / mean: {errors}"
    )
