"""Prompt lookup as a drafter: at most one proposal per position."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from profiler.acceptance.generate import Written
from profiler.acceptance.lookup import NOTHING, lookups
from profiler.acceptance.network import PIECE, Network
from profiler.acceptance.rows import TapeRows, joined, off_path, on_path
from specsim.core.request import Floats, Ints


@dataclass(frozen=True, slots=True)
class LookupDrafter:
    """Propose what followed the longest earlier match of the text's last tokens.

    Confidence is 1 here. `assemble` replaces it by the measured acceptance of matches of that length.

    Attributes
    ----------
    target : gives the probability of the proposal. vocabulary : token ids that it may choose.
    temperature : of the target. At 0 it is greedy, and its probabilities are at temperature 1.
    proposals : K, of which only the first is made. fewest, most : tokens of a match.
    every : wrong turns are taken before each position divisible by it.
    """

    target: Network
    vocabulary: int
    temperature: float
    proposals: int
    fewest: int
    most: int
    every: int

    @torch.inference_mode()
    def rows(self, prompt: Tensor, written: Written, key: np.uint64) -> TapeRows:
        """See `profiler.acceptance.model_drafter.ModelDrafter.rows`."""
        text: Ints = torch.cat((prompt, written.tokens)).cpu().numpy()
        on, off = lookups(text, len(prompt), self.fewest, self.most)
        token, match = np.array(on).T
        truth = np.zeros((len(on), self.proposals))
        truth[:, 0] = np.where(match > 0, self._target(written.hidden, np.maximum(token, 0)), 0.0)
        right = (token != NOTHING) & (token == text[len(prompt) :])
        rank = np.where(right, 0, self.proposals)
        turns = [(t, found.match) for t, found in enumerate(off) if found is not None and t % self.every == 0]
        position, matched = np.array(turns, dtype=np.int64).reshape(-1, 2).T
        return joined(
            [
                on_path(self._sure(match), rank, truth, np.full(len(on), np.nan), match),
                off_path(position, np.ones_like(position), self._sure(matched), matched),
            ]
        )

    def _target(self, hidden: Tensor, tokens: Ints) -> Floats:
        said = []
        for first in range(0, len(tokens), PIECE):
            part = slice(first, first + PIECE)
            p = self.target.probabilities(hidden[part], self.temperature, self.vocabulary)
            said.append(p.gather(1, torch.from_numpy(tokens[part]).to(p.device)[:, None]).squeeze(1))
        found: Floats = torch.cat(said).double().cpu().numpy()
        return found

    def _sure(self, match: Ints) -> Floats:
        confidence = np.zeros((len(match), self.proposals))
        confidence[:, 0] = match > 0
        return confidence
