"""Chains whose length a table gives by batch size, until drafts are right too seldom.

Paper: none; TensorRT-LLM's `draft_len_schedule` (NVIDIA/TensorRT-LLM PR 10860), `max_concurrency` and
`acceptance_rate_threshold` of `DecodingBaseConfig`.
Idea: the more requests decode, the fewer draft tokens; none beyond the table's last batch size. Speculation ends for
good once the mean acceptance rate of the last `acceptance_rate_window_size` verifications is below a threshold.
Deviations:
- A key of the table is the last batch size of its length, as since 2026; in the releases before, it was the first.
- `num_speculative_tokens` stands for `max_draft_len`. It shortens the table's lengths; TensorRT-LLM refuses a table
  whose first length is another.
- TensorRT-LLM's own threshold is off. The shipped window and threshold are ours.
- The batch size is that of the running requests, prompts included.
- While a batch is too large the drafter reads nothing. Before it drafts again, passes of a step's tokens read what it
  lacks. TensorRT-LLM never reads it, and fewer drafts are right (its PR 16888).
- A step without memory for k tokens decodes without drafts, and no rate of it is noted.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from dataclasses import dataclass, field

from specsim.core.passes import Emitted
from specsim.core.protocols import View
from specsim.core.trees import Forest
from specsim.schedulers.parts.growth import grow_chains
from specsim.schedulers.parts.protocols import Growing, Sequences, Speculation, at_least, draft_length, probability


@dataclass
class DraftLenSchedule(Speculation):
    """A speculation part: chains of as many tokens as a table gives for the batch size, or none for good.

    Parameters
    ----------
    num_speculative_tokens : the most draft tokens of a chain (`max_draft_len`).
    draft_len_schedule : ``{last batch size: draft tokens}``, or a list of these pairs; null: `num_speculative_tokens`
        for every batch size.
    max_concurrency : the largest batch that speculates, in the place of a table; null: no such limit.
    acceptance_rate_window_size : verifications with drafts whose rates are averaged; 0 or null: speculation never ends.
    acceptance_rate_threshold : the mean of accepted / drafted tokens below which speculation ends; null: never.
    """

    num_speculative_tokens: int
    draft_len_schedule: list[list[int]] | dict[int, int] | None
    max_concurrency: int | None
    acceptance_rate_window_size: int | None
    acceptance_rate_threshold: float | None
    disabled: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)
        at_least(0, acceptance_rate_window_size=self.acceptance_rate_window_size or 0)
        probability(acceptance_rate_threshold=self.acceptance_rate_threshold or 0.0)
        table, most = self.draft_len_schedule, self.num_speculative_tokens
        if self.max_concurrency is not None:
            at_least(1, max_concurrency=self.max_concurrency)
            if table is not None:
                raise ValueError(f"max_concurrency={self.max_concurrency} beside draft_len_schedule; expected one null")
            table = {self.max_concurrency: most}
        schedule = {1 << 62: most} if table is None else checked_schedule(table)
        self._lasts, self._lengths = list(schedule), [min(k, most) for k in schedule.values()]
        self._rates = deque[float](maxlen=self.acceptance_rate_window_size or 0)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: unless speculation has ended, or no batch size has draft tokens."""
        return not self.disabled and any(self._lengths)

    def draft_tokens(self, requests: int) -> int:
        """Return the draft tokens of a batch size; 0 beyond the last of the table."""
        place = bisect_left(self._lasts, requests)
        return self._lengths[place] if place < len(self._lasts) else 0

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield a draft pass per token of the table's length and return the chains; none if they do not all fit."""
        return grow_chains(view, sequences, self.draft_tokens(len(view.running)))

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Note the acceptance rate of a verification with drafts; end speculation where the mean is too low."""
        if not forest.draft_nodes or not self._rates.maxlen or self.acceptance_rate_threshold is None:
            return
        self._rates.append(float(answer.matched.sum()) / forest.draft_nodes)
        full = len(self._rates) == self._rates.maxlen
        self.disabled = full and sum(self._rates) / len(self._rates) < self.acceptance_rate_threshold


def checked_schedule(given: list[list[int]] | dict[int, int]) -> dict[int, int]:
    """Return the table by last batch size, in order.

    Raises
    ------
    ValueError
        When it has no batch size, one below 1 or twice, a length below 0, or one above the first.
    """
    rows = list(given.items()) if isinstance(given, dict) else given
    if not isinstance(rows, list) or not rows or not all(map(_is_row, rows)):
        expected = "{last batch size: draft tokens} such as {4: 4, 8: 2, 32: 1}"
        raise ValueError(f"draft_len_schedule: {given!r} is no {expected}")
    table = {int(last): k for last, k in sorted(rows, key=lambda row: int(row[0]))}
    if len(table) < len(rows):
        raise ValueError(f"draft_len_schedule: {given!r} has a batch size twice")
    if max(table.values()) > next(iter(table.values())):
        raise ValueError(f"draft_len_schedule: {given!r} is longest for other batch sizes than the smallest")
    return table


def _is_row(row: object) -> bool:
    if not isinstance(row, list | tuple) or len(row) != 2:
        return False
    last, k = row
    return str(last).isdecimal() and int(last) > 0 and type(k) is int and k >= 0
