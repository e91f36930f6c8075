"""One request: what is told of it, what only the future knows, and what has happened to it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import isnan, nan
from typing import NamedTuple


@dataclass(eq=False)
class Request:
    """`target` and `draft` are the tokens that each model has cached; the rest is named as in docs/metrics.md.

    `right` says whether the drafter's likeliest token is the target's own at an output position.
    """

    number: int
    arrival_s: float
    prompt: int
    most: int
    output: int
    right: Callable[[int], bool]
    target: int = 0
    draft: int = 0
    rejected: bool = False
    output_tokens: int = 0
    first_token_s: float = nan
    last_token_s: float = nan
    finish_s: float = nan
    first_decode_s: float = nan
    draft_tokens: int = 0
    accepted_tokens: int = 0
    verifications: int = 0
    speculations: int = 0
    preemptions: int = 0
    decoded_tokens: int = 0
    longest_pause_s: float = nan
    prompts_s: float = 0.0
    drafting_s: float = 0.0

    @property
    def pending(self) -> int:
        return self.prompt + self.output_tokens - self.target

    @property
    def draft_pending(self) -> int:
        return self.prompt + self.output_tokens - self.draft

    @property
    def decodes(self) -> bool:
        return self.pending == 1 and self.output_tokens > 0

    @property
    def useful(self) -> int:
        """Drafted tokens that could still be emitted beside the target's own."""
        return self.most - self.output_tokens - 1

    def begin_decoding(self, start_s: float) -> None:
        if self.output_tokens and isnan(self.first_decode_s):
            self.first_decode_s = start_s

    def lose_cache(self) -> None:
        self.target = self.draft = 0
        self.preemptions += 1

    def emits(self, row: Row) -> tuple[int, int]:
        """Return the tokens that a row emits, and how many of its drafted tokens are right."""
        if row.chunk < self.pending:
            return 0, 0
        matched = 0
        while matched < row.drafted and self.right(self.output_tokens + matched):
            matched += 1
        return min(matched + 1, self.output - self.output_tokens), matched

    def commit(self, row: Row, now_s: float) -> float | None:
        """Take what a target pass did for it until `now_s`; return the time since it last emitted, if it had."""
        tokens, matched = self.emits(row)
        if self.output_tokens and tokens:
            self.verifications += 1
            self.decoded_tokens += tokens
        self.draft_tokens += row.drafted
        self.speculations += row.drafted > 0
        self.accepted_tokens += min(matched, tokens)
        if row.drafted:
            # The last token of a chain was proposed, never read by the drafter.
            self.draft += min(matched, row.drafted - 1)
        self.target += row.chunk + matched
        self.output_tokens += tokens
        return self._emit(now_s) if tokens else None

    def _emit(self, now_s: float) -> float | None:
        pause_s = None if isnan(self.last_token_s) else now_s - self.last_token_s
        self.last_token_s = now_s
        if pause_s is None:
            self.first_token_s = now_s
        elif isnan(self.longest_pause_s) or pause_s > self.longest_pause_s:
            self.longest_pause_s = pause_s
        if self.output_tokens == self.output:
            self.finish_s = now_s
        return pause_s


class Row(NamedTuple):
    """A request's part in a pass: pending tokens that it feeds, and drafted tokens behind them."""

    request: Request
    chunk: int
    drafted: int = 0
