from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.attention.packing import is_causal, pack  # noqa: E402
from profiler.attention.planning import planner  # noqa: E402
from profiler.attention.sdpa import Sdpa, visible  # noqa: E402
from profiler.attention.split import plain_paged  # noqa: E402
from profiler.passes.checks import checked_error, kernel_error  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.passes.layouts import PASSES, pools  # noqa: E402
from tests.profiler.passes.works import works  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")


def split(shape, heads):
    return planner("split", shape, heads, device=CPU, dtype=torch.float64)


def assert_exact(work, share):
    shape, (tables, _), query, keys, values = pools(work, share, 8)
    packed = pack(work)
    exact = Sdpa(share, device=CPU, dtype=torch.float64).plan(work, packed, tables, len(query))
    found = split(shape, 2 * share).plan(work, packed, tables, len(query))(query, keys, values, 0.3)
    torch.testing.assert_close(found, exact(query, keys, values, 0.3), atol=1e-12, rtol=1e-12)


@pytest.mark.parametrize(
    ("name", "share"), [*((name, 7) for name in PASSES), *(("tree of 7", share) for share in (1, 8))]
)
def test_context_and_tail_are_attention_to_all(name, share):
    assert_exact(PASSES[name], share)


@settings(max_examples=30, deadline=None)
@given(works(), st.sampled_from([1, 3]))
def test_any_pass_is_attention_to_all(work, share):
    assert_exact(work, share)


def causal_by_definition(work, packed):
    """Whether each query of a row sees the keys up to its own, and the last of a row sees every key."""
    for row in range(work.rows):
        queries = np.arange(packed.start[row], packed.start[row + 1])[None]
        if queries.size:
            key = np.arange(work.key_tokens[row])
            seen = visible(np.array([row]), work, packed, queries, key)[0]
            until = work.key_tokens[row] - queries.size + np.arange(queries.size)
            if (seen != (key <= until[:, None])).any():
                return False
    return True


@settings(max_examples=200, deadline=None)
@given(works(context=6, chunk=3, nodes=4))
def test_a_pass_is_causal_where_a_mask_would_hide_nothing_else(work):
    """A pass of chains takes no mask; a tree's cached nodes alone may make it one although no query would notice."""
    packed = pack(work)
    if is_causal(work, packed):
        assert causal_by_definition(work, packed)
    elif causal_by_definition(work, packed):
        assert work.node_cached.any()


@pytest.mark.parametrize("part", ["causal", "context", "tail"])
def test_the_kernel_check_compares_both_ways_of_a_pass(part, monkeypatch):
    """Passes without a tree take another way, which a check of trees alone would not see."""
    place = {"device": CPU, "dtype": torch.float32}
    assert kernel_error("split", 4, 2, 16, **place) < 1e-5

    def wrong(query, pools, span, scaling):
        out, lse = plain_paged(query, pools, span, scaling)
        bad = span.causal == (part == "causal")
        return (out * 1.2 if bad else out), lse

    def blind(query, pools, tail, context, scaling):
        return context[0]

    patched = {"tail": ("plain_tail", blind)}.get(part, ("plain_paged", wrong))
    module = "profiler.attention.operations" if part == "tail" else "profiler.attention.split"
    monkeypatch.setattr(f"{module}.{patched[0]}", patched[1])
    assert "attention 'split' is wrong by" in refusal(checked_error, "split", 4, 2, 16, **place)
