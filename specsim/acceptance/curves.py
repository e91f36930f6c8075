"""Acceptance from curves of confidence, the calibration of a drafter's confidence, and confidences as it reports them.

A wrong key is a SpecsimError of one line that names it and its source.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from specsim.acceptance.trace import STRETCHES, AcceptanceTrace, Evidence, Pools, Stretches, known_of, of_category
from specsim.core.request import Floats, Ints
from specsim.files.checked_mapping import CheckedMapping
from specsim.files.kept import kept
from specsim.kernels.growth import MOST_PROPOSALS
from specsim.rng import stream_keys

POOL_ROWS, RARE_POOL_ROWS = 1 << 13, 1 << 18
"""Rows of a pool, and of a pool in which acceptance or rejection is rarer than `RARE`."""
RARE, RAREST = 1e-3, 1e-4
DEEP_SHARE, LEAST_POOL_ROWS = 4, 64
"""A pool of a draft position has this share of the rows; the least of any pool."""
MOST_POSITIONS = 64
"""Draft positions with rates of their own."""
ROUNDS = 30
"""In which the verifications of the levels and their rates come to fit each other."""
LEAST_CONFIDENCE = 1e-12
"""Confidence of a drafter that is never right; with a confidence of 0 it would propose nothing."""
MOST_RATE = 0.999
"""The most to which a lower rate is scaled."""
GOLDEN, SILVER = 0.6180339887498949, 0.41421356237309515


@dataclass(frozen=True, slots=True)
class Curve:
    """How sure a drafter is in one category of text, and how often it is right.

    Attributes
    ----------
    agreement : mean probability that the target's token is the drafter's likeliest; or several, by draft position,
        given that the drafts before it are right, the last of which holds for all deeper positions.
    concentration : of the Beta distribution of top-1 confidences; 0 makes every confidence equal `agreement`.
    spread : standard deviation between requests of the mean confidence's logit.
    tail : share of the remaining probability that each next rank takes; less if the second rank would otherwise be
        likelier than the first.
    stretch_tokens : positions of an easy or hard stretch of a text; 0: positions are independent.
    stretch_spread : standard deviation between a request's stretches of their mean confidence's logit.
    chain : 0: `agreement` is the mean over requests. k: it is pooled over the verifications of chains of k tokens, as
        engines log it: a request that is hard takes more of them, and one that is easy reaches deeper positions.
    match : share of steps in which the drafter proposes anything, as a lookup that finds a match; the rates are of
        these steps.
    """

    agreement: float | tuple[float, ...]
    concentration: float
    spread: float
    tail: float
    stretch_tokens: int = 0
    stretch_spread: float = 0.0
    chain: int = 0
    match: float = 1.0

    @property
    def rates(self) -> tuple[float, ...]:
        """The agreement by draft position."""
        return self.agreement if isinstance(self.agreement, tuple) else (self.agreement,)


NEVER = Curve((0.0,), concentration=0.0, spread=0.0, tail=0.0)
"""A drafter that is never right."""


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Curves by category, proposals per position, kinds of request per category, rows of the pool of each kind.

    The `evidence` of Bernoulli numbers is ``assumed``. `notes` are lines for the user of a run, by category, `sha256`
    the checksum of the file that the curves were fitted to. `known` is the last draft position that was stated or
    counted, in every category; None: rates are not of so many positions.
    """

    curves: Mapping[str, Curve]
    width: int
    levels: int
    pool_rows: int = POOL_ROWS
    evidence: Evidence = "fitted"
    notes: Mapping[str, str] = field(default_factory=dict)
    sha256: str | None = None
    known: int | None = None

    def scaled(self, factor: float) -> Acceptance:
        """Return it with each draft position's rate, given that the drafts before are right, times a factor."""
        if factor < LEAST_CONFIDENCE:
            return replace(self, curves=dict.fromkeys(self.curves, NEVER))
        by_category = {
            name: replace(curve, agreement=tuple(min(max(MOST_RATE, rate), factor * rate) for rate in curve.rates))
            for name, curve in self.curves.items()
        }
        return replace(self, curves=by_category)

    def acceptance_trace(self, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> AcceptanceTrace:
        """Return the acceptance trace of the requests in `rows` (N,) of a trace; `slo_class` (N,) indexes `category`.

        The pools are the same for every seed. They are a lattice over (confidence, uniform number), so that their means
        are exact to about a row. The seed draws only the row of each position.
        """
        of = {name: of_category(self.curves, name) for name in sorted(set(category))}
        curves = tuple(dict.fromkeys(of.values()))
        kinds = STRETCHES if any(curve.stretch_tokens for curve in curves) else 1
        depths = max(len(curve.rates) + (curve.match < 1) for curve in curves)
        size = max(self.pool_rows // (kinds * (1 if depths == 1 else DEEP_SHARE)), LEAST_POOL_ROWS)
        confidence, rank = _joined(curves, self.width, self.levels, kinds, depths, size)
        level = (stream_keys(seed, "acceptance_level", rows) % np.uint64(self.levels)).astype(np.int64)
        which = np.array([curves.index(of[each]) for each in category])[slo_class]
        start = (which * self.levels + level) * kinds * depths * size
        keys = stream_keys(seed, "text", rows)
        if kinds == 1:
            return AcceptanceTrace(confidence, rank, Pools(start, start, size, depths), keys)
        tokens = np.array([max(curve.stretch_tokens, 1) for curve in curves], dtype=np.uint64)[which]
        stretches = Stretches(start, size, tokens, keys, stream_keys(seed, "stretches", rows), depths)
        return AcceptanceTrace(confidence, rank, stretches, keys)


def bernoulli(node: CheckedMapping) -> Acceptance:
    """Return the Bernoulli acceptance of the checked keys `alpha` and `width`."""
    node.only(("kind", "width", "alpha"), ("description", "pair"))
    width = node.whole("width", 1, MOST_PROPOSALS)
    alpha = node.number("alpha", most=1)
    if 0 < alpha < RAREST or 1 - RAREST < alpha < 1:
        node.fail(
            "alpha",
            f"0, 1, or a number between {RAREST:g} and {1 - RAREST:g}: no acceptance trace is long enough for it",
        )
    rows = RARE_POOL_ROWS if 0 < alpha < RARE or 1 - RARE < alpha < 1 else POOL_ROWS
    return Acceptance({"default": Curve(alpha, 0.0, 0.0, alpha)}, width, 1, rows, "assumed")


def curves(node: CheckedMapping) -> Acceptance:
    """Return the curves of the checked keys `width`, `levels` and `categories`."""
    node.only(("kind", "width", "levels", "categories"), ("description", "pair"))
    width = node.whole("width", 1, MOST_PROPOSALS)
    bodies = node.children("categories", "at least one category by name", "agreement, concentration, spread and tail")
    return Acceptance({name: _curve(body) for name, body in bodies.items()}, width, node.whole("levels", 1, 256))


@lru_cache(maxsize=4)
def _joined(
    curves: tuple[Curve, ...], width: int, levels: int, kinds: int, depths: int, size: int
) -> tuple[Floats, Ints]:
    """Return the pools of several curves, one after the other; cached, so that the runs of a sweep share them."""

    def drawn() -> dict[str, Any]:
        pools = [_pools(curve, width, levels, kinds, depths, size) for curve in curves]
        confidence, rank = (np.concatenate(each) for each in zip(*pools, strict=True))
        return {"confidence": confidence, "rank": rank}

    found = kept("pools", (curves, width, levels, kinds, depths, size), (Path(__file__),), drawn)
    confidence, rank = found["confidence"], found["rank"]
    confidence.flags.writeable = rank.flags.writeable = False
    return confidence, rank


@lru_cache(maxsize=64)
def _pools(curve: Curve, width: int, levels: int, kinds: int, depths: int, size: int) -> tuple[Floats, Ints]:
    """Return confidences (rows, width) and the target's ranks, one pool of `size` rows after another.

    The pools of a level are those of its kinds of stretch, and the pools of a kind those of the draft positions, which
    share their random numbers: a draft right at a deeper position is right at any with a higher rate.
    """
    quantile = (np.arange(size) + 0.5) / size
    # One lattice over all pools; without stretches and depths each level has the same, as it always had.
    index = np.arange(size if kinds == depths == 1 else levels * kinds * size)
    uniform = np.resize(index * GOLDEN % 1.0, (levels * kinds, size)).repeat(depths, axis=0)
    tops, top_of = [], cache(lambda mean: _top(curve, mean, quantile))
    for rates in level_rates(curve, levels):
        deep = np.pad(rates, (0, depths - len(rates)), mode="edge")
        means = np.stack([level_means(mean, curve.stretch_spread, kinds) for mean in deep], axis=1)
        tops += [top_of(mean) for mean in means.ravel()]
    # Whether a position has a match is drawn apart from whether the draft is right; only a first draft needs one.
    silent = (np.arange(size) + 0.5) * SILVER % 1.0 >= curve.match
    pools = []
    for place, (top, numbers) in enumerate(zip(tops, uniform, strict=True)):
        # No later rank may be likelier than the first, so the ranks of an unsure drafter fall off more slowly.
        rest = np.divide(top, 1 - top, out=np.full_like(top, np.inf), where=top < 1)
        tail = np.minimum(curve.tail, rest)[:, None]
        behind = tail * (1 - tail) ** np.arange(width - 1)
        confidence = np.concatenate((top[:, None], (1 - top)[:, None] * behind), axis=1)
        confidence = np.minimum.accumulate(confidence, axis=1)
        rank = (numbers[:, None] >= np.cumsum(confidence, axis=1)).sum(axis=1)
        confidence[:, 0] = np.maximum(confidence[:, 0], LEAST_CONFIDENCE)
        if curve.match < 1 and place % depths == 0:
            confidence[silent], rank[silent] = 0.0, width
        pools.append((confidence, rank))
    return np.concatenate([each[0] for each in pools]), np.concatenate([each[1] for each in pools])


def _top(curve: Curve, mean: float, quantile: Floats) -> Floats:
    if not curve.concentration:
        return np.full(len(quantile), mean)
    from scipy.special import betaincinv

    top: Floats = betaincinv(mean * curve.concentration, (1 - mean) * curve.concentration, quantile)
    return np.clip(top, 1e-6, 1 - 1e-9)


def level_rates(curve: Curve, levels: int) -> Floats:
    """Return the agreement of each level by draft position, (levels, positions): pooled, they are the curve's.

    A level's rate at a position is logit-normal between levels with the curve's spread. Pooled over the verifications
    of chains of k, a level counts by its verifications a token, and at a position by the share of them that reach it.
    """
    positions = len(curve.rates)
    if not curve.chain or levels == 1 or not curve.spread:
        return np.stack([level_means(mean, curve.spread, levels) for mean in curve.rates], axis=1)
    from scipy.optimize import brentq
    from scipy.special import expit, logit, ndtri

    deviation = curve.spread * ndtri((np.arange(levels) + 0.5) / levels)
    verifications, wide = np.ones(levels), max(40.0, deviation[-1] + 1)
    rates: Floats = np.empty((levels, positions))
    for _ in range(ROUNDS):
        reached = verifications.copy()
        for place, pooled in enumerate(curve.rates):

            def short(centre: float, weights: Floats = reached, pooled: float = pooled) -> float:
                return float(weights @ (expit(centre + deviation) - pooled))

            rates[:, place] = expit(brentq(short, logit(pooled) - wide, logit(pooled) + wide) + deviation)
            reached = reached * rates[:, place]
        deep = np.pad(rates, ((0, 0), (0, max(curve.chain - positions, 0))), mode="edge")[:, : curve.chain]
        verifications = 1 / (1 + curve.match * np.cumprod(deep, axis=1).sum(axis=1))
    return rates


def pooled(curve: Curve, k: int, levels: int) -> list[float]:
    """Return the share of verifications of chains of k that accept each draft position, k of them, over all levels."""
    rates = level_rates(curve, levels) if levels > 1 else np.array([curve.rates])
    right = np.cumprod(np.pad(rates, ((0, 0), (0, max(k - len(curve.rates), 0))), mode="edge")[:, :k], axis=1)
    verifications = 1 / (1 + curve.match * right.sum(axis=1))
    shares: list[float] = (verifications @ right / verifications.sum()).tolist()
    return shares


def level_means(mean: float, spread: float, levels: int) -> Floats:
    """Return the mean confidence of each level, (levels,): logit-normal with this spread and mean."""
    if levels == 1 or not spread or not 0 < mean < 1:
        return np.full(levels, mean)
    from scipy.optimize import brentq
    from scipy.special import expit, logit, ndtri

    deviation = spread * ndtri((np.arange(levels) + 0.5) / levels)
    low, high = min(-80.0, logit(mean) - deviation[-1]), max(80.0, logit(mean) + deviation[-1])
    centre = brentq(lambda x: expit(x + deviation).mean() - mean, low, high)
    means: Floats = expit(centre + deviation)
    return means


def _curve(node: CheckedMapping) -> Curve:
    node.only(("agreement", "concentration", "spread", "tail"), ("stretch_tokens", "stretch_spread"))
    if node.given("stretch_tokens") != node.given("stretch_spread"):
        given, missing = sorted(("stretch_tokens", "stretch_spread"), key=node.given, reverse=True)
        node.fail(missing, f"a number beside {given}")
    return Curve(
        _agreement(node),
        node.number("concentration", most=1e6),
        node.number("spread", most=20),
        node.number("tail", above=0, below=1),
        node.whole("stretch_tokens", 0, 1 << 20) if node.given("stretch_tokens") else 0,
        node.number("stretch_spread", most=20) if node.given("stretch_spread") else 0.0,
    )


def _agreement(node: CheckedMapping) -> float | tuple[float, ...]:
    value = node.values.get("agreement")
    if not isinstance(value, list | tuple):
        return node.number("agreement", above=0, below=1)
    rates = node.numbers("agreement", 1)
    if not all(0 < each < 1 for each in rates) or len(rates) > MOST_POSITIONS:
        node.fail("agreement", f"a number above 0 and below 1, or up to {MOST_POSITIONS} of them by draft position")
    return rates


BINS = 10
MOST_KEPT = 100
"""Classes of a pool whose figures are kept."""


def calibration(
    acceptance_trace: AcceptanceTrace, slo_class: Ints, names: tuple[str, ...]
) -> dict[str, dict[str, float]]:
    """Return for each class's on-path pools the top-1 agreement, mean confidence and expected calibration error.

    The expected calibration error is the distance between mean confidence and acceptance, averaged over ten equal
    bins of confidence with their rows as weights (Guo et al. 2017, Eq. 3).
    """
    members = ((name, np.flatnonzero(slo_class == code)) for code, name in enumerate(names))
    return {name: _of_class(acceptance_trace, requests) for name, requests in members if len(requests)}


def _of_class(acceptance_trace: AcceptanceTrace, requests: Ints) -> dict[str, float]:
    """Return the figures of a class; those of read-only pools are counted once for all traces."""
    if not isinstance(acceptance_trace.layout, Pools) or acceptance_trace.rank.flags.writeable:
        return _of_rows(acceptance_trace, acceptance_trace.text_rows(requests))
    known = known_of(acceptance_trace.confidence).setdefault("calibration", {})
    pools = acceptance_trace.layout.pool_rows, np.unique(acceptance_trace.layout.start[requests]).tobytes()
    rank, found = known.get(pools, (None, {}))
    if rank is not acceptance_trace.rank:
        if len(known) >= MOST_KEPT:
            known.clear()
        found = _of_rows(acceptance_trace, acceptance_trace.text_rows(requests))
        known[pools] = acceptance_trace.rank, found
    return dict(found)


def _of_rows(acceptance_trace: AcceptanceTrace, rows: Ints) -> dict[str, float]:
    confidence, right = acceptance_trace.confidence[rows, 0], acceptance_trace.rank[rows] == 0
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    gap = np.bincount(which, weights=confidence - right, minlength=BINS)
    return {
        "top1_agreement": float(right.mean()),
        "mean_confidence": float(confidence.mean()),
        "calibration_error": float(np.abs(gap).sum() / len(rows)),
    }


CONFIDENCE = "confidence"
"""The key of an acceptance file, beside those of its kind."""
KEYS = ("temperature", "bias")


@dataclass(frozen=True, slots=True)
class ConfidenceCalibration:
    """A drafter's calibration: its reported confidence c' in its likeliest token has logit c' = logit c / T + b.

    Temperature scaling as of Guo et al. 2017, Section 4.2, and a bias: T below 1 or b above 0 is a drafter that is
    surer than it should be. At T = 1 and b = 0 the confidences are the acceptance's own.
    """

    temperature: float = 1.0
    bias: float = 0.0

    def applied(self, acceptance_trace: AcceptanceTrace) -> AcceptanceTrace:
        """Return the trace with these confidences, right where it was; later ranks share what the first one leaves.

        A row stays in descending order, and its sum at most 1. A row that proposes nothing stays so, and no other does.
        """
        if self == ConfidenceCalibration():
            return acceptance_trace
        from scipy.special import expit, logit

        first = acceptance_trace.confidence[:, :1]
        sure = expit(logit(first) / self.temperature + self.bias)
        told = np.where(first > 0, np.maximum(sure, LEAST_CONFIDENCE), 0.0)
        left = np.divide(1 - told, 1 - first, out=np.zeros_like(first), where=first < 1)
        behind = np.minimum.accumulate(
            np.concatenate((told, acceptance_trace.confidence[:, 1:] * left), axis=1), axis=1
        )
        return replace(acceptance_trace, confidence=behind, target_probability=acceptance_trace.truth)


def reported(mapping: Mapping[str, Any], source: str) -> ConfidenceCalibration:
    """Return the calibration that an acceptance file states; null, or no key: the acceptance's own confidences.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    if not isinstance(mapping.get(CONFIDENCE), Mapping):
        return ConfidenceCalibration()
    node = CheckedMapping(source, "", mapping).child(CONFIDENCE)
    node.only((), KEYS)
    return ConfidenceCalibration(
        node.number("temperature", above=0, most=100) if node.given("temperature") else 1.0,
        node.number("bias", least=-100, most=100) if node.given("bias") else 0.0,
    )
