"""The analysis of a recording: numbers, tables, and the files that a run reads."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np

from profiler.acceptance.curves import (
    FEWEST_TOKENS,
    ComparedCurve,
    OnPath,
    by_confidence,
    calibration_error,
    clustered_error,
    compare,
    on_path,
    request_rates,
    rounds,
    run_before,
    settling,
)
from profiler.acceptance.trace_file import RecordedTrace
from profiler.text import table, write, yaml_text
from specsim.acceptance.curves import Acceptance, Curve, level_means
from specsim.core.request import Bools, Floats

SUCCESSIVE = (1, 2, 4, 8)
ROUND = 5
"""The length of the chains whose rounds are counted, one that developers report."""
MARKS = np.array([10, 20, 50, 100])
TRACE_NAMES = {"coding": "code", "chat": "chat", "summarization": "summarisation"}
"""Categories of the shipped traces, and their names in prompt files."""
DEFAULTS = ("chat", "code")
CATEGORY_HEAD = (
    *("category", "texts", "tokens", "top-1 agreement", "without a proposal", "agreement where proposed", "in top 3"),
    *("confidence", "calibration error", "mean run that ends", "requests' sd", "sd beyond chance"),
)
CATEGORY_NUMBERS = (
    *("agreement_within_3", "mean_confidence", "calibration_error", "mean_run"),
    *("requests_sd", "requests_sd_beyond_luck"),
)
"""Keys of the last columns."""


def summary(acceptance_trace: RecordedTrace, category: str) -> dict[str, Any]:
    """Return a category's numbers; ``error`` is a standard error over texts, NaN for a single text.

    Shares right are of all positions, and a position without a proposal is a miss; ``agreement_where_proposed`` is of
    positions with a proposal. Confidences and their calibration are of proposals.
    """
    rows = on_path(acceptance_trace, category)
    rates, made, settled = request_rates(rows), rows.proposed, settling(rows, MARKS)
    sure, kept = rows.confidence[made], rows.right[made]
    run = run_before(rows)
    ended = run[~rows.right]
    off_sure = acceptance_trace.confidence[acceptance_trace.rows_of(category, on_path=False), 0]
    overlap = acceptance_trace.overlap[rows.row]
    return {
        "texts": int(rows.text.max()) + 1,
        "tokens": len(rows.row),
        "top1_agreement": float(rows.right.mean()),
        "error": clustered_error(rows.right.astype(np.int64), rows.text),
        "positions_without_proposal": int((~made).sum()),
        "agreement_where_proposed": _mean(kept),
        "error_where_proposed": clustered_error(kept.astype(np.int64), rows.text[made]) if made.any() else None,
        "agreement_within_3": float((acceptance_trace.rank[rows.row] < 3).mean()),
        "mean_confidence": _mean(sure),
        "calibration_error": calibration_error(by_confidence(sure, kept)) if made.any() else None,
        "confidence_off_path": _mean(off_sure[off_sure > 0]),
        "rows_off_path": len(off_sure),
        "overlap": None if np.isnan(overlap).all() else float(np.nanmean(overlap)),
        "agreement_by_depth": {str(d): _mean(rows.right[run >= d - 1]) for d in SUCCESSIVE},
        "mean_run": _mean(ended),
        "runs_of_8_or_more": _mean(ended >= 8),
        f"rounds_of_{ROUND}": rounds(rows, ROUND)._asdict(),
        "requests_sd": float(np.std(rates, ddof=1)) if len(rates) > 1 else None,
        "requests_sd_beyond_luck": float(np.sqrt(between_texts(rows))) if len(rates) > 2 else None,
        "settling": dict(zip(map(str, MARKS), settled.distance.tolist(), strict=True)),
        "settling_of": f"{settled.texts} texts of {settled.least} tokens or more",
    }


def analyse(acceptance_trace: RecordedTrace, out: Path) -> dict[str, Any]:
    """Write the analysis beside the recording and return its numbers.

    ``NAME.yaml`` reads the recording, ``NAME_curves.yaml`` the fitted curves, ``NAME/`` holds summary.json,
    summary.md and the figures.

    Raises
    ------
    SpecsimError
        When a file cannot be written.
    """
    from profiler.acceptance.figures import save_figures

    folder = out.with_suffix("")
    curves = fit_curves(acceptance_trace)
    long_enough = [
        name
        for name in acceptance_trace.categories
        if (acceptance_trace.position[on_path(acceptance_trace, name).row] >= 7).any()
    ]
    compared = {name: compare(acceptance_trace, curves, name) for name in long_enough}
    told = {
        "about": dict(acceptance_trace.about),
        "categories": {name: summary(acceptance_trace, name) for name in acceptance_trace.categories},
        "drawn_against_recorded": {name: [each._asdict() for each in rows] for name, rows in compared.items()},
    }
    write(folder / "summary.json", json.dumps(_plain(told), indent=1, allow_nan=False) + "\n")
    write(folder / "summary.md", markdown(told))
    write(out.with_suffix(".yaml"), recorded_yaml(acceptance_trace, out.name))
    write(out.with_name(f"{out.stem}_curves.yaml"), curves_yaml(acceptance_trace, curves, compared))
    save_figures(acceptance_trace, compared, folder)
    return told


def recorded_yaml(acceptance_trace: RecordedTrace, name: str) -> str:
    """Return the acceptance file with which a run reads the recording."""
    about = acceptance_trace.about
    tokens = {each: len(on_path(acceptance_trace, each).row) for each in acceptance_trace.categories}
    sizes = ", ".join(f"{each} {count}" for each, count in tokens.items())
    return yaml_text(
        {
            "description": f"{_pair(about)}: recorded, {sum(tokens.values())} tokens",
            "pair": pair_of(about),
            "kind": "recorded",
            "path": name,
            "categories": mapped(acceptance_trace.categories),
        },
        f"Recorded {about['date']} on {about['hardware']}, temperature {about['temperature']}; tokens: {sizes}.",
    )


def curves_yaml(
    acceptance_trace: RecordedTrace, curves: Acceptance, compared: Mapping[str, Sequence[ComparedCurve]]
) -> str:
    """Return the acceptance file of the fitted curves, with ``default`` and the categories of traces.

    Its head says how far accepted lengths drawn from the curves are from the recorded ones at worst.
    """
    fitted = {
        name: {each.name: value for each in fields(c) if (value := getattr(c, each.name)) != each.default}
        for name, c in curves.curves.items()
    }
    named = {name: fitted[category] for name, category in mapped(acceptance_trace.categories).items()}
    about = acceptance_trace.about
    heading = f"Fitted to what was recorded {about['date']} on {about['hardware']}, temperature {about['temperature']}."
    if every := [(each, name) for name, rows in compared.items() for each in rows]:
        worst, name = max(every, key=lambda row: row[0].total_variation)
        heading += (
            f"\n# Accepted lengths drawn from the curves differ most for {worst.depth} x {worst.width} trees of {name}:"
            f" total variation {worst.total_variation:.2f}, mean {worst.mean_drawn:.2f} against {worst.mean:.2f} "
            "recorded."
        )
    return yaml_text(
        {
            "description": f"{_pair(about)}: curves fitted to its recording",
            "pair": pair_of(about),
            "kind": "curves",
            "width": curves.width,
            "levels": curves.levels,
            "categories": named,
        },
        heading,
    )


def mapped(categories: Sequence[str]) -> dict[str, str]:
    """Return the recorded category for each name: its own, the name in traces, and ``default``."""
    names = {trace: recorded for trace, recorded in TRACE_NAMES.items() if recorded in categories}
    names |= {name: name for name in categories}
    default = next((name for name in DEFAULTS if name in categories), categories[0])
    return names | {"default": default}


def pair_of(about: Mapping[str, Any]) -> dict[str, str]:
    """Return target and draft by the names that a run uses, also for a lookup and skipped layers."""
    skipped = len(about.get("settings", {}).get("skip_layers", []))
    drafts = {"skip": f"{about['target']} less {skipped} layers", "lookup": "prompt lookup"}
    return {"target": about["target"], "draft": drafts.get(about["drafter"], about["draft"])}


def _pair(about: Mapping[str, Any]) -> str:
    layers = ", ".join(map(str, about.get("settings", {}).get("skip_layers", [])))
    drafter = {"skip": f"itself without layers {layers}", "lookup": "prompt lookup"}.get(
        about["drafter"], about["draft"]
    )
    sampled = f", temperature {about['temperature']}" if about["temperature"] else ", greedy"
    return f"{about['target']} drafted by {drafter}{sampled}"


def markdown(told: Mapping[str, Any]) -> str:
    """Return the tables of a recording."""
    categories = told["categories"]
    rounds_head = ("category", "accepted in a round", "rounds that accept none")
    every_round = ((name, *map(_number, each[f"rounds_of_{ROUND}"].values())) for name, each in categories.items())
    lengths_head = ("category", "depth x width", "recorded", "drawn", "total variation")
    lengths = (
        (
            name,
            f"{row['depth']} x {row['width']}",
            f"{_number(row['mean'])} +- {_number(row['error'])}",
            _number(row["mean_drawn"]),
            _number(row["total_variation"]),
        )
        for name, rows in told["drawn_against_recorded"].items()
        for row in sorted(rows, key=lambda row: -row["total_variation"])
    )
    numbers = (
        (
            name,
            each["texts"],
            each["tokens"],
            f"{_number(each['top1_agreement'])} +- {_number(each['error'])}",
            each["positions_without_proposal"],
            f"{_number(each['agreement_where_proposed'])} +- {_number(each['error_where_proposed'])}",
            *(_number(each[key]) for key in CATEGORY_NUMBERS),
        )
        for name, each in categories.items()
    )
    parts = [
        table(CATEGORY_HEAD, numbers),
        f"Rounds of chains of {ROUND}, one behind the other's bonus token:",
        table(rounds_head, every_round),
        "Accepted tokens, recorded (+- standard error) against drawn from the curves; total variation:",
        table(lengths_head, lengths),
    ]
    return "\n\n".join(parts) + "\n"


def _mean(values: Any) -> float | None:
    return float(np.mean(values)) if len(values) else None


def _number(value: float | None) -> str:
    return "-" if value is None or np.isnan(value) else f"{value:.3f}"


def _plain(value: Any) -> Any:
    """Return a value in JSON's types; NaN and infinity become null."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, float):
        return round(value, 6) if np.isfinite(value) else None
    return value


LEVELS = 16
LAGS = np.arange(1, 65)
ERRORS = 3
"""Standard errors by which the variance between stretches must exceed 0."""
STRETCH_TOKENS = (2, 4, 8, 16, 32, 64, 128, 256)
LEAST, MOST = 1e-3, 1 - 1e-3
NEXT_RANKS = 2
"""The tail is fitted to so many ranks after the first: those of the widest beams compared."""


def fit_curves(acceptance_trace: RecordedTrace) -> Acceptance:
    """Return the curves of every recorded category."""
    curves = {name: fit_curve(acceptance_trace, name) for name in acceptance_trace.categories}
    return Acceptance(curves, acceptance_trace.width, LEVELS)


def fit_curve(acceptance_trace: RecordedTrace, category: str) -> Curve:
    """Return one category's curve by the method of moments.

    - ``agreement`` is the share right.
    - ``spread`` gives the variance between texts: the covariance of their halves, which chance within a text does not
      raise.
    - ``stretch_tokens`` and ``stretch_spread`` give the covariance of positions of a text the fall with their distance
      that the recording has, near ones above all.
    - ``concentration`` gives calibrated confidences their remaining variance. Calibrated ones are the recorded ones
      through the best rising curve of acceptance.
    - ``tail`` gives the next ranks their share of the misses.
    """
    rows = on_path(acceptance_trace, category)
    agreement = float(np.clip(rows.right.mean(), LEAST, MOST))
    most = 0.9 * agreement * (1 - agreement)
    between = min(between_texts(rows), most)
    stretch_tokens, along = stretches_of(rows, between)
    along = min(along, most - between)
    spread = spread_of(agreement, between)
    inner = agreement * (1 - agreement) - between - along
    within = max(calibrated_variance(rows.confidence, rows.right) - between - along, 1e-6)
    concentration = float(np.clip(inner / within - 1, 0.01, 1e6))
    tail = tail_of(acceptance_trace, rows, agreement, concentration, spread)
    stretch_spread = spread_of(agreement, along, spread)
    return Curve(agreement, concentration, spread, tail, stretch_tokens if stretch_spread else 0, stretch_spread)


def calibrated(confidence: Floats, right: Bools) -> Floats:
    """Return the rising function of confidence that fits acceptance best (isotonic regression), (n,)."""
    from scipy.optimize import isotonic_regression

    which = np.unique(confidence, return_inverse=True)[1]
    rows = np.bincount(which)
    share = np.bincount(which, weights=right) / rows
    risen: Floats = isotonic_regression(share, weights=rows.astype(np.float64)).x
    return risen[which]


def calibrated_variance(confidence: Floats, right: Bools) -> float:
    """Return the variance of calibrated confidences, less what chance adds to it.

    A rising curve has as many degrees of freedom as levels (Meyer & Woodroofe 2000).
    """
    sure = calibrated(confidence, right)
    chance = (len(np.unique(sure)) - 1) / len(sure) * np.mean(sure * (1 - sure))
    return float(np.var(sure) - chance)


def between_texts(rows: OnPath) -> float:
    """Return the variance between texts of the share right: the covariance of their halves, at least 0.

    A text counts by its tokens, as in the covariance of two positions that `stretches_of` takes it from.
    """
    tokens = np.bincount(rows.text)
    half = 2 * rows.text + (rows.position >= tokens[rows.text] // 2)
    shares = (np.bincount(half, weights=rows.right) / np.maximum(np.bincount(half), 1)).reshape(-1, 2)
    long = tokens >= FEWEST_TOKENS
    if long.sum() < 3:
        return 0.0
    return max(float(np.cov(shares[long].T, aweights=tokens[long])[0, 1]), 0.0)


def stretches_of(rows: OnPath, between: float) -> tuple[int, float]:
    """Return the positions of a stretch and the variance between a text's stretches.

    With stretches of L positions that begin anywhere, the covariance of two positions of a text is the variance
    `between` texts, and that between stretches times 1 - distance / L, down to 0. Both are 0 where chance may be all.
    """
    right = rows.right - rows.right.mean()
    apart = [(right[lag:] * right[:-lag])[rows.text[lag:] == rows.text[:-lag]] for lag in LAGS[len(right) > LAGS]]
    pairs = np.array([len(each) for each in apart])
    lags, pairs = LAGS[: len(apart)][pairs > 0], pairs[pairs > 0]
    covariance = np.array([each.mean() for each in apart if len(each)]) - between
    error = right.var() / np.sqrt(pairs)
    weight = 1 / lags
    best = (np.inf, 0, 0.0)
    for tokens in STRETCH_TOKENS:
        shared = np.maximum(1 - lags / tokens, 0.0)
        of_each = weight * shared / ((weight * shared) @ shared)
        variance = float(of_each @ covariance)
        if variance > ERRORS * np.linalg.norm(of_each * error):
            loss = float(weight @ (covariance - variance * shared) ** 2)
            best = min(best, (loss, tokens, variance))
    return best[1:]


def spread_of(agreement: float, variance: float, around: float = 0.0) -> float:
    """Return the standard deviation in logits with which levels of mean `agreement` have this variance.

    With a spread `around`, the levels are those within each of as many levels with that spread, and the variance is
    the mean one.
    """
    from scipy.optimize import brentq

    if variance < 1e-6:
        return 0.0
    means = level_means(agreement, around, LEVELS)

    def surplus(spread: float) -> float:
        return float(np.mean([np.var(level_means(mean, spread, LEVELS)) for mean in means])) - variance

    return float(brentq(surplus, 0.0, 19.0)) if surplus(19.0) > 0 else 19.0


def tail_of(
    acceptance_trace: RecordedTrace, rows: OnPath, agreement: float, concentration: float, spread: float
) -> float:
    """Return the tail with which drawn misses are on the next ranks as often as recorded ones."""
    from scipy.optimize import brentq

    ranks = min(NEXT_RANKS, acceptance_trace.width - 1)
    missed = acceptance_trace.rank[rows.row][~rows.right]
    if not ranks or not len(missed):
        return 0.5
    wanted = float((missed <= ranks).mean())

    def surplus(tail: float) -> float:
        curve = Curve(agreement, concentration, spread, tail)
        drawn = Acceptance({"x": curve}, 1 + ranks, 4).acceptance_trace(["x"], np.zeros(1, np.int64), np.arange(1), 0)
        wrong = drawn.rank[drawn.rank > 0]
        return float((wrong <= ranks).mean()) - wanted

    low, high = surplus(LEAST), surplus(MOST)
    if low * high >= 0:
        return LEAST if low > 0 else MOST
    return float(brentq(surplus, LEAST, MOST, xtol=1e-3))
