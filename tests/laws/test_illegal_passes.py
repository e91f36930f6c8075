"""The ledger refuses every pass that no server could run, and says why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from specsim.core.passes import NOBODY, DraftPass, Emitted, Pass, TargetPass
from specsim.core.request import Ints
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.server.kv_cache import Memory
from specsim.server.ledger import Ledger
from tests.made import drafted, memory, requests

ROOT, TWO = Forest.roots(1), Forest.roots(2)
WAITING, LATER, DECODING, FINISHED, HALFWAY = range(5)
"""The requests of `busy`: waiting, not arrived, decoding with a drafter's cache, finished, half through its prompt."""


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def emitted(tokens: list[int], finished: list[bool]) -> Emitted:
    none = np.zeros(len(tokens), dtype=np.int64)
    return Emitted(np.array(tokens), none, none, np.array(finished))


def busy() -> Ledger:
    told = requests([0.0] * 5, [6, 6, 6, 6, 6], [8] * 5)
    ledger = Ledger(5, memory(told, factor=3.0, block_tokens=1))
    for request in (WAITING, DECODING, FINISHED, HALFWAY):
        ledger.arrive(request, told, 0.0)
    first = TargetPass(ints(DECODING, FINISHED, HALFWAY), ints(6, 6, 4), Forest.roots(3))
    prompt = DraftPass(ints(DECODING), ints(6), ROOT)
    ledger.reserve(prompt)
    ledger.commit_draft(prompt, ROOT, 0.0)
    ledger.reserve(first)
    ledger.commit_verify(first, emitted([1, 1, 0], [False, True, False]), 0.0, 1.0)
    ledger.end_step()
    return ledger


Asked = Callable[[Ledger], Pass]
"""A pass over trees that are drafted first."""


def verifies(request: int, chunk: int, nodes: int) -> Asked:
    return lambda ledger: TargetPass(ints(request), ints(chunk), drafted(ledger, ints(request), nodes))


def extends(request: int, nodes: int, chunks: Ints = NOBODY) -> Asked:
    return lambda ledger: DraftPass(
        ints(request), chunks, drafted(ledger, ints(request), nodes), np.arange(1, nodes + 1), 1
    )


ILLEGAL: dict[str, tuple[Pass | Asked, str]] = {
    "no row": (TargetPass(NOBODY, NOBODY, Forest.roots(0)), "at least one request"),
    "fewer trees than rows": (
        TargetPass(ints(DECODING, HALFWAY), ints(1, 1), ROOT),
        "it has 2 requests, tokens for 2, 1 trees",
    ),
    "a row twice": (TargetPass(ints(DECODING, DECODING), ints(1, 1), TWO), "request 2 twice"),
    "not arrived": (TargetPass(ints(LATER), ints(1), ROOT), "request 1, which has not arrived"),
    "finished": (TargetPass(ints(FINISHED), ints(1), ROOT), "request 3, which has finished"),
    "beyond the last id": (TargetPass(ints(0, 5), ints(1, 1), TWO), "request 5, which does not exist"),
    "a negative id": (TargetPass(ints(HALFWAY - 5), ints(1), ROOT), "request -1, which does not exist"),
    "an empty chunk": (
        TargetPass(ints(DECODING), ints(0), ROOT),
        "between one and all of the pending tokens: request 2 is given 0, 1 are",
    ),
    "more than the prompt": (
        TargetPass(ints(DECODING, WAITING), ints(1, 7), TWO),
        "request 0 is given 7, 6 are pending",
    ),
    "a tree behind half a prompt": (verifies(HALFWAY, 1, 1), "not finished: request 4 reads 1 of 2 pending"),
    "evicts who runs": (
        TargetPass(ints(DECODING), ints(1), ROOT, ints(DECODING)),
        "can be evicted: request 2 runs in it",
    ),
    "evicts who holds nothing": (
        TargetPass(ints(DECODING), ints(1), ROOT, ints(WAITING)),
        "can be evicted: request 0 holds none",
    ),
    "evicts somebody twice": (
        TargetPass(ints(DECODING), ints(1), ROOT, ints(HALFWAY, HALFWAY)),
        "request 4 is named twice",
    ),
    "a draft evicts who runs": (DraftPass(ints(DECODING), ints(1), ROOT, evict=ints(DECODING)), "can be evicted"),
    "verifies more than the pool holds": (verifies(DECODING, 1, 200), r"GiB more cache wanted, \S+ GiB of"),
    "drafts more than the pool holds": (extends(DECODING, 200), "GiB more cache wanted"),
    "a draft without tokens": (DraftPass(ints(DECODING), ints(0), ROOT), "without tokens"),
    "feeds the drafter too much": (
        DraftPass(ints(DECODING), ints(2), ROOT),
        "no more tokens than .* lacks: request 2 is given 2 of 1",
    ),
    "extends a root that lags": (
        DraftPass(ints(WAITING), ints(5), ROOT, ints(0), 1),
        "has caught up: request 0 is given 5 of 6 tokens",
    ),
    "feeds a drafter that has caught up": (extends(DECODING, 1, ints(1)), "request 2 is given 1 of 0"),
    **{
        f"extends {leaves}": (
            DraftPass(ints(WAITING, DECODING), ints(6, 1), TWO, ints(*leaves), 1),
            "is no node: the forest has 2",
        )
        for leaves in ((0, 2), (0, 3), (-1, 0))
    },
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_pass_is_refused_and_takes_no_memory(kind: str) -> None:
    work, reason = ILLEGAL[kind]
    ledger = busy()
    work = work(ledger) if callable(work) else work
    before = ledger.pool.used_bytes
    with pytest.raises(IllegalPass, match=reason):
        ledger.reserve(work)
    assert ledger.pool.used_bytes == before


def test_a_pass_that_names_who_was_rejected_says_so() -> None:
    told = requests([0.0], [6], [8])
    ledger = Ledger(1, Memory(14 * 4 - 1, 1, 3, 1))
    ledger.arrive(0, told, 0.0)
    with pytest.raises(IllegalPass, match=r"request 0, which was rejected \(kv_capacity\)"):
        ledger.reserve(TargetPass(ints(0), ints(1), ROOT))
