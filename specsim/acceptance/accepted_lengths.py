"""Acceptance from the accepted lengths of verifications, as engines and benchmarking tools log them by request."""

from __future__ import annotations

from functools import lru_cache
from hashlib import sha256
from pathlib import Path
from typing import NamedTuple

import numpy as np

from specsim.acceptance.curves import MOST_POSITIONS, Acceptance
from specsim.acceptance.logs import Verified, verifications
from specsim.acceptance.positions import LEAST, MOST, SPREAD, curve_of, shape_of, worth
from specsim.core.request import Floats
from specsim.errors import SpecsimError
from specsim.files.checked_mapping import CheckedMapping, expanded
from specsim.files.yaml_file import check_file

MOST_BYTES = 1 << 30
EXPECTED = "expected those of aiperf, vLLM, SGLang or TensorRT-LLM, or with field= those of SpecDecode-Bench"
LEAST_REACHED = 20
"""Verifications that reach a draft position whose rate is told; of fewer, the position before says it."""
LEAST_REQUESTS, WIDEST = 10, 0.5
"""Requests that a spread is fitted to, at least, and the widest 95% interval around the assumed one that is taken."""
NORMAL_95 = 1.96
FARTHEST, WIDEST_STEP, MOST_STEPS = 5.0, 0.05, 8000
"""Deviations over which the normal distribution between requests is integrated, and in which steps at most."""
MOST_VERIFICATIONS = 100_000
"""Of a request, so that the steps are small enough."""
AT_ONCE = 1 << 20
"""Likelihoods that are held at once."""
STEP = 1e-3
"""Of logits and the spread, over which the likelihood's curvature is taken."""


class Fitted(NamedTuple):
    """Conditional rates by draft position, pooled over drafts of `chain` tokens, the spread, and a line about both."""

    rates: tuple[float, ...]
    chain: int
    spread: float | None
    counts: str
    how: str


def runs(node: CheckedMapping, folder: Path) -> Acceptance:
    """Return the acceptance of checked keys of ``kind: runs``: accepted lengths by request (docs/acceptance.md)."""
    shape = ("concentration", "spread", "tail", "width", "levels")
    node.only(("kind", "path"), ("description", "pair", "k", "field", *shape))
    width, levels = shape_of(node)
    path = folder / expanded(node.text("path", "the name of a file"), f"{node.source}: path: ")
    facts = check_file(path, MOST_BYTES, "file", f"{node.source}: path: ")
    k = node.whole("k", 1, MOST_POSITIONS) if node.given("k") else None
    field = node.text("field", "the name of a field") if node.given("field") else None
    checksum, found = _fitted(path, facts.st_mtime_ns, facts.st_size, k, field)
    curves, said = {}, []
    for name, each in found.items():
        curves[name] = curve_of(node, each.rates, each.chain, SPREAD if each.spread is None else each.spread)
        how = f"{'stated' if node.given('spread') else each.how}: {curves[name].spread:.3g}"
        said.append(f"{name}: {each.counts}: {worth(curves[name])}; spread between requests {how}")
    return Acceptance(curves, width, levels, note="; ".join(said), sha256=checksum)


@lru_cache(maxsize=4)
def _fitted(
    path: Path, _changed_ns: int, _size: int, k: int | None, field: str | None
) -> tuple[str, dict[str, Fitted]]:
    """Return the checksum of a file, and what its verifications come to; see `fitted`."""
    content = path.read_bytes()
    requests, server = verifications(content.decode("utf-8-sig", "replace"), str(path), k, field)
    if not requests and not server:
        said = "those of a Parquet recording have a YAML of kind: recorded" if content[:4] == b"PAR1" else EXPECTED
        raise SpecsimError(f"{path}: no accepted lengths; {said} (docs/acceptance.md)")
    return sha256(content).hexdigest(), fitted(requests, server)


def fitted(requests: list[Verified], server: list[Verified]) -> dict[str, Fitted]:
    """Return what the verifications of requests, or else of a server, come to by category; `default` is all of them."""
    by_category: dict[str, list[Verified]] = {}
    for each in requests:
        if each.category:
            by_category.setdefault(each.category, []).append(each)
    by_category.setdefault("default", requests or server)
    return {name: _fit(verified, server=not requests) for name, verified in by_category.items()}


def _fit(verified: list[Verified], *, server: bool) -> Fitted:
    """Return what the verifications of a category, or of intervals of a server, come to.

    The rates are those of all verifications. The spread has the greatest likelihood of the requests' own counts, each
    request's rates being logit-normal with one deviation at all positions, as in `curves.level_rates`.
    """
    k = max(each.k for each in verified)
    right, reached = (
        np.stack([np.pad(counts, (0, k - len(counts))) for counts in column])
        for column in ([each.right for each in verified], [each.reached for each in verified])
    )
    steps = reached.sum(axis=0)
    told = max(int((steps >= LEAST_REACHED).sum()), 1)
    right, reached = right[:, :told], reached[:, :told]
    rates = np.clip(right.sum(axis=0) / np.maximum(steps[:told], 1), LEAST, MOST)
    spread, how = (None, "assumed, as a server tells no requests apart") if server else _spread(right, reached, rates)
    short = sum(each.short for each in verified)
    lost = f", {short:,} tokens fewer drafted than k each: deep rates may be low" if short else ""
    counts = f"{'a server' if server else f'{len(verified):,} requests'}, {steps[0]:,.0f} verifications{lost}"
    return Fitted(tuple(rates.tolist()), k, spread, counts, how)


def _spread(right: Floats, reached: Floats, rates: Floats) -> tuple[float | None, str]:
    """Return the spread of greatest likelihood, None where the counts cannot tell it, and how it was found."""
    if len(right) < LEAST_REQUESTS:
        return None, f"assumed, as the counts are of fewer than {LEAST_REQUESTS} requests"
    if reached.max() > MOST_VERIFICATIONS:
        return None, f"assumed, as a request of over {MOST_VERIFICATIONS:,} verifications is several"
    from scipy.optimize import minimize

    counts = right, reached - right
    start = np.append(np.log(rates / (1 - rates)), SPREAD)
    bounds = [(-10.0, 10.0)] * len(rates) + [(0.0, 10.0)]
    best = minimize(_misfit, start, counts, method="L-BFGS-B", jac=True, bounds=bounds).x
    steps = STEP * np.eye(len(best))
    curvature = np.stack([_misfit(best + each, *counts)[1] - _misfit(best - each, *counts)[1] for each in steps])
    variance = float(np.linalg.pinv(curvature / (2 * STEP), hermitian=True)[-1, -1])
    low, high = (max(float(best[-1]) + side * NORMAL_95 * max(variance, 0.0) ** 0.5, 0.0) for side in (-1, 1))
    if variance <= 0 or (high - low > WIDEST and low <= SPREAD <= high):
        return None, f"assumed, as these requests tell {low:.2g} to {high:.2g}"
    return float(best[-1]), f"fitted, {low:.2g} to {high:.2g} with 95%"


def _misfit(centres_and_spread: Floats, right: Floats, wrong: Floats) -> tuple[float, Floats]:
    """Return minus the log likelihood of counts (requests, positions), and its slope.

    A request's logit at a position is that position's centre plus the spread times one normal deviation.
    """
    from scipy.special import expit, log_expit, logsumexp

    spread, most = centres_and_spread[-1], (right + wrong).sum(axis=1).max()
    # A step at most as wide as the likelihood of any request: n counts tell a logit with a variance of 4 / n at least.
    steps = min(2 * FARTHEST / min(WIDEST_STEP, (1 + spread**2 * most / 4) ** -0.5), MOST_STEPS)
    deviations = np.linspace(-FARTHEST, FARTHEST, 1 + round(steps))
    logits = centres_and_spread[:-1, None] + spread * deviations
    rate, log_right, log_wrong = expit(logits), log_expit(logits), log_expit(-logits)
    value, slope = 0.0, np.zeros(len(centres_and_spread))
    rows = AT_ONCE // len(deviations)
    for first in range(0, len(right), rows):
        yes, no = right[first : first + rows], wrong[first : first + rows]
        likelihood = yes @ log_right + no @ log_wrong - deviations**2 / 2
        whole = logsumexp(likelihood, axis=1, keepdims=True)
        odds = np.exp(likelihood - whole)
        excess = yes.T @ odds - rate * ((yes + no).T @ odds)
        value -= float((whole - np.log(len(deviations))).sum())
        slope -= np.append(excess.sum(axis=1), (excess @ deviations).sum())
    return value, slope
