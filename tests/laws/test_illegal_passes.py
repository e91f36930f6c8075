"""The ledger refuses every pass that no server could run, and says why."""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

from specsim.core.passes import DraftPass, Emitted, Pass, TargetPass
from specsim.core.trees import Forest
from specsim.errors import IllegalPass
from specsim.server.kv_cache import Memory
from specsim.server.ledger import Ledger
from tests.made import drafted, memory, requests

ROOT = Forest.roots(1)
WAITING, LATER, DECODING, FINISHED, HALFWAY = range(5)
"""The requests of `busy`: waiting, not arrived, decoding with a drafter's cache, finished, half through its prompt."""


def ints(*values: int) -> Any:
    return np.array(values, dtype=np.int64)


def verifying(requests: Sequence[int], chunks: Sequence[int], *evict: int) -> TargetPass:
    return TargetPass(ints(*requests), ints(*chunks), Forest.roots(len(requests)), ints(*evict))


def drafting(requests: Sequence[int], chunks: Sequence[int], *leaves: int, **more: Any) -> DraftPass:
    return DraftPass(ints(*requests), ints(*chunks), Forest.roots(len(requests)), ints(*leaves), 1, **more)


def busy() -> Ledger:
    told = requests([0.0] * 5, [6] * 5, [8] * 5)
    ledger = Ledger(5, memory(told, factor=3.0, block_tokens=1))
    for request in (WAITING, DECODING, FINISHED, HALFWAY):
        ledger.arrive(request, told, 0.0)
    first, prompt = verifying([DECODING, FINISHED, HALFWAY], [6, 6, 4]), drafting([DECODING], [6])
    ledger.reserve(prompt)
    ledger.commit_draft(prompt, ROOT, 0.0)
    ledger.reserve(first)
    none, finished = ints(0, 0, 0), np.array([False, True, False])
    ledger.commit_verify(first, Emitted(ints(1, 1, 0), none, none, finished), 0.0, 1.0)
    ledger.end_step()
    return ledger


Asked = Callable[[Ledger], Pass]
"""A pass over trees that are drafted first."""


def verifies(request: int, chunk: int, nodes: int) -> Asked:
    return lambda ledger: TargetPass(ints(request), ints(chunk), drafted(ledger, ints(request), nodes))


def extends(request: int, nodes: int, *chunks: int) -> Asked:
    leaves = np.arange(1, nodes + 1)
    return lambda ledger: DraftPass(ints(request), ints(*chunks), drafted(ledger, ints(request), nodes), leaves, 1)


BETWEEN = "between one and all of the pending tokens: request 2 is given 0, 1 are"
TOO_MUCH = "no more tokens than .* lacks: request 2 is given 2 of 1"
ILLEGAL: dict[str, tuple[Pass | Asked, str]] = {
    "no row": (verifying([], []), "at least one request"),
    "fewer trees": (TargetPass(ints(2, 4), ints(1, 1), ROOT), "it has 2 requests, tokens for 2, 1 trees"),
    "a row twice": (verifying([DECODING, DECODING], [1, 1]), "request 2 twice"),
    "not arrived": (verifying([LATER], [1]), "request 1, which has not arrived"),
    "finished": (verifying([FINISHED], [1]), "request 3, which has finished"),
    "beyond the last id": (verifying([0, 5], [1, 1]), "request 5, which does not exist"),
    "a negative id": (verifying([HALFWAY - 5], [1]), "request -1, which does not exist"),
    "an empty chunk": (verifying([DECODING], [0]), BETWEEN),
    "more than the prompt": (verifying([DECODING, WAITING], [1, 7]), "request 0 is given 7, 6 are pending"),
    "a tree behind half a prompt": (verifies(HALFWAY, 1, 1), "not finished: request 4 reads 1 of 2 pending"),
    "evicts who runs": (verifying([DECODING], [1], DECODING), "can be evicted: request 2 runs in it"),
    "evicts who holds nothing": (verifying([DECODING], [1], WAITING), "can be evicted: request 0 holds none"),
    "evicts somebody twice": (verifying([DECODING], [1], HALFWAY, HALFWAY), "request 4 is named twice"),
    "a draft evicts who runs": (drafting([DECODING], [1], evict=ints(DECODING)), "can be evicted"),
    "verifies more than the pool holds": (verifies(DECODING, 1, 200), r"GiB more cache wanted, \S+ GiB of"),
    "drafts more than the pool holds": (extends(DECODING, 200), "GiB more cache wanted"),
    "a draft without tokens": (drafting([DECODING], [0]), "without tokens"),
    "feeds the drafter too much": (drafting([DECODING], [2]), TOO_MUCH),
    "extends a root that lags": (drafting([WAITING], [5], 0), "has caught up: request 0 is given 5 of 6 tokens"),
    "feeds a drafter that has caught up": (extends(DECODING, 1, 1), "request 2 is given 1 of 0"),
    **{
        f"extends {leaves}": (drafting([WAITING, DECODING], [6, 1], *leaves), "is no node: the forest has 2")
        for leaves in ((0, 2), (0, 3), (-1, 0))
    },
}


@pytest.mark.parametrize("kind", ILLEGAL)
def test_an_illegal_pass_is_refused_and_takes_no_memory(kind):
    work, reason = ILLEGAL[kind]
    ledger = busy()
    work = work(ledger) if callable(work) else work
    before = ledger.pool.used_bytes
    with pytest.raises(IllegalPass, match=reason):
        ledger.reserve(work)
    assert ledger.pool.used_bytes == before


def test_a_pass_that_names_who_was_rejected_says_so():
    told = requests([0.0], [6], [8])
    ledger = Ledger(1, Memory(14 * 4 - 1, 1, 3, 1))
    ledger.arrive(0, told, 0.0)
    with pytest.raises(IllegalPass, match=r"request 0, which was rejected \(kv_capacity\)"):
        ledger.reserve(verifying([0], [1]))
