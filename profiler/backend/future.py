"""The future of a text that is the model's own, found out before a run for schedulers with an oracle."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch

from profiler.acceptance.drafters import lookups
from profiler.attention.packing import Ints
from profiler.attention.pages import NoRoom
from profiler.backend.drafting import likeliest_tokens
from profiler.backend.layout import LaidRow, laid_out, passed
from profiler.backend.rows import CachedSequences
from profiler.passes.forward import PackedForward
from specsim.core.protocols import View
from specsim.core.request import Bools, Floats, Ids
from specsim.core.trees import Forest

PROPOSALS = 8
"""Of a draft model at each position."""
LIKELY = 256
"""Tokens of a position whose probability by the target is kept; that of others is taken as 0."""


class OracleText(NamedTuple):
    """The output of one request that decodes alone, (T,) tokens.

    Attributes
    ----------
    confidence : (T, K) the drafter's probabilities of its likeliest tokens there, 1 for a lookup's proposal; a row of
        zeros proposes nothing. rank : (T,) place of the text's token among these, K for a miss.
    likely, probability : (T, l) the target's likeliest tokens and their probabilities.
    """

    tokens: Ints
    confidence: Floats
    rank: Ints
    likely: Ints
    probability: Floats

    @property
    def agrees(self) -> Bools:
        """Whether the drafter's likeliest token is right, (T,)."""
        agrees: Bools = (self.rank == 0) & (self.confidence[:, 0] > 0)
        return agrees


NO_ROWS = np.zeros((0, 1))
NO_TEXT = OracleText(np.zeros(0, np.int64), NO_ROWS, np.zeros(0, np.int64), np.zeros((0, 1), np.int64), NO_ROWS)


class ModelFuture:
    """The outputs of all requests; see `specsim.core.protocols.Oracle`.

    Behind its end a text is not known, and nothing is right there.
    """

    def __init__(self, texts: Sequence[OracleText], output_tokens: Ints, view: View) -> None:
        self._texts, self._output_tokens, self._view = texts, output_tokens, view

    def output_tokens(self, ids: Ids) -> Ints:
        """Return how many tokens each request emits in all, (n,)."""
        return self._output_tokens[ids]

    def right(self, forest: Forest) -> Bools:
        """Return which nodes are the target's own, (nodes,)."""
        right = np.ones(len(forest), dtype=np.bool_)
        for node, (text, at) in enumerate(self._places(forest), start=forest.rows):
            own = at < len(text.tokens) and text.tokens[at] == forest.token[node]
            right[node] = own and right[forest.parent[node]]
        return right

    def right_ahead(self, ids: Ids, most: int) -> Ints:
        """Return how many tokens of the drafter's likeliest chain would be right now, up to `most`, (n,)."""
        at = self._view.emitted_tokens[ids].tolist()
        return np.array([_ahead(self._texts[each], start, most) for each, start in zip(ids.tolist(), at, strict=True)])

    def rounds_left(self, ids: Ids, most: int) -> Ints:
        """Return how many verifications of chains of `most` each request still needs, (n,)."""
        rounds = np.zeros(len(ids), dtype=np.int64)
        for place, request in enumerate(ids.tolist()):
            at = max(int(self._view.emitted_tokens[request]), 1)
            while at < self._output_tokens[request]:
                at += _ahead(self._texts[request], at, most) + 1
                rounds[place] += 1
        return rounds

    def agreement(self, ids: Ids) -> Floats:
        """Return how often the drafter's likeliest token is right, (n,)."""
        return np.array([self._texts[each].agrees.mean() if len(self._texts[each].agrees) else 0.0 for each in ids])

    def target_probability(self, forest: Forest) -> Floats:
        """Return the target's probability of each node given its path; off the path the drafter's confidence."""
        probability, right = forest.probability.copy(), self.right(forest)
        for node, (text, at) in enumerate(self._places(forest), start=forest.rows):
            if right[forest.parent[node]] and at < len(text.tokens):
                probability[node] = text.probability[at][text.likely[at] == forest.token[node]].sum()
        return probability

    def _places(self, forest: Forest) -> list[tuple[OracleText, int]]:
        """Return for each drafted node the text of its request, and its position in the output."""
        if not forest.draft_nodes:
            return []
        assert forest.origin is not None, "only what a draft pass answered has a future"
        ids = forest.origin[forest.row[forest.rows :]]
        at = self._view.emitted_tokens[ids] + forest.depth[forest.rows :] - 1
        return [(self._texts[request], place) for request, place in zip(ids.tolist(), at.tolist(), strict=True)]


def _ahead(text: OracleText, at: int, most: int) -> int:
    agrees = text.agrees[at : at + most]
    return int(np.logical_and.accumulate(agrees).sum())


def decoded_alone(target: PackedForward, prompt: Ints, count: int, vocabulary: int) -> tuple[Ints, Ints, Floats]:
    """Return `count` greedy tokens behind a prompt, and the likeliest tokens of each position, (count, l) each.

    The target's cache must be free.

    Raises
    ------
    NoRoom
        When the text does not fit the cache.
    """
    rows, width = CachedSequences(target, 1), min(LIKELY, vocabulary)
    likely, probability = np.zeros((count, width), np.int64), np.zeros((count, width))
    fed = prompt
    for place in range(count):
        row = LaidRow(0, int(rows.held[0]), fed)
        found = likeliest_tokens(passed(target, rows, [row], laid_out([row]))(), width, vocabulary)
        likely[place], probability[place] = found.token[0], found.probability[0]
        rows.held[0] += len(fed)
        fed = found.token[0, :1]
    return likely[:, 0].copy(), likely, probability


def oracle_text(
    target: PackedForward, drafter: PackedForward | tuple[int, int], prompt: Ints, count: int, vocabulary: int
) -> OracleText:
    """Return the output of one request; `drafter` is a model, or the fewest and most tokens of a lookup's match.

    A request that does not fit the cache has none: the ledger rejects it.
    """
    try:
        tokens, likely, probability = decoded_alone(target, prompt, count, vocabulary)
        if isinstance(drafter, PackedForward):
            # One pass over prompt and output.
            before = tokens[:-1]
            row = LaidRow(0, 0, prompt, (), list(range(-1, len(before) - 1)), before.tolist())
            logits: torch.Tensor = passed(drafter, CachedSequences(drafter, 1), [row], laid_out([row]))()
            found = likeliest_tokens(logits, min(PROPOSALS, vocabulary), vocabulary)
            proposed, confidence = found.token, found.probability
        else:
            on, _ = lookups(np.concatenate([prompt, tokens]), len(prompt), *drafter)
            confidence = np.array([[each.match > 0] for each in on], dtype=np.float64)
            proposed = np.array([[each.token] for each in on])
    except NoRoom:
        return NO_TEXT
    right = proposed == tokens[:, None]
    rank = np.where(right.any(axis=1), right.argmax(axis=1), proposed.shape[1])
    return OracleText(tokens, confidence, rank, likely, probability)
