"""Generation of texts by the target: batched decoding with a cache, a random stream per sequence."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from profiler.acceptance.network import Network
from specsim.rng import STRIDE, stream_keys, uniforms


class Written(NamedTuple):
    """A text of the target: tokens (T,), end of text included, and the hidden states (T, size) behind them."""

    tokens: Tensor
    hidden: Tensor


@dataclass(slots=True)
class _Line:
    """One unfinished sequence."""

    place: int
    key: np.uint64
    tokens: list[int] = field(default_factory=list)
    hidden: list[Tensor] = field(default_factory=list)


def random_key(seed: int, purpose: str, category: str, sequence: int) -> np.uint64:
    """Return the key of a sequence's random stream for one purpose, which does not depend on the batch."""
    key: np.uint64 = stream_keys(seed, f"{purpose}, {category}", [sequence])[0]
    return key


@torch.inference_mode()
def write(
    target: Network,
    prompts: Sequence[Sequence[int]],
    keys: Sequence[np.uint64],
    *,
    tokens: int,
    temperature: float,
    vocabulary: int,
    stop: Collection[int],
) -> list[Written]:
    """Return at most `tokens` tokens for each prompt; all prompts are decoded together.

    Parameters
    ----------
    prompts : token ids, at least one each. keys : of each random stream; unused at temperature 0, which is greedy.
    vocabulary : ids that may be chosen; logits beyond are padding. stop : ids that end a text; the text includes them.
    """
    width = max(map(len, prompts))
    ids = torch.zeros((len(prompts), width), dtype=torch.long, device=target.device)
    mask = torch.zeros_like(ids)
    for row, prompt in enumerate(prompts):
        ids[row, width - len(prompt) :] = torch.tensor(prompt)
        mask[row, width - len(prompt) :] = 1
    lines = [_Line(place, key) for place, key in enumerate(keys)]
    done: list[_Line] = []
    cache: Any = None
    while lines:
        position = (mask.cumsum(dim=1) - 1).clamp(min=0)[:, -ids.shape[1] :]
        hidden, cache = target.read(ids, cache, attention_mask=mask, position_ids=position)
        chosen = _choose(target, hidden[:, -1], lines, temperature, vocabulary)
        for row, line in enumerate(lines):
            line.tokens.append(int(chosen[row]))
            line.hidden.append(hidden[row, -1].clone())
        over = [len(line.tokens) >= tokens or line.tokens[-1] in stop for line in lines]
        done += [line for line, ended in zip(lines, over, strict=True) if ended]
        ids, mask = chosen[:, None], torch.nn.functional.pad(mask, (0, 1), value=1)
        if any(over):
            left = torch.tensor(
                [row for row, ended in enumerate(over) if not ended], dtype=torch.long, device=target.device
            )
            lines = [lines[int(row)] for row in left]
            ids, mask = ids[left], mask[left]
            cache.batch_select_indices(left)
    done.sort(key=lambda line: line.place)
    return [Written(torch.tensor(line.tokens, device=target.device), torch.stack(line.hidden)) for line in done]


def _choose(target: Network, hidden: Tensor, lines: Sequence[_Line], temperature: float, vocabulary: int) -> Tensor:
    """Return the next token of each line, (lines,): the likeliest, or drawn by inverting the cumulative sum."""
    if not temperature:
        chosen: Tensor = target.head(hidden)[:, :vocabulary].argmax(dim=-1)
        return chosen
    words = np.array([line.key for line in lines]) + STRIDE * np.array([len(lines[0].tokens)], dtype=np.uint64)
    total = target.probabilities(hidden, temperature, vocabulary).double().cumsum(dim=-1)
    drawn = torch.from_numpy(uniforms(words)).to(total.device)[:, None] * total[:, -1:]
    return torch.searchsorted(total, drawn, right=True).squeeze(1).clamp(max=vocabulary - 1)
