"""The paged pool against a recount: whole blocks, all or nothing, everything back at the end."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim.server.kv_cache import DRAFT, TARGET, KvPool, Memory, OutOfMemory


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    held=st.lists(st.integers(0, 40), min_size=1, max_size=6),
    more=st.lists(st.integers(0, 40), min_size=6, max_size=6),
    spare=st.integers(0, 400),
    block=st.sampled_from((1, 4, 16)),
)
def test_what_surely_fits_fits(held, more, spare, block):
    """The quick check never says yes to what exact counting refuses."""
    ids = np.arange(len(held))
    now, grown = np.array(held), np.array(held) + np.array(more[: len(held)])
    size = sum(Memory(0, block, 3, 1).bytes_of(each, each) for each in held) + spare
    pool = KvPool(Memory(size, block, 3, 1), *np.zeros((2, 2, len(held)), dtype=np.int64))
    pool.hold(TARGET, ids, now)
    pool.hold(DRAFT, ids, now)
    added = int((grown - now).sum())
    if pool.surely_fits(len(held), added, added):
        assert int(pool.growth_bytes(ids, grown, grown).sum()) <= pool.free_bytes
    assert pool.surely_fits(len(held), 0, 0) or spare < 4 * len(held) * block


def test_what_is_wanted_and_what_is_free_are_told_in_gib():
    pool = KvPool(Memory(3 << 30, 1, 1 << 28, 1), *np.zeros((2, 2, 1), dtype=np.int64))
    pool.hold(TARGET, np.array([0]), np.array([2]))
    with pytest.raises(OutOfMemory, match=r"^3 GiB more cache wanted, 2\.5 GiB of 3 GiB free$"):
        pool.hold(TARGET, np.array([0]), np.array([14]))
