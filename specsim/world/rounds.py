"""Rounds of chains told at once: the tape says ahead what the target accepts."""

from __future__ import annotations

import numpy as np

from specsim.kernels.acceptance import rounds
from specsim.kernels.growth import Pooled
from specsim.pass_shape import PassShape, of_rounds
from specsim.replica.passes import DraftPass, Rounds, by_pass
from specsim.replica.protocols import Belief, View
from specsim.replica.request import Ints
from specsim.world.tape import Tape


class SimulatedRounds:
    """Tell rounds of chains.

    Parameters
    ----------
    output_tokens : (N,) true lengths. tape : which drafts are right. truth : pass times.
    view : the replica's ledger, for positions.
    """

    def __init__(self, output_tokens: Ints, tape: Tape, truth: Belief, view: View) -> None:
        self._output_tokens, self._tape, self._truth, self._view = output_tokens, tape, truth, view

    def rounds(self, work: DraftPass, least: int, most: int, within_s: float, further: int) -> Rounds | None:
        """Return rounds of chains; see `specsim.replica.protocols.Repeating`.

        None, too, where a chain may stop short, or where somebody's own code reads the tape.
        """
        view, drafter, ids, depth = self._view, self._truth.draft, work.requests, work.depth
        text = self._tape.text(ids)
        if not isinstance(text, Pooled) or text.silent or drafter.expands or drafter.deepest < depth:
            return None
        emitted, known = view.emitted_tokens[ids], view.target_cached[ids] + 1
        left = self._output_tokens[ids] - emitted
        most = self._most(known, depth, min(most, int(left.min())), within_s, further)
        if most < least:
            return None
        room = view.max_tokens[ids] - depth - emitted
        matched = rounds(text, self._tape.on_path(ids, emitted), depth, left, room, most)
        if len(matched) < least:
            return None
        tokens = matched + 1
        over = np.add.reduce(tokens, axis=0) - left
        tokens[-1] -= np.maximum(over, 0)
        draft, verify = of_rounds(known, work.chunks, matched, depth, drafter.cached)
        seconds = self._truth.draft.seconds_array(draft)
        if drafter.one_pass:
            seconds[1] = 0.0
        seconds = by_pass(seconds, self._truth.target.seconds_array(verify), len(matched), depth)
        return Rounds(matched, tokens, over >= 0, draft, verify, seconds)

    def _most(self, known: Ints, depth: int, most: int, within_s: float, further: int) -> int:
        """Return how many rounds are worth looking at: about as many as end in time, and `further` ones."""
        truth, rows = self._truth, len(known)
        plain = PassShape.decode(int(np.add.reduce(known)) - rows, rows)
        passes = 1 if truth.draft.one_pass else depth
        round_s = passes * truth.draft.seconds(plain)
        round_s += truth.target.seconds(plain.with_nodes(depth * rows, depth * (plain.context_tokens + 2 * rows)))
        return min(int(within_s / round_s) + further, most) if within_s < most * round_s else most
