"""Seconds of composed passes, and a table of them by batched tokens, with attention and logits beside it."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from profiler.compose.operators import LONG, Operators
from profiler.compose.passes import ComposedPass, Sizes, passes, reaching, sampled
from profiler.latency.fit import FittedForm, Floats, Samples, errors_by_kind, fit_roofline, fitted_keys, solve
from specsim.latency.forms import Table

MOST_BATCHED_TOKENS = 16384
FITTED = Sizes(
    requests=(1, 2, 4, 8, 16, 32, 64, 128, 256, 512),
    contexts=(128, 512, 1024, 2048, 4096, 8192, 32768, 131072),
    trees=(2, 3, 5, 8, 16),
    chunks=(32, 64, 128, 160, 256, 320, 512, 640, 1024, 1536, 2048, 4096, 8192, 16384),
    behind=(0, 1024, 4096, 16384, 65536),
)
HELD_OUT = Sizes(
    requests=(3, 6, 12, 24, 48, 96, 192, 384),
    contexts=(256, 768, 1536, 3072, 6144, 24576, 98304),
    trees=(4, 7, 12),
    chunks=(48, 96, 192, 224, 384, 448, 768, 1280, 1792, 3072, 6144, 12288),
    behind=(512, 2048, 8192, 32768),
)
ROWS = (1, 2, 4, *range(8, 512, 8), *range(512, 2048, 128), *range(2048, 8192, 512), *range(8192, 16385, 2048))
"""Batched tokens of a table's rows: up to 512 the sizes that engines capture passes of."""
BENDS = (1, 4, 16, 64, 256, 1024, 4096, 16384)
"""Batched tokens between which a line is added to the products, for what attention costs beside them."""
ROUNDS = 30


def composed(operators: Operators, work: ComposedPass) -> float:
    """Return the seconds of a pass: its products, its logits, and the attention of each of its groups.

    A tree's query tokens read their cache once and multiply at a prompt's rate: the slower of both. Latent attention is
    measured with its projections: those of the further queries are what more decodes of short contexts cost. In sparse
    attention each query chooses entries of its own: further ones cost what more decodes of so many entries do.
    """
    prompt = any(group.queries > 1 and not group.tree for group in work.groups)
    seconds = operators.products(work.batched_tokens, prompt) + operators.logits(work.logit_rows)
    seconds += operators.markov(work.requests)
    for group in work.groups:
        if group.queries > 1 and not group.tree:
            seconds += group.requests * operators.chunk(group.queries, group.context)
            continue
        read = operators.decode(group.requests, group.context)
        dense = group.tree and not operators.model.sparse
        pair_s = operators.chunk(LONG, 0) / (LONG * (LONG + 1) / 2) if dense else 0.0
        seconds += max(read, group.pairs * pair_s)
        near = operators.model.read_by_each(group.context)
        if group.tree and near is not None:
            few, all_queries = group.requests, group.requests * group.queries
            seconds += operators.decode(all_queries, near) - operators.decode(few, near)
    return seconds


def fit_table(operators: Operators, samples: Samples) -> Table:
    """Fit a `Table`: its rows are the products' seconds, kept from falling, and what passes cost beside them.

    It alternates, as the roofline's fit does, between choosing the slower side of each sample's attention and solving
    for the coefficients, which are at least 0. The cache is read no faster than the memory's peak allows.
    """
    from scipy.optimize import isotonic_regression

    sizes = np.array(ROWS, dtype=np.float64)
    products = np.array([operators.products(size, False) for size in ROWS])
    rising = isotonic_regression(products, weights=products**-2.0).x
    plain = np.column_stack([_ramps(samples.batched), np.interp(samples.batched, sizes, rising)])
    plain = np.column_stack([plain, samples.logits, samples.requests])
    pairs = samples.pairs > 16 * samples.context
    for _ in range(ROUNDS):
        sides = np.where(pairs, 0.0, samples.context), np.where(pairs, samples.pairs, 0.0)
        values, _ = solve(np.column_stack([plain, *sides]), samples)
        logit_s, request_s, alpha_s, beta_s = map(float, values[-4:])
        now = beta_s * samples.pairs >= alpha_s * samples.context
        if np.array_equal(now, pairs):
            break
        pairs = now
    alpha_s = max(alpha_s, operators.cache_bytes / (operators.bytes_per_s * operators.place.tp))
    rows = np.column_stack([_ramps(sizes), rising]) @ values[:-4]
    return Table(ROWS, tuple(rows.tolist()), 0.0, alpha_s, beta_s, logit_s, request_s)


def _ramps(sizes: Floats) -> Floats:
    """Return 1, and a line from 0 to 1 between each two of `BENDS`, level before and behind: (n, len(BENDS))."""
    low, high = np.array(BENDS[:-1]), np.array(BENDS[1:])
    return np.column_stack([np.ones_like(sizes), np.clip((sizes[:, None] - low) / (high - low), 0.0, 1.0)])


def fitted_forms(operators: Operators, overhead_s: float, most_context: int) -> tuple[dict[str, Any], dict[str, float]]:
    """Return what a profile says of a model's forms, and of each form the largest p95 of a kind of held-out passes."""
    longest = min(operators.model.whole("max_position_embeddings"), operators.measured_context)
    grids = (reaching(sizes, longest // max(FITTED.contexts)) for sizes in (FITTED, HELD_OUT))
    fitted_on, held_out = (
        sampled(partial(composed, operators), passes(sizes, most_context, MOST_BATCHED_TOKENS)) for sizes in grids
    )
    roofline, table = fit_roofline(fitted_on), fit_table(operators, fitted_on)
    fits = {"roofline": roofline, "table": FittedForm(table, {})}
    gaps = {form: np.abs(held_out.predicted_by(fitted.form) - held_out.seconds) for form, fitted in fits.items()}
    whole = held_out.seconds + overhead_s
    errors = {form: errors_by_kind(held_out.kinds, gap / whole) for form, gap in gaps.items()}
    return fitted_keys(fits, errors, fitted_on), {form: max(x.p95 for x in of.values()) for form, of in errors.items()}
