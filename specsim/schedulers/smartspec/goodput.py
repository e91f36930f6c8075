"""Goodput of a step before it is run, as pure functions of arrays (SmartSpec, sections 4.1 to 4.4).

Every table has a row per proposed length k = 0..V and a column per FCFS prefix of 1..n requests, so that all
(prefix, k) pairs cost one call of the latency model each for draft and target. A model of the form `linear` is the
paper's Eq. 7; any other form of the cost model is priced just the same.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from specsim.core.passes import NOBODY
from specsim.core.protocols import CostModel, DraftCosts, PassCosts, View
from specsim.core.request import Bools, Floats, Ids, Ints
from specsim.pass_shape import PassShape, PassShapes


class Batch(NamedTuple):
    """Decoding requests, first come first, (n,) each: of all but their last token the target has a cache.

    Attributes
    ----------
    requests : ids.
    target_cached, draft_cached : tokens in either cache. catch_up : tokens that the drafter's cache lacks.
    longest : most draft tokens each may be given, at most V.
    evicted : (m,) requests that give up their cache for these, before the first pass of the step.
    """

    requests: Ids
    target_cached: Ints
    draft_cached: Ints
    catch_up: Ints
    longest: Ints
    evicted: Ids = NOBODY

    def prefix(self, requests: int) -> Batch:
        """Return the first so many requests."""
        return Batch(*(column[:requests] for column in self[:-1]))._replace(evicted=self.evicted)


def expected_length(acceptance: Floats, lengths: Ints) -> Floats:
    """Return l = (1 - a^(k+1)) / (1 - a), k + 1 at a = 1, the bonus token included, broadcast (Eq. 8)."""
    failing = 1.0 - acceptance
    certain = failing <= 0
    powers = np.power(acceptance, lengths + 1)
    if not certain.any():
        return (1.0 - powers) / failing
    return np.where(certain, lengths + 1.0, (1.0 - powers) / np.where(certain, 1.0, failing))


def lengths_of(batch: Batch, most: int) -> Ints:
    """Return the draft tokens of each request when k are proposed, (most + 1, n): none gets more than `longest`."""
    return np.minimum(np.arange(most + 1)[:, None], batch.longest)


def pass_counts(batch: Batch, passes: int) -> Ints:
    """Return what each request adds to draft pass 1, 2, ...: context, tokens, pairs and requests, (4, passes, n).

    Pass i holds those with k >= i. The first also reads what the drafter's cache lacks, which is more than one token
    after a step in which everything was accepted, or nothing was drafted.
    """
    cached, catch_up = batch.draft_cached, batch.catch_up
    known, reading = cached + catch_up, np.minimum(catch_up, 1)
    counts = np.empty((4, passes, len(catch_up)), dtype=np.int64)
    context, batched, pairs, requests = counts
    if passes:
        context[0], batched[0], requests[0] = cached * reading, catch_up, reading
        pairs[0] = catch_up * (known + 1) - catch_up * (catch_up + 1) // 2
    context[1:], batched[1:], pairs[1:], requests[1:] = known, 1, known + 1, 1
    counts *= batch.longest > np.arange(passes)[:, None]
    return counts


def _shapes(counts: Ints) -> PassShapes:
    """Return the shapes of draft passes with such counts: one token of each request has logits."""
    context, batched, pairs, requests = counts
    return PassShapes(context, batched, pairs, requests, requests, 0)


def draft_seconds(model: DraftCosts, batch: Batch, most: int) -> Floats:
    """Return the seconds of the first 0..most draft passes of each prefix, (most + 1, n) (Eq. 5)."""
    seconds = np.zeros((most + 1, len(batch.requests)))
    passes = _shapes(np.add.accumulate(pass_counts(batch, most), axis=2)).seconds(model)
    if model.one_pass:
        passes[1:] = 0.0
    np.add.accumulate(passes, axis=0, out=seconds[1:])
    return seconds


def target_seconds(model: PassCosts, batch: Batch, tree_tokens: Ints | Floats) -> Floats:
    """Return the seconds of verifying each prefix, (rows, n), with `tree_tokens` (rows, n) behind each root.

    Batched tokens are the sum of k_i + 1, as in section 7.2.2; 4.3 forgets the roots.
    """
    context = np.add.accumulate(batch.target_cached)
    roots = PassShapes.decode(context, np.arange(1, len(context) + 1))
    nodes = np.add.accumulate(tree_tokens, axis=1)
    pairs = np.add.accumulate(tree_tokens * (batch.target_cached + 2), axis=1)
    return model.seconds_array(PassShapes.with_nodes(roots, nodes, pairs))


def goodput(cost_model: CostModel, batch: Batch, acceptance: Floats, most: int) -> Floats:
    """Return generated tokens per second of each (k, prefix), (most + 1, n) (Eq. 3, 4, 9); `acceptance` (n,).

    Algorithm 1 line 4 multiplies the generated tokens by n twice; here each request counts once.
    """
    lengths = lengths_of(batch, most)
    tokens = expected_length(acceptance, lengths).cumsum(axis=1)
    seconds = draft_seconds(cost_model.draft, batch, most) + target_seconds(cost_model.target, batch, lengths)
    return tokens / seconds


def fitting(view: View, batch: Batch, tree_tokens: Ints) -> Bools:
    """Return for which (row, prefix) the cache has slots, (rows, n), with `tree_tokens` (rows, n) in both caches."""
    rows, max_depth = len(batch.requests), int(tree_tokens.max(initial=0))
    if view.surely_fits(rows, rows * (max_depth + 1), rows * max_depth + int(batch.catch_up.sum())):
        return np.ones(tree_tokens.shape, dtype=np.bool_)
    drafted = np.where(tree_tokens > 0, batch.catch_up + tree_tokens, 0)
    growth = view.growth_bytes(batch.requests, batch.target_cached + 1 + tree_tokens, batch.draft_cached + drafted)
    freed = int(view.held_bytes(batch.evicted).sum()) if len(batch.evicted) else 0
    fits: Bools = growth.cumsum(axis=1) <= view.free_bytes + freed
    return fits


def best(table: Floats, fits: Bools) -> tuple[int, int]:
    """Return (requests of the prefix, row) of the highest entry that fits; (0, 0) where none does.

    Equal ones go to the longer prefix, so that no request waits for nothing, and then to the earlier row.
    """
    by_prefix = np.where(fits, table, -np.inf)[:, ::-1].T
    place = int(np.argmax(by_prefix))
    prefix, row = divmod(place, by_prefix.shape[1])
    return (by_prefix.shape[0] - prefix, row) if by_prefix[prefix, row] > -np.inf else (0, 0)


def longest_fitting(fits: Bools) -> tuple[int, int]:
    """Return (requests of the longest prefix that fits with row 0, last row up to which that prefix fits)."""
    prefix = int(np.count_nonzero(fits[0]))
    return (prefix, int(np.count_nonzero(fits[:, prefix - 1])) - 1) if prefix else (0, 0)


def longest_by_survival(cost_model: CostModel, batch: Batch, acceptance: Floats, most: int) -> Ints:
    """Return k_1..k_n of at most `most`, (n,), for the goodput of the whole batch, `acceptance` (n,) one each.

    All lengths at once are too many to try (section 5 gives no method). Drafted tokens are ranked by the probability
    a_i^j that they are accepted, and every number of likeliest ones is tried with every number of draft passes: of
    as many tokens in as many passes, no other choice is expected to generate more.
    """
    if not batch.longest.any():
        return batch.longest
    level, request = np.nonzero(np.arange(most)[:, None] < batch.longest)
    survival = acceptance[request] ** (level + 1)
    order = np.argsort(-survival, kind="stable")
    level, request, survival = level[order], request[order], survival[order]
    # Rows: so many of the likeliest tokens. Columns: pass by pass, then passes up to that one.
    here, within = level[:, None] == np.arange(most), level[:, None] <= np.arange(most)
    drafted = here * pass_counts(batch, most)[:, level, request, None]
    seconds = _shapes(np.add.accumulate(drafted, axis=1)).seconds(cost_model.draft)
    if cost_model.draft.one_pass:
        seconds[:, 1:] = 0.0
    seconds = seconds.cumsum(axis=1)
    tokens = len(batch.requests) + np.cumsum(within * survival[:, None], axis=0)
    seconds += _verification(cost_model.target, batch, request, within)
    plain = target_seconds(cost_model.target, batch, np.zeros((1, len(batch.requests)), dtype=np.int64))[0, -1]
    table = tokens / seconds
    count, last = divmod(int(np.argmax(table)), most)
    if table[count, last] <= len(batch.requests) / plain:
        return np.zeros_like(batch.longest)
    return np.bincount(request[: count + 1][level[: count + 1] <= last], minlength=len(batch.requests))


def _verification(model: PassCosts, batch: Batch, request: Ints, within: Bools) -> Floats:
    """Return the seconds of verifying the first tokens of the ranking, (tokens, passes), those `within` the passes."""
    plain = PassShape.of_decoding(batch.target_cached)
    nodes = np.cumsum(within, axis=0)
    pairs = np.cumsum(within * (batch.target_cached + 2)[request][:, None], axis=0)
    return model.seconds_array(PassShapes.with_nodes(plain, nodes, pairs))
