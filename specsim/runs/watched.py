"""A scheduler that listens: it hands every pass of another one on, and keeps the token trees of some iterations."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from specsim.kernels.growth import MOST_PROPOSALS
from specsim.replica.passes import DraftPass, Emitted, TargetPass
from specsim.replica.protocols import Beginning, Clairvoyant, Foresight, Scheduler, Step, View
from specsim.replica.request import Bools, Floats, Ints
from specsim.replica.trees import Forest
from specsim.results.iteration import Iteration
from specsim.schedulers.adaserve import SloTrees
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.protocols import Growing, Rows, Speculation

if TYPE_CHECKING:
    from pandas import DataFrame


class Kept:
    """The iterations to keep, by number, and those that have been; all replicas of a run share one."""

    def __init__(self, wanted: Iterable[int], class_names: Sequence[str]) -> None:
        self.wanted, self.class_names = frozenset(wanted), tuple(class_names)
        self.found: dict[int, Iteration] = {}
        self.seen = 0


@dataclass(slots=True)
class ForSlo:
    """What AdaServe's first selection took of the candidates of this step, (nodes,); None before any."""

    forest: Forest | None = None
    chosen: Bools | None = None

    def of(self, forest: Forest) -> Bools | None:
        """Return it for these candidates, None where they were not selected from."""
        return self.chosen if self.forest is forest else None


@dataclass(frozen=True, slots=True)
class ListenedTo(Speculation):
    """AdaServe's speculation part, whose first selection is noted: that of the same part without the second one."""

    part: SloTrees
    noted: ForSlo
    first: SloTrees = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "first", replace(self.part, fill=False))

    @property
    def drafts(self) -> bool:
        """Whether the part drafts."""
        return self.part.drafts

    @property
    def widest(self) -> int:
        """The most children that the part gives a node."""
        return self.part.widest

    def foresee(self, foresight: Foresight) -> None:
        """Hand the foresight on to a part that takes it."""
        for part in (self.part, self.first):
            if isinstance(part, Clairvoyant):
                part.foresee(foresight)

    def begin(self, requests: int) -> None:
        """Have a part that keeps some make its state of so many requests."""
        for part in (self.part, self.first):
            if isinstance(part, Beginning):
                part.begin(requests)

    def grow(self, view: View, rows: Rows) -> Growing:
        """Yield the part's passes and return its forest."""
        growing, candidates = self.part.grow(view, rows), None
        try:
            work = next(growing)
            while True:
                candidates = yield work
                work = growing.send(candidates)
        except StopIteration as end:
            forest: Forest = end.value
        if candidates is not None and candidates.draft_nodes:
            self.noted.forest, self.noted.chosen = candidates, self.first.chosen(view, rows, candidates)
        return forest

    def on_verified(self, view: View, rows: Rows, forest: Forest, answer: Emitted) -> None:
        """Hand on what was accepted."""
        self.part.on_verified(view, rows, forest, answer)


class Before(NamedTuple):
    """What was known when a verification was asked for: the time, and of its rows (n,) tokens and first decoding."""

    now_s: float
    emitted_tokens: Ints
    first_decode_s: Floats


class Watched:
    """A scheduler that decides nothing: its passes are those of `scheduler`, and `kept` gets some of them.

    It is told the future, and tells nobody: which nodes were right is known behind the verification alone.
    """

    def __init__(self, scheduler: Scheduler, kept: Kept) -> None:
        self._kept, self._noted = kept, ForSlo()
        if isinstance(scheduler, Composed) and isinstance(scheduler.speculation, SloTrees):
            scheduler = replace(scheduler, speculation=ListenedTo(scheduler.speculation, self._noted))
        self._scheduler = scheduler
        self._foresight: Foresight | None = None

    def foresee(self, foresight: Foresight) -> None:
        """Take the foresight, and hand it on to a scheduler that takes it."""
        self._foresight = foresight
        if isinstance(self._scheduler, Clairvoyant):
            self._scheduler.foresee(foresight)

    def begin(self, requests: int) -> None:
        """Have the scheduler make its state of so many requests."""
        if isinstance(self._scheduler, Beginning):
            self._scheduler.begin(requests)

    def step(self, view: View) -> Step:
        """Yield the scheduler's passes."""
        step = self._scheduler.step(view)
        drafted: tuple[DraftPass, Forest] | None = None
        work = next(step, None)
        while work is not None:
            ids = work.requests
            before = Before(view.now_s, view.emitted_tokens[ids], view.first_decode_s[ids])
            answer = yield work
            if isinstance(work, DraftPass):
                drafted = work, answer
            else:
                self._hear(view, work, answer, drafted, before)
                drafted = None
            try:
                work = step.send(answer)
            except StopIteration:
                return

    def _hear(
        self,
        view: View,
        work: TargetPass,
        answer: Emitted,
        drafted: tuple[DraftPass, Forest] | None,
        before: Before,
    ) -> None:
        kept = self._kept
        number, kept.seen = kept.seen, kept.seen + 1
        if number in kept.wanted:
            requests = _requests(view, work, answer, before, kept.class_names)
            kept.found[number] = Iteration(number, before.now_s, requests, self._nodes(work, answer, drafted))

    def _nodes(self, work: TargetPass, answer: Emitted, drafted: tuple[DraftPass, Forest] | None) -> DataFrame:
        """Return the rows of `Iteration.nodes`: of what was drafted for these rows, else of what was verified."""
        from pandas import NA, DataFrame

        forest = work.forest
        if drafted is not None and np.array_equal(drafted[0].requests, work.requests):
            forest = drafted[1]
        verified = np.isin(_names(forest), _names(work.forest))
        verified[: forest.rows] = True
        assert self._foresight is not None
        assert np.count_nonzero(verified) == len(work.forest), "what is verified was not drafted last"
        right, first = self._foresight.right(forest), self._noted.of(forest)
        drawn = np.arange(len(forest)) >= forest.rows
        accepted = drawn & right & verified & (forest.depth <= answer.accepted[forest.row])
        columns = {
            "request": work.requests[forest.row],
            "parent": forest.parent,
            "depth": forest.depth,
            "rank": forest.token,
            "probability": forest.probability,
            "path_probability": forest.path_probability,
            "verified": verified,
            "for_slo": NA if first is None else first & verified & drawn,
            "right": right,
            "accepted": accepted,
        }
        return DataFrame(columns).astype({"for_slo": "boolean"})


def _names(forest: Forest) -> Ints:
    """Return a number for each node, (nodes,), equal for equal nodes of the forests of one step."""
    names: Ints = forest.slot * MOST_PROPOSALS + forest.token
    return names


def _requests(view: View, work: TargetPass, answer: Emitted, before: Before, class_names: Sequence[str]) -> DataFrame:
    """Return the rows of `Iteration.requests`."""
    from pandas import DataFrame

    ids = work.requests
    return DataFrame(
        {
            "request": ids,
            "slo_class": [class_names[code] for code in view.slo_class[ids]],
            "tpot_slo_s": view.tpot_slo_s[ids],
            "decoding": before.emitted_tokens > 0,
            "decoded_tokens": np.maximum(before.emitted_tokens - 1, 0),
            "decoding_s": np.nan_to_num(before.now_s - before.first_decode_s),
            "accepted_tokens": answer.accepted,
            "emitted_tokens": answer.tokens,
        }
    )
