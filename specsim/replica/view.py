"""The read-only face of the ledger that a scheduler is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from specsim.replica.ledger import Ledger
from specsim.replica.protocols import Belief
from specsim.replica.request import Ids, Ints

_Number = TypeVar("_Number", bound=np.generic)


def _read_only(array: npt.NDArray[_Number]) -> npt.NDArray[_Number]:
    view = array.view()
    view.flags.writeable = False
    return view


class _Line(Sequence[int]):
    """A line of requests that can be looked at, not changed."""

    __slots__ = ("_requests",)

    def __init__(self, requests: Any) -> None:
        self._requests = requests

    def __len__(self) -> int:
        return len(self._requests)

    def __iter__(self) -> Iterator[int]:
        return iter(self._requests)

    def __getitem__(self, place: Any) -> Any:
        return self._requests[place]


class LedgerView:
    """`specsim.replica.protocols.View` over one ledger; the engine moves `now_s` and `forward_s` on."""

    def __init__(self, ledger: Ledger, belief: Belief) -> None:
        self.now_s = 0.0
        self.forward_s = 0.0
        self.belief = belief
        facts, progress = ledger.facts, ledger.progress
        self.arrival_s = _read_only(facts.arrival_s)
        self.prompt_tokens = _read_only(facts.prompt_tokens)
        self.max_tokens = _read_only(facts.max_tokens)
        self.slo_class = _read_only(facts.slo_class)
        self.tpot_slo_s = _read_only(facts.tpot_slo_s)
        self.ttft_slo_s = _read_only(facts.ttft_slo_s)
        self.emitted_tokens = _read_only(progress.emitted_tokens)
        self.target_cached = _read_only(progress.target_cached)
        self.draft_cached = _read_only(progress.draft_cached)
        self.first_token_s = _read_only(progress.first_token_s)
        self.first_decode_s = _read_only(progress.first_decode_s)
        self._ledger = ledger
        self._waiting = _Line(ledger.roster.waiting)

    @property
    def waiting(self) -> Sequence[int]:
        """Arrived requests without cache, in order of arrival."""
        return self._waiting

    @property
    def running(self) -> Ids:
        """Requests that hold cache, in order of admission."""
        return self._ledger.roster.running

    @property
    def free_bytes(self) -> int:
        """Bytes of cache that no request holds."""
        return self._ledger.pool.free_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of cache in all."""
        return self._ledger.pool.memory.capacity_bytes

    def pending(self, ids: Ids) -> Ints:
        """Return the tokens that the target's cache still lacks, (n,): 1 when decoding."""
        return self._ledger.known(ids) - self.target_cached[ids]

    def draft_pending(self, ids: Ids) -> Ints:
        """Return the tokens that the drafter's cache still lacks, (n,)."""
        return self._ledger.known(ids) - self.draft_cached[ids]

    def growth_bytes(self, ids: Ids, target_cached: Ints, draft_cached: Ints) -> Ints:
        """Return the further bytes each request needs to cache so many tokens in all of each model, (n,)."""
        return self._ledger.pool.growth_bytes(ids, target_cached, draft_cached)

    def surely_fits(self, requests: int, target_cached: int, draft_cached: int) -> bool:
        """Return True only if so many more tokens of so many requests fit, whatever blocks they fall into: quick."""
        return not self._ledger.away and self._ledger.pool.surely_fits(requests, target_cached, draft_cached)

    def held_bytes(self, ids: Ids) -> Ints:
        """Return the bytes of cache that each request holds, (n,)."""
        return self._ledger.pool.held_bytes(ids)
