"""The order of a queue, in which those that can get no slot are left out before it is sorted."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from specsim.schedulers.parts.queues import nearest


@given(data=st.data(), most=st.integers(1, 12))
def test_the_nearest_are_the_first_of_a_sort(data: st.DataObject, most: int) -> None:
    count = data.draw(st.integers(0, 30))
    few = st.lists(st.sampled_from([0.0, 1.0, 2.0, np.inf, np.nan]), min_size=count, max_size=count)
    one, two = (np.array(data.draw(few), dtype=np.float64) for _ in range(2))
    last = np.array(data.draw(st.permutations(range(count))), dtype=np.int64)
    assert sorted(nearest((one, two, last), most).tolist()) == sorted(np.lexsort((last, two, one))[:most].tolist())
