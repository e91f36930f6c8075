from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.attention.packing import is_causal, pack  # noqa: E402
from profiler.attention.planning import planner  # noqa: E402
from profiler.attention.sdpa import visible  # noqa: E402
from profiler.attention.split import plain_paged  # noqa: E402
from profiler.passes.checks import checked_error, kernel_error  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.passes.layouts import CPU, PASSES, exact, pools  # noqa: E402
from tests.profiler.passes.works import works  # noqa: E402

pytestmark = pytest.mark.torch


def assert_exact(work, share):
    shape, (tables, _), query, keys, values = pools(work, share, 8)
    split = planner("split", shape, 2 * share, device=CPU, dtype=torch.float64)
    found = split.plan(work, pack(work), tables, len(query))(query, keys, values, 0.3)
    torch.testing.assert_close(found, exact(work, share, tables, query, keys, values), atol=1e-12, rtol=1e-12)


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

    if part == "tail":
        monkeypatch.setattr(
            "profiler.attention.operations.plain_tail", lambda query, pools, tail, context, _: context[0]
        )
    else:
        monkeypatch.setattr("profiler.attention.split.plain_paged", wrong)
    assert "attention 'split' is wrong by" in refusal(checked_error, "split", 4, 2, 16, **place)
