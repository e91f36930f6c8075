"""The ledger refuses every pass that no server could run, and says why."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from specsim.errors import IllegalPass
from specsim.forest import Forest
from specsim.ledger import Ledger
from specsim.memory import Memory
from specsim.work import NOBODY, Draft, Emitted, Verify
from tests.made import grown, memory, requests

WAITING, LATER, DECODING, FINISHED, HALFWAY = range(5)
"""The requests of `busy`: waiting, not arrived, decoding with a drafter's cache, finished, half through its prompt."""


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def trees(rows: int, *parents: int) -> Forest:
    return grown(Forest.roots(rows), parents, [0.5] * len(parents))


def emitted(tokens: list[int], finished: list[bool]) -> Emitted:
    none = np.zeros(len(tokens), dtype=np.int64)
    return Emitted(np.array(tokens), none, none, np.array(finished))


def busy() -> Ledger:
    told = requests([0.0] * 5, [6, 6, 6, 6, 6], [8] * 5)
    ledger = Ledger(5, memory(told, factor=3.0, block_tokens=1))
    for request in (WAITING, DECODING, FINISHED, HALFWAY):
        ledger.arrive(request, told)
    first = Verify(ints(DECODING, FINISHED, HALFWAY), ints(6, 6, 4), Forest.roots(3))
    drafted = Draft(ints(DECODING), ints(6), Forest.roots(1))
    ledger.check(drafted)
    ledger.commit_draft(drafted, 0.0)
    ledger.check(first)
    ledger.commit_verify(first, emitted([1, 1, 0], [False, True, False]), 0.0, 1.0)
    ledger.end_step()
    return ledger


ROOT = Forest.roots(1)
TWO = Forest.roots(2)
ILLEGAL: dict[str, tuple[Draft | Verify, str]] = {
    "no row": (Verify(NOBODY, NOBODY, Forest.roots(0)), "at least one row"),
    "fewer chunks than rows": (Verify(ints(DECODING, HALFWAY), ints(1), TWO), "one chunk and one tree a row"),
    "fewer trees than rows": (Verify(ints(DECODING, HALFWAY), ints(1, 1), ROOT), "one chunk and one tree a row"),
    "no chunk for a verification": (Verify(ints(DECODING), NOBODY, ROOT), "one chunk and one tree a row"),
    "a row twice": (Verify(ints(DECODING, DECODING), ints(1, 1), TWO), "twice"),
    "not arrived": (Verify(ints(LATER), ints(1), ROOT), "not arrived"),
    "finished": (Verify(ints(FINISHED), ints(1), ROOT), "has finished"),
    "beyond the last id": (Verify(ints(5), ints(1), ROOT), "."),
    "a negative id": (Verify(ints(HALFWAY - 5), ints(1), ROOT), "."),
    "an empty chunk": (Verify(ints(DECODING), ints(0), ROOT), "between one and all"),
    "a negative chunk": (Verify(ints(DECODING), ints(-1), ROOT), "between one and all"),
    "more than is pending": (Verify(ints(DECODING), ints(2), ROOT), "between one and all"),
    "more than the prompt": (Verify(ints(WAITING), ints(7), ROOT), "between one and all"),
    "a tree behind half a prompt": (Verify(ints(HALFWAY), ints(1), trees(1, 0)), "prefill that is not finished"),
    "evicts who runs": (Verify(ints(DECODING), ints(1), ROOT, ints(DECODING)), "can be evicted"),
    "evicts who holds nothing": (Verify(ints(DECODING), ints(1), ROOT, ints(WAITING)), "can be evicted"),
    "evicts who has finished": (Verify(ints(DECODING), ints(1), ROOT, ints(FINISHED)), "can be evicted"),
    "evicts somebody twice": (Verify(ints(DECODING), ints(1), ROOT, ints(HALFWAY, HALFWAY)), "."),
    "evicts beyond the last id": (Verify(ints(DECODING), ints(1), ROOT, ints(5)), "."),
    "a draft evicts who runs": (Draft(ints(DECODING), ints(1), ROOT, evict=ints(DECODING)), "can be evicted"),
    "a draft evicts who holds nothing": (Draft(ints(DECODING), ints(1), ROOT, evict=ints(WAITING)), "can be evicted"),
    "verifies more than the pool holds": (Verify(ints(DECODING), ints(1), trees(1, *[0] * 200)), "bytes of cache"),
    "drafts more than the pool holds": (
        Draft(ints(DECODING), ints(1), trees(1, *[0] * 200), np.arange(1, 201), 1),
        "bytes of cache",
    ),
    "a draft of nobody": (Draft(NOBODY, NOBODY, Forest.roots(0)), "at least one row"),
    "a draft for a row twice": (Draft(ints(DECODING, DECODING), ints(1, 1), TWO), "twice"),
    "a draft for who has finished": (Draft(ints(FINISHED), ints(1), ROOT), "has finished"),
    "a draft without tokens": (Draft(ints(DECODING), ints(0), ROOT), "without tokens"),
    "a draft without chunks or leaves": (Draft(ints(DECODING), NOBODY, ROOT), "without tokens"),
    "feeds the drafter too much": (Draft(ints(DECODING), ints(2), ROOT), "longer than what the drafter's cache lacks"),
    "feeds the drafter backwards": (
        Draft(ints(DECODING), ints(-1), ROOT),
        "longer than what the drafter's cache lacks",
    ),
    "extends a root that lags": (Draft(ints(WAITING), ints(5), ROOT, ints(0), 1), "has caught up"),
    "extends a root that is not fed": (Draft(ints(DECODING), NOBODY, ROOT, ints(0), 1), "."),
    "extends a node whose root lags": (Draft(ints(DECODING), NOBODY, trees(1, 0), ints(1), 1), "has caught up"),
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_pass_is_refused(kind: str) -> None:
    work, reason = ILLEGAL[kind]
    with pytest.raises(IllegalPass, match=reason):
        busy().check(work)


LEGAL: dict[str, Draft | Verify] = {
    "a whole prompt": Verify(ints(WAITING), ints(6), ROOT),
    "a decode, a chunk, an eviction": Verify(ints(WAITING, DECODING), ints(3, 1), TWO, ints(HALFWAY)),
    "a tree behind a decode": Verify(ints(DECODING), ints(1), trees(1, 0, 0, 0)),
    "a tree behind a whole prompt": Verify(ints(WAITING), ints(6), trees(1, 0)),
    "a draft prefill": Draft(ints(WAITING), ints(6), ROOT),
    "a part of a draft prefill": Draft(ints(WAITING), ints(2), ROOT),
    "a draft that catches up": Draft(ints(DECODING), ints(1), ROOT, ints(0), 2),
    "a draft, an eviction": Draft(ints(DECODING), ints(1), ROOT, ints(0), 2, evict=ints(HALFWAY)),
}


@pytest.mark.parametrize("kind", LEGAL)
def test_a_legal_pass_is_not(kind: str) -> None:
    work = LEGAL[kind]
    shape = busy().check(work)
    nodes = work.forest.draft_nodes if isinstance(work, Verify) else 0
    assert shape.batched_tokens == int(work.chunks.sum()) + nodes


def test_memory_that_is_refused_is_not_taken() -> None:
    ledger = busy()
    before = ledger.pool.used_bytes
    with pytest.raises(IllegalPass, match="bytes of cache wanted"):
        ledger.check(Verify(ints(DECODING), ints(1), trees(1, *[0] * 200)))
    assert ledger.pool.used_bytes == before


@pytest.mark.parametrize(("memory_bytes", "fits"), [(14 * 4, True), (14 * 4 - 1, False)])
def test_a_request_that_can_never_fit_is_rejected_at_the_door(memory_bytes: int, fits: bool) -> None:
    told = requests([0.0], [6], [8])
    ledger = Ledger(1, Memory(memory_bytes, 1, 3, 1))
    ledger.arrive(0, told)
    assert ledger.rejected == ({} if fits else {0: "kv_capacity"})
    assert ledger.roster.live == fits
