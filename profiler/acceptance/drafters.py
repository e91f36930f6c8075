"""Drafters that propose along a text of the target: a draft model, and prompt lookup."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from profiler.acceptance.network import PIECE, Network, Written
from profiler.acceptance.rows import MOST_WRONG, AcceptanceRows, joined, off_path, on_path
from specsim.core.request import Floats, Ints
from specsim.rng import STRIDE, uniforms


@dataclass(frozen=True, slots=True)
class ModelRecorder:
    """A separate draft model, or the target with layers skipped.

    Attributes
    ----------
    draft, target : the networks. vocabulary : token ids that both have.
    temperature : of both distributions. At 0 the target is greedy, and both distributions are at temperature 1.
    proposals : K. every : wrong turns are taken before each position divisible by it.
    sampled : the proposal is drawn from the draft's distribution instead of being its likeliest; K is 1.
    """

    draft: Network
    target: Network
    vocabulary: int
    temperature: float
    proposals: int
    every: int
    sampled: bool = False

    @torch.inference_mode()
    def rows(self, prompt: Tensor, written: Written, key: np.uint64) -> AcceptanceRows:
        """Return the rows of every output position, and of some positions behind a wrong token.

        Parameters
        ----------
        prompt : (P,) token ids, at least one. written : what the target wrote behind them, at least one token.
        key : of the drafter's random draws on this text.
        """
        here = self.draft.device
        prompt, tokens = prompt.to(here), written.tokens.to(here)
        hidden, cache = self.draft.read(torch.cat((prompt, tokens[:-1]))[None])
        hidden = hidden[0, len(prompt) - 1 :]
        draws = self._draws(key, 0, 2 * len(tokens)).view(-1, 2)
        pieces, likely = [], []
        for first in range(0, len(tokens), PIECE):
            part = slice(first, first + PIECE)
            draft = self.draft.probabilities(hidden[part], self.temperature, self.vocabulary)
            target = self.target.probabilities(written.hidden[part], self.temperature, self.vocabulary).to(here)
            if self.sampled:
                pieces.append(self._drawn(draft, target, tokens[part], draws[part]))
            else:
                pieces.append(self._ranked(draft, target, tokens[part]))
            likely.append(draft.topk(MOST_WRONG, dim=-1).indices)
        on = joined(pieces)._replace(position=np.arange(len(tokens)))
        return joined([on, self._wrong_turns(prompt, tokens, torch.cat(likely), cache, key)])

    def _ranked(self, draft: Tensor, target: Tensor, tokens: Tensor) -> AcceptanceRows:
        confidence, proposed = draft.topk(self.proposals, dim=-1)
        right = proposed == tokens[:, None]
        rank = torch.where(right.any(dim=1), right.int().argmax(dim=1), self.proposals)
        overlap = torch.minimum(draft, target).sum(dim=1)
        return on_path(_floats(confidence), _ints(rank), _floats(target.gather(1, proposed)), _floats(overlap))

    def _drawn(self, draft: Tensor, target: Tensor, tokens: Tensor, draws: Tensor) -> AcceptanceRows:
        """Draw proposals from the draft's distribution that are right as often as rejection sampling accepts them.

        Given the target's token y, the proposal is y with probability min(p, q) / p at y, else drawn from (q - p)+.
        """
        chosen = tokens[:, None]
        truth = target if self.temperature else torch.zeros_like(target).scatter(1, chosen, 1.0)
        kept = draws[:, 0] < (draft / truth).gather(1, chosen).squeeze(1)
        instead = _draw((draft - truth).clamp(min=0), draws[:, 1])
        proposed = torch.where(kept, tokens, instead)[:, None]
        overlap = torch.minimum(draft, target).sum(dim=1)
        return on_path(
            _floats(draft.gather(1, proposed)), _ints(~kept), _floats(target.gather(1, proposed)), _floats(overlap)
        )

    def _wrong_turns(
        self, prompt: Tensor, tokens: Tensor, likely: Tensor, cache: Any, key: np.uint64
    ) -> AcceptanceRows:
        """Return the draft's rows behind wrong tokens of ranks 1 to 3, each in place of the token before a position."""
        at = torch.arange(0, len(tokens), self.every, device=tokens.device)[1:]
        wrong = likely[at - 1] != tokens[at - 1, None]
        rank, turn = wrong.T.nonzero(as_tuple=True)
        position, instead = at[turn], likely[at - 1][turn, rank]
        draws = self._draws(key, 2 * len(tokens), len(position))
        confidence = [np.zeros((0, self.proposals))]
        for first in range(0, len(position), PIECE):
            part = slice(first, first + PIECE)
            said = self._behind(len(prompt) + position[part] - 1, instead[part], cache)
            if self.sampled:
                confidence.append(_floats(said.gather(1, _draw(said, draws[part])[:, None])))
            else:
                confidence.append(_floats(said.topk(self.proposals, dim=-1).values))
        return off_path(_ints(position), _ints(rank + 1), np.concatenate(confidence))

    def _behind(self, place: Tensor, instead: Tensor, cache: Any) -> Tensor:
        """Return the distributions behind tokens, each in place of the text's token at `place`, (n, vocabulary).

        One pass reads all of them: a token sees the text before its place, and itself.
        """
        length = cache.get_seq_length()
        text = torch.arange(length, device=place.device) < place[:, None]
        seen = torch.cat((text, torch.eye(len(place), dtype=torch.bool, device=place.device)), dim=1)
        kind = next(self.draft.body.parameters()).dtype
        mask = torch.zeros(seen.shape, dtype=kind, device=place.device).masked_fill(~seen, torch.finfo(kind).min)
        hidden, cache = self.draft.read(instead[None], cache, attention_mask=mask[None, None], position_ids=place[None])
        cache.crop(-len(place))  # A negative length works in old and new versions.
        return self.draft.probabilities(hidden[0], self.temperature, self.vocabulary)

    def _draws(self, key: np.uint64, first: int, count: int) -> Tensor:
        words = key + STRIDE * np.arange(first, first + count).astype(np.uint64)
        return torch.from_numpy(uniforms(words)).to(self.draft.device)


def _draw(weights: Tensor, draws: Tensor) -> Tensor:
    """Return one index per row (n, vocabulary), drawn by weight, (n,)."""
    total = weights.double().cumsum(dim=-1)
    drawn = torch.searchsorted(total, draws[:, None] * total[:, -1:], right=True).squeeze(1)
    return drawn.clamp(max=weights.shape[1] - 1)


def _floats(values: Tensor) -> Floats:
    numbers: Floats = values.double().cpu().numpy()
    return numbers


def _ints(values: Tensor) -> Ints:
    numbers: Ints = values.long().cpu().numpy()
    return numbers


@dataclass(frozen=True, slots=True)
class LookupRecorder:
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
    def rows(self, prompt: Tensor, written: Written, key: np.uint64) -> AcceptanceRows:
        """See `profiler.acceptance.drafters.ModelRecorder.rows`."""
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


NOTHING = -1


class LookupHit(NamedTuple):
    """The token that a lookup proposes, and how many tokens matched; ``NOTHING`` and 0 without a match."""

    token: int
    match: int


def match_lengths(text: Ints, most: int) -> Ints:
    """Return how many tokens up to each index but the last equal those up to the last, at most `most`, (n - 1,)."""
    before = text[:-1]
    run, alike = np.zeros(len(before), dtype=np.int64), np.ones(len(before), dtype=np.bool_)
    for back in range(min(most, len(before))):
        alike[:back] = False
        alike[back:] &= before[: len(before) - back] == text[-1 - back]
        if not alike.any():
            break
        run += alike
    return run


def find(text: Ints, fewest: int, most: int) -> LookupHit:
    """Return what followed the longest match of the last `fewest` to `most` tokens of a text; of several the earliest.

    Parameters
    ----------
    text : (n,) token ids.
    """
    match, behind = longest_match(text, fewest, most)
    return LookupHit(int(behind[0]) if match else NOTHING, match)


def longest_match(text: Ints, fewest: int, most: int) -> tuple[int, Ints]:
    """Return the length of the match of `find`, 0 for none, and all of the text behind it."""
    run = match_lengths(text, most)
    if not len(run) or run.max() < fewest:
        return 0, text[:0]
    at = int(run.argmax())
    return int(run[at]), text[at + 1 :]


def lookups(text: Ints, first: int, fewest: int, most: int) -> tuple[list[LookupHit], list[LookupHit | None]]:
    """Return the proposal for each output token, and the one behind a wrong proposal in place of the token before.

    Parameters
    ----------
    text : (n,) prompt and output. first : index of the first output token, at least 1.

    Returns
    -------
    on, off : (n - first) each. ``off[t]`` is for position t after the proposal for t - 1 has replaced the target's
        token; None if that proposal was right, or there was none.
    """
    on = [find(text[:index], fewest, most) for index in range(first, len(text))]
    off: list[LookupHit | None] = [None] if on else []
    for index, before in zip(range(first + 1, len(text)), on, strict=False):
        wrong = before.token not in (NOTHING, text[index - 1])
        off.append(find(np.append(text[: index - 1], before.token), fewest, most) if wrong else None)
    return on, off
