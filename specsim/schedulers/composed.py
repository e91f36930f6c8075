"""Any batching part with any speculation part.

Paper: none; the parts are those of the papers' schedulers (docs/schedulers.md).
Idea: the batch and the length of drafts are two decisions; a part for each makes a scheduler.
Deviations: none. A preempted request gives up its cache before the first pass of the step, draft or target.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from math import inf
from typing import Any

import numpy as np

from specsim.core.passes import TargetPass
from specsim.core.protocols import Beginning, Noting, Oracle, Step, UsesOracle, View, is_stationary
from specsim.core.request import Floats
from specsim.core.trees import Forest
from specsim.core.user_code import attribute, attributed_to, columns, kind_of
from specsim.schedulers.parts.protocols import Batching, NoDrafts, Sequences, Speculation, evicting
from specsim.schedulers.sarathi import TokenBudget

UNTOLD = Batching.on_verified, Speculation.on_verified
"""Methods of parts that need not be told of each verification."""


@dataclass
class Composed:
    """One step: the batching part names the sequences, the speculation part grows their trees, the target verifies.

    Without a speculation part each row decodes one token.
    """

    batching: Batching
    speculation: Speculation = field(default_factory=NoDrafts)
    stationary = True

    def __post_init__(self) -> None:
        if isinstance(self.batching, str):
            raise ValueError(f"batching={self.batching!r} is a word of YAML files; expected a batching part")
        part = type(self.speculation)
        for name in ("drafts", "grow"):
            if getattr(part, name) is getattr(Speculation, name) and name not in vars(self.speculation):
                raise ValueError(f"{part.__name__} has no {name!r} of its own")
        _ = self.captured_drafts  # Refuses a wrong one before anything runs.
        if isinstance(self.batching, TokenBudget) and self.speculation.drafts:
            most, budget = 1 + self._draft_tokens(1), self.batching.max_num_batched_tokens
            if most > budget:
                raise ValueError(f"max_num_batched_tokens={budget} is below {most}, one request with its drafts")
        # Chains of one length never stop: what their drafter lacks is what the last step brought.
        steady = is_stationary(self.speculation)
        self._most_tokens = inf if steady else getattr(self.batching, "max_num_batched_tokens", inf)
        told = [kind for kind in (type(self.batching), part) if kind.on_verified not in UNTOLD]
        for kind in told:
            if vars(kind).get("stationary"):
                raise ValueError(
                    f"{kind.__name__} says stationary = True, and has an on_verified; expected one of them"
                )
        self._stationary = not told and is_stationary(self.batching) and steady
        # TensorRT-LLM and SGLang, the engines that reserve more, take no block before it is computed.
        self._shares = isinstance(self.batching, TokenBudget) and self.batching.reserves == "prompt"

    @property
    def drafts(self) -> bool:
        """Whether it ever drafts."""
        return self.speculation.drafts

    @property
    def by_table(self) -> bool:
        """Whether a table of the engine changes the number of drafts."""
        return self.speculation.by_table

    @property
    def captured_drafts(self) -> int:
        """The draft tokens that each request verifies, the most of a table; 0 where they vary."""
        return self._draft_tokens(1) if self.drafts and is_stationary(self.speculation) else 0

    @property
    def max_width(self) -> int:
        """The most children that a draft pass may give a node."""
        return self.speculation.max_width

    def begin(self, requests: int) -> None:
        """Have the parts make their state of so many requests."""
        for part in (self.batching, self.speculation):
            if isinstance(part, Beginning):
                with attributed_to(part.begin):
                    part.begin(requests)

    def step(self, view: View) -> Step:
        """Yield the drafter's passes and one verification."""
        forward_s, drafts = view.forward_s, self.speculation.drafts
        asked: Callable[..., Any] = self.speculation.draft_tokens
        try:
            most, asked = self._draft_tokens(len(view.running)) if drafts else 0, self.batching.sequences
            sequences = asked(view, drafts, most)
            _check_sequences(sequences, asked)
            if not len(sequences.requests):
                return
            if sequences.stationary_until_s > view.now_s and not self._stationary:
                sequences = sequences._replace(stationary_until_s=-inf)
            forest, evicted = Forest.roots(len(sequences.requests)), sequences.evicted
            if drafts:
                asked = self.speculation.grow
                growing = asked(view, sequences)
                if len(evicted) or int(np.add.reduce(sequences.catch_up)) > self._most_tokens:
                    room = max(self._most_tokens, int(np.add.reduce(sequences.scheduled_tokens)))
                    forest, evicted = yield from evicting(growing, evicted, sequences.transfer, room)
                else:
                    forest = yield from growing
                self._check(sequences, forest)
            until_s = -inf if drafts else sequences.stationary_until_s
            away, asked = self.speculation.drafter_away, self.batching.sequences
            tokens, transfer = sequences.scheduled_tokens, sequences.transfer
            answer = yield TargetPass(
                sequences.requests, tokens, forest, evicted, transfer, until_s, away, self._shares
            )
            asked = self.speculation.on_verified
            asked(view, sequences, forest, answer)
            asked = self.batching.on_verified
            asked(view, sequences, forest, answer, view.forward_s - forward_s)
        except Exception as error:
            attribute(error, asked, self.batching.sequences, self.speculation.grow)
            raise

    def _draft_tokens(self, requests: int) -> int:
        """Return the most draft tokens of each of `requests`; refuse what is no number of them."""
        most = self.speculation.draft_tokens(requests)
        if not (type(most) is int or isinstance(most, int | np.integer)) or most < 0:  # The first is quick.
            name = f"{type(self.speculation).__name__}.draft_tokens"
            raise ValueError(f"{name} returned {kind_of(most)}; expected a whole number of at least 0")
        return most

    def _check(self, sequences: Sequences, forest: Forest) -> None:
        """Refuse what no `Speculation` may return: no forest, or more drafts than its token budget has room for."""
        name = type(self.speculation).__name__
        if not isinstance(forest, Forest):
            raise TypeError(f"{name}.grow returned {forest!r}; expected the forest to verify")
        if not isinstance(self.batching, TokenBudget):
            return
        took, budget = (
            int(np.add.reduce(sequences.scheduled_tokens)) + forest.draft_nodes,
            self.batching.max_num_batched_tokens,
        )
        if took > budget:
            told = f"{took} tokens are above max_num_batched_tokens={budget}"
            raise ValueError(f"{told}: {name} drafts more than its draft_tokens() says")

    def noted(self, requests: int) -> dict[str, Floats]:
        """Return what the parts note of each request, (requests,) by name; see `Noting`."""
        parts = [each for each in (self.batching, self.speculation) if isinstance(each, Noting)]
        found: dict[str, Floats] = {}
        for part in parts:
            with attributed_to(part.noted):
                found |= columns(part, requests)
        return found


ARRAYS = ("requests", "scheduled_tokens", "catch_up", "evicted")
_INT64 = np.dtype(np.int64)


def _check_sequences(found: Any, asked: Any) -> None:
    """Refuse what no `Batching` may return, whose method was `asked`."""
    if not isinstance(found, Sequences):
        raise TypeError(f"{_named(asked)} returned {kind_of(found)}; expected Sequences")
    for each in ARRAYS:
        array = getattr(found, each)
        # The same kind is the same object, but for integers of another name: quicker than a comparison.
        if type(array) is not np.ndarray or (array.dtype is not _INT64 and array.dtype != _INT64):
            raise TypeError(f"{_named(asked)}: {each} is {kind_of(array)}; expected a numpy array (n,) of int64")


def _named(method: Any) -> str:
    return f"{type(method.__self__).__name__}.{method.__name__}"


@dataclass
class WithOracle(Composed):
    """A composed scheduler whose parts know the future, such as LAPS-SD's queues (`oracle: true`)."""

    def use_oracle(self, oracle: Oracle) -> None:
        """Hand the oracle to the parts that take it."""
        for part in (self.batching, self.speculation):
            if isinstance(part, UsesOracle):
                with attributed_to(part.use_oracle):
                    part.use_oracle(oracle)
