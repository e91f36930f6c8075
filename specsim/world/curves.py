"""Drawing acceptance tapes: Bernoulli for controlled experiments, or from acceptance-against-confidence curves."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import isfinite
from typing import Any

import numpy as np

from specsim.errors import SpecsimError, nearest
from specsim.request import Floats, Ints
from specsim.rng import stream_keys
from specsim.world.tape import MOST_PROPOSALS, Tape

POOL_ROWS = 1 << 13
GOLDEN = 0.6180339887498949

KEYS = {
    "bernoulli": {"description", "kind", "alpha", "width"},
    "curves": {"description", "kind", "width", "levels", "categories"},
}


@dataclass(frozen=True, slots=True)
class Curve:
    """How confident a drafter is in one category of text, and how right.

    Attributes
    ----------
    agreement : mean probability that the target's token is the drafter's likeliest, in (0, 1).
    concentration : of the Beta law of top-1 confidences; 0 makes every confidence equal `agreement`.
    spread : standard deviation between requests of the mean confidence's logit.
    tail : share of the remaining probability that each next rank takes; less where the second rank would otherwise
        be likelier than the first.
    """

    agreement: float
    concentration: float
    spread: float
    tail: float


@dataclass(frozen=True, slots=True)
class Acceptance:
    """Curves by category, proposals per position, and how many kinds of request a category is drawn with."""

    curves: Mapping[str, Curve]
    width: int
    levels: int

    def curve(self, category: str) -> Curve:
        """Return a category's curve, the one named ``default`` where it has none of its own.

        Raises
        ------
        SpecsimError
            When neither is there.
        """
        found = self.curves.get(category) or self.curves.get("default")
        if found is None:
            raise SpecsimError(f"acceptance has no category {category!r}{nearest(category, self.curves)}")
        return found


def curves_from_mapping(mapping: Mapping[str, Any], source: str) -> Acceptance:
    """Return what a YAML of kind ``bernoulli`` or ``curves`` describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    kind = mapping["kind"]
    exactly(mapping, KEYS[kind], source, optional={"description"})
    width = _number(mapping, "width", source, 1, MOST_PROPOSALS, whole=True)
    if kind == "bernoulli":
        alpha = _number(mapping, "alpha", source, 0, 1)
        return Acceptance({"default": Curve(alpha, 0.0, 0.0, alpha)}, int(width), 1)
    levels = _number(mapping, "levels", source, 1, 256, whole=True)
    categories = mapping["categories"]
    if not isinstance(categories, Mapping) or not categories:
        raise SpecsimError(f"{source}: categories: expected at least one category by name")
    curves = {str(name): _curve(body, f"{source}: categories.{name}") for name, body in categories.items()}
    return Acceptance(curves, int(width), int(levels))


def draw_tape(acceptance: Acceptance, category: Sequence[str], slo_class: Ints, rows: Ints, seed: int) -> Tape:
    """Return the tape of requests `rows` (N,) of a trace whose classes (N,) index `category`.

    The pools are the same for every seed: a lattice over (confidence, luck), so their means are exact to a part in
    `POOL_ROWS`; only which row a position falls on is drawn.
    """
    names = sorted(set(category))
    pools = {name: _pools(acceptance.curve(name), acceptance.width, acceptance.levels) for name in names}
    confidence = np.concatenate([pools[name][0] for name in names])
    rank = np.concatenate([pools[name][1] for name in names])
    level = (stream_keys(seed, "acceptance_level", rows) % np.uint64(acceptance.levels)).astype(np.int64)
    first = np.array([names.index(each) for each in category]) * acceptance.levels * POOL_ROWS
    start = first[slo_class] + level * POOL_ROWS
    return Tape(confidence, rank, start, start, POOL_ROWS, stream_keys(seed, "text", rows))


@lru_cache(maxsize=64)
def _pools(curve: Curve, width: int, levels: int) -> tuple[Floats, Ints]:
    """Return confidences (levels * POOL_ROWS, width) and the target's ranks, one pool after the other."""
    index = np.arange(POOL_ROWS)
    quantile, luck = (index + 0.5) / POOL_ROWS, (index * GOLDEN) % 1.0
    tops = [_top(curve, mean, quantile) for mean in _level_means(curve, levels)]
    pools = []
    for top in tops:
        # No later rank may be likelier than the first: an unsure drafter's rest falls off more slowly.
        tail = np.minimum(curve.tail, top / (1 - top))[:, None]
        behind = tail * (1 - tail) ** np.arange(width - 1)
        confidence = np.concatenate((top[:, None], (1 - top)[:, None] * behind), axis=1)
        confidence = np.minimum.accumulate(confidence, axis=1)
        pools.append((confidence, (luck[:, None] >= np.cumsum(confidence, axis=1)).sum(axis=1)))
    return np.concatenate([each[0] for each in pools]), np.concatenate([each[1] for each in pools])


def _top(curve: Curve, mean: float, quantile: Floats) -> Floats:
    if not curve.concentration:
        return np.full(len(quantile), mean)
    from scipy.special import betaincinv

    top: Floats = betaincinv(mean * curve.concentration, (1 - mean) * curve.concentration, quantile)
    return np.clip(top, 1e-6, 1 - 1e-9)


def _level_means(curve: Curve, levels: int) -> Floats:
    """Return the mean confidence of each level, (levels,), logit-normal, their mean equal to the agreement."""
    if levels == 1 or not curve.spread:
        return np.full(levels, curve.agreement)
    from scipy.optimize import brentq
    from scipy.special import expit, ndtri

    deviation = curve.spread * ndtri((np.arange(levels) + 0.5) / levels)
    centre = brentq(lambda x: expit(x + deviation).mean() - curve.agreement, -50.0, 50.0)
    means: Floats = expit(centre + deviation)
    return means


def _curve(body: Any, where: str) -> Curve:
    if not isinstance(body, Mapping):
        raise SpecsimError(f"{where}: expected agreement, concentration, spread and tail")
    exactly(body, {"agreement", "concentration", "spread", "tail"}, where)
    return Curve(
        _number(body, "agreement", where, 0, 1),
        _number(body, "concentration", where, 0, 1e6, closed=True),
        _number(body, "spread", where, 0, 20, closed=True),
        _number(body, "tail", where, 0, 1),
    )


def exactly(
    mapping: Mapping[str, Any], keys: set[str], where: str, optional: frozenset[str] | set[str] = frozenset()
) -> None:
    """Refuse unknown keys, and missing ones that are not `optional`."""
    for key in mapping:
        if key not in keys:
            raise SpecsimError(f"{where}: unknown key {str(key)!r}{nearest(str(key), keys)}")
    for key in sorted(keys - set(mapping) - optional):
        raise SpecsimError(f"{where}: missing key {key!r}")


def _number(
    body: Mapping[str, Any],
    key: str,
    where: str,
    low: float,
    high: float,
    *,
    whole: bool = False,
    closed: bool = False,
) -> float:
    value = body[key]
    right_kind = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    inside = right_kind and isfinite(value) and (low <= value <= high if whole or closed else low < value < high)
    if not inside:
        kind = "a whole number" if whole else "a number"
        raise SpecsimError(f"{where}: {key}: {value!r} is not {kind} between {low:g} and {high:g}")
    return float(value)
