"""Copies of plain values share nothing that can change."""

from __future__ import annotations

from copy import deepcopy

from hypothesis import given
from hypothesis import strategies as st

from specsim.files.checked_mapping import copied

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=3)
PLAIN = st.recursive(SCALARS, lambda each: st.lists(each, max_size=3) | st.dictionaries(st.text(max_size=3), each))


def changed(value: object) -> None:
    """Change every mapping and list within a value."""
    inside = list(value.values()) if isinstance(value, dict) else list(value) if isinstance(value, list) else []
    for each in inside:
        changed(each)
    if isinstance(value, dict):
        value["new"] = 1
    elif isinstance(value, list):
        value.append(1)


@given(PLAIN)
def test_what_happens_to_a_copy_does_not_reach_what_was_copied(value: object) -> None:
    before, copy = deepcopy(value), copied(value)
    assert copy == before
    changed(copy)
    assert value == before
