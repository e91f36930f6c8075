"""Chains whose length a table gives by batch size.

Paper: none; vLLM's dynamic speculative decoding (features/speculative_decoding/dynamic_speculative_decoding,
vllm-project/vllm PR 32374), whose configuration is read unchanged.
Idea: the more requests decode, the fewer draft tokens; none beyond a critical batch.
Deviations:
- As in vLLM, ranges are inclusive, the first begins at 1, and no k exceeds `num_speculative_tokens`. A batch size
  between two ranges or after the last takes the k of the range before it.
- vLLM's batch size counts all requests scheduled in a step. Here a step that only reads prompts has no batch size.
- As in vLLM the drafter reads the tokens of each step, at k = 0, too (`propose` in llm_base_proposer.py, vLLM's issues
  49548 and 53420), but before the target's pass instead of behind it.
- Entries of five numbers (k by batch size and context) are refused.
- A step without memory for k tokens decodes without drafts.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass
from itertools import pairwise

from specsim.core.protocols import View
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, draft_length


@dataclass
class ByBatchSize(Speculation):
    """A speculation part: chains of as many tokens as a table gives for the batch size.

    Parameters
    ----------
    num_speculative_tokens : the most draft tokens of a chain (vLLM's `num_speculative_tokens`).
    num_speculative_tokens_per_batch_size : ranges of batch sizes, ends included, and their k: a list of
        [first, last, k], or ``{"first-last": k}``.
    """

    num_speculative_tokens: int
    num_speculative_tokens_per_batch_size: list[list[int]] | dict[str, int]
    stationary = True
    by_table = True

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        table = checked_ranges(self.num_speculative_tokens_per_batch_size)
        self._firsts = [first for first, _, _ in table]
        self._lengths = [min(k, self.num_speculative_tokens) for _, _, k in table]

    @property
    def drafts(self) -> bool:
        """Whether it drafts: whether any batch size has draft tokens."""
        return any(self._lengths)

    def length(self, batch_size: int) -> int:
        """Return the k of a batch size, at least 1: that of the last range that begins at or below it."""
        return self._lengths[bisect_right(self._firsts, batch_size) - 1]

    def draft_tokens(self, requests: int) -> int:
        """Return the greatest k of this batch size or a larger one: prompts join the batch."""
        place = bisect_right(self._firsts, max(requests, 1)) - 1
        return max(self._lengths[place:])

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token of the table's k, at 0 one that only reads, and return the chains."""
        return grow_chains(view, sequences, self.length(len(sequences.requests)), reads_along=True)


def checked_ranges(given: list[list[int]] | dict[str, int]) -> list[list[int]]:
    """Return the ranges in order as [first, last, k].

    Raises
    ------
    ValueError
        When they are no ranges with a k each, overlap, or do not begin at 1.
    """
    name = "num_speculative_tokens_per_batch_size"
    listed = [_named(key, k) for key, k in given.items()] if isinstance(given, dict) else given
    if not isinstance(listed, list) or not listed or not all(map(_is_range, listed)):
        expected = 'list of [first, last, k], or {"first-last": k}, with 1 <= first <= last and k >= 0'
        raise ValueError(f"{name}: {given!r} is no {expected}")
    table = sorted(listed)
    if table[0][0] != 1:
        raise ValueError(f"{name}: {given!r} is not defined from batch size 1 on")
    if any(after[0] <= before[1] for before, after in pairwise(table)):
        raise ValueError(f"{name}: {given!r} is ambiguous: its ranges overlap")
    return table


def _named(key: object, k: int) -> list[int]:
    """Return a range that is written as "first-last" or "size", [] where it is neither."""
    found = re.fullmatch(r"(\d+)(?:-(\d+))?", str(key), re.ASCII)
    return [int(found[1]), int(found[2] or found[1]), k] if found else []


def _is_range(entry: object) -> bool:
    if not isinstance(entry, list) or len(entry) != 3:
        return False
    if not all(isinstance(each, int) and not isinstance(each, bool) for each in entry):
        return False
    first, last, k = entry
    return bool(1 <= first <= last and k >= 0)
