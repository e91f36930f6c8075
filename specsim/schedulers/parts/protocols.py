"""Parts of a scheduler: protocols, and checks of their parameters."""

from __future__ import annotations

from collections.abc import Generator
from math import inf
from typing import NamedTuple, Protocol, TypeVar

import numpy as np

from specsim.core.passes import MAX_DEPTH, NOBODY, DraftPass, Emitted
from specsim.core.protocols import Oracle, View
from specsim.core.request import Bools, Ids, Ints
from specsim.core.trees import Forest
from specsim.schedulers.parts.batching import catch_up_tokens, decoding


def at_least(low: float, **values: float) -> None:
    """Raise ValueError for the first of the named values that is below `low`."""
    for name, value in values.items():
        if value < low:
            raise ValueError(f"{name}={value!r} is below {low:g}")


def draft_length(low: int = 0, **values: int) -> None:
    """Raise ValueError for the first of the named values that is no length of a draft, `low` to `MAX_DEPTH` tokens."""
    at_least(low, **values)
    for name, value in values.items():
        if value > MAX_DEPTH:
            raise ValueError(f"{name}={value!r} is above {MAX_DEPTH:,}")


def probability(**values: float) -> None:
    """Raise ValueError for the first of the named values that is not in [0, 1]."""
    for name, value in values.items():
        if not 0 <= value <= 1:
            raise ValueError(f"{name}={value!r} is not in [0, 1]")


class Sequences(NamedTuple):
    """Sequences of the next verification; decoding sequences are first.

    Attributes
    ----------
    requests, scheduled_tokens : (n,) as in `TargetPass`.
    decoding : number of sequences that decode; the others read prompts.
    catch_up : (n,) tokens that the drafter's cache lacks, and that the first draft pass reads.
    evicted : (m,) requests that give up their cache; with `transfer` it moves to the host and can come back.
    stationary_until_s : a guarantee about the steps that start before this time; -inf: none. They have these sequences
        again, as long as all of them decode, no request arrives and more cache surely fits; a request that ends is left
        out. A speculation part whose drafts would be alike, too, hands the time on to its draft pass. Parts with an
        `on_verified` of their own are asked before each step.
    """

    requests: Ids
    scheduled_tokens: Ints
    decoding: int
    catch_up: Ints
    evicted: Ids = NOBODY
    transfer: bool = False
    stationary_until_s: float = -inf


Growing = Generator[DraftPass, Forest, Forest]
"""A generator that yields draft passes, is sent their forests, and returns the forest to verify."""
_Grown = TypeVar("_Grown")


class Batching(Protocol):
    """Decides which requests run. The `on_verified` of this class does nothing."""

    def sequences(self, view: View, drafting: bool, draft_tokens: int = 0) -> Sequences:
        """Return the sequences of the next verification.

        `drafting` says whether the drafter caches prompts too, `draft_tokens` how many each decoding sequence may
        verify.
        """

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted, service_s: float) -> None:
        """Take note of the verification of `forest`; `service_s` are the seconds of the step's forward passes."""


class Speculation(Protocol):
    """Decides how far decoding sequences speculate. The `on_verified` of this class does nothing."""

    @property
    def drafts(self) -> bool:
        """Whether it ever drafts; if so, the drafter also reads prompts."""

    @property
    def max_width(self) -> int:
        """The most children that it ever gives a node; by default 1."""
        return 1

    @property
    def by_table(self) -> bool:
        """Whether a table of the engine changes the number of drafts; by default not."""
        return False

    @property
    def drafter_away(self) -> bool:
        """Whether the drafter is to be on the host behind the next verification (`TargetPass`); by default never."""
        return False

    def draft_tokens(self, requests: int) -> int:
        """Return the most draft tokens that each of `requests` verifies in a step; a token budget has room for them."""
        return int(self.drafts)

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Yield draft passes, the first one with `sequences.catch_up`, and return a forest that fits the memory."""

    def on_verified(self, view: View, sequences: Sequences, forest: Forest, answer: Emitted) -> None:
        """Take note of what was accepted of `forest`."""


class Chains(Speculation):
    """A speculation part whose chains have at most `num_speculative_tokens` draft tokens; 0 never drafts."""

    num_speculative_tokens: int

    def __post_init__(self) -> None:
        draft_length(num_speculative_tokens=self.num_speculative_tokens)

    @property
    def drafts(self) -> bool:
        """Whether it drafts: always, unless the longest chain is 0 tokens."""
        return self.num_speculative_tokens > 0

    def draft_tokens(self, requests: int) -> int:
        """Return the longest chain."""
        return self.num_speculative_tokens


class OraclePart:
    """A part that is told the future; see `specsim.core.protocols.UsesOracle`."""

    _oracle: Oracle | None = None

    def use_oracle(self, oracle: Oracle) -> None:
        """Take what only the future knows."""
        object.__setattr__(self, "_oracle", oracle)

    @property
    def oracle(self) -> Oracle:
        """The oracle of the run.

        Raises
        ------
        ValueError
            When it has not been told.
        """
        if self._oracle is None:
            raise ValueError(f"{type(self).__name__} is told the future: expected a scheduler with `oracle: true`")
        return self._oracle


class NoDrafts(Speculation):
    """A speculation part that never drafts."""

    drafts = False
    stationary = True

    def grow(self, view: View, sequences: Sequences) -> Growing:
        """Refuse: a step without drafts grows nothing."""
        raise AssertionError("a part that never drafts was asked for drafts")


def evicting(
    growing: Generator[DraftPass, Forest, _Grown], evicted: Ids, transfer: bool = False, most_tokens: float = inf
) -> Generator[DraftPass, Forest, tuple[_Grown, Ids]]:
    """Yield the passes of `growing`, the first of which evicts `evicted`; return its result and those left to evict.

    The first pass of a step evicts, so that the trees can use the freed memory. A drafter that lacks more than
    `most_tokens` reads them in passes of so many before it drafts.
    """
    try:
        work = next(growing)
        while True:
            if len(evicted):
                work, evicted = work._replace(evict=evicted, transfer=transfer), NOBODY
            while int(np.add.reduce(lacking := work.scheduled_tokens)) > most_tokens:
                part = np.clip(int(most_tokens) - np.add.accumulate(lacking) + lacking, 0, lacking)
                yield DraftPass(work.requests, part, work.forest, evict=work.evict, transfer=work.transfer)
                work = work._replace(scheduled_tokens=lacking - part, evict=NOBODY, transfer=False)
            try:
                forest = yield work
            except Exception as refusal:
                work = growing.throw(refusal)
            else:
                work = growing.send(forest)
    except StopIteration as end:
        return end.value, evicted


def sequences_of(
    view: View, requests: Ids, scheduled_tokens: Ints, evicted: Ids = NOBODY, *, first: bool = False
) -> Sequences:
    """Return sequences with the decoding ones first; with `first`, prompts run alone if there are any."""
    decodes = decoding(view, requests)
    catch_up = catch_up_tokens(view, requests)
    if decodes.all():
        return Sequences(requests, scheduled_tokens, len(requests), catch_up, evicted)
    catch_up = np.where(decodes, catch_up, np.minimum(catch_up, scheduled_tokens))
    order: Bools | Ints = ~decodes if first else np.argsort(~decodes, kind="stable")
    count = 0 if first else int(np.count_nonzero(decodes))
    return Sequences(requests[order], scheduled_tokens[order], count, catch_up[order], evicted)
