"""The read-only face of the ledger that a scheduler is given."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeVar

import numpy as np

from specsim.core.protocols import CostModel, View
from specsim.core.request import Bools, Facts, Ids, Ints, Observed
from specsim.server.ledger import Ledger
from specsim.server.state import RequestQueues

_Rows = TypeVar("_Rows", Facts, Observed)


def _arrays(rows: _Rows, kind: type[_Rows]) -> dict[str, Any]:
    """Return read-only views of the arrays that `kind` declares, by name."""
    views = {name: getattr(rows, name).view() for name in kind.__dataclass_fields__}
    for each in views.values():
        each.flags.writeable = False
    return views


class _Line(Sequence[int]):
    """The line of waiting requests, which can be looked at, not changed."""

    def __init__(self, queues: RequestQueues) -> None:
        self._queues = queues

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Ids:
        return np.asarray(self._queues.waiting_ids, dtype)

    def __len__(self) -> int:
        return len(self._queues.waiting)

    def __iter__(self) -> Iterator[int]:
        return iter(self._queues.waiting)

    def __getitem__(self, place: Any) -> Any:
        return self._queues.waiting[place]


class LedgerView(View):
    """The view of one ledger; the engine moves `now_s` and `forward_s` on."""

    # The clock is set with every pass: the checks of two frozen dataclasses would cost 5% of a plain run.
    __setattr__ = object.__setattr__

    def __init__(self, ledger: Ledger, cost_model: CostModel) -> None:
        Facts.__init__(self, **_arrays(ledger.facts, Facts))
        Observed.__init__(self, **_arrays(ledger.progress, Observed))
        self.now_s = 0.0
        self.forward_s = 0.0
        self.cost_model = cost_model
        self._ledger = ledger
        self.waiting = _Line(ledger.queues)

    @property
    def running(self) -> Ids:
        """Requests that hold cache, in order of admission."""
        return self._ledger.queues.running

    @property
    def free_bytes(self) -> int:
        """Bytes of cache that no request holds."""
        return self._ledger.pool.free_bytes

    @property
    def capacity_bytes(self) -> int:
        """Bytes of cache in all."""
        return self._ledger.pool.capacity_bytes

    @property
    def drafter_bytes(self) -> int:
        """Bytes of the drafter's weights, which hold cache while it is away."""
        return self._ledger.pool.memory.drafter_bytes

    @property
    def drafter_away(self) -> bool:
        """Whether the drafter is on the host."""
        return self._ledger.pool.drafter_away

    def waits(self, ids: Ids | slice) -> Bools:
        """Return whether each request is among the waiting ones, (n,)."""
        return self._ledger.queues.waits(ids)

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
        ledger = self._ledger
        return not ledger.caches.to_load and ledger.pool.surely_fits(requests, target_cached, draft_cached)

    def held_bytes(self, ids: Ids) -> Ints:
        """Return the bytes of cache that each request holds, (n,)."""
        return self._ledger.caches.freed_bytes(ids)
