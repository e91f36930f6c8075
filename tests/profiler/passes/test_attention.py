"""Paged SDPA, FlexAttention and split attention against the definition, and what a kernel check sees of them."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.attention.flex import QUERY_BLOCK, Flex, group_arrays  # noqa: E402
from profiler.attention.packing import Work, is_causal, pack  # noqa: E402
from profiler.attention.pages import PageTables  # noqa: E402
from profiler.attention.planning import planner  # noqa: E402
from profiler.attention.sdpa import grouped, visible  # noqa: E402
from profiler.attention.split import plain_paged  # noqa: E402
from profiler.latency.points import FULL, QUICK  # noqa: E402
from profiler.passes.checks import checked_error, kernel_error  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.passes.layouts import CPU, exact, pools  # noqa: E402
from tests.profiler.passes.test_packing import seen_by_definition, works  # noqa: E402

pytestmark = pytest.mark.torch


def by_definition(work, tables, query, keys, values, scaling):
    """Attend one query and one head at a time to the keys found by walking up the tree."""
    out = torch.empty_like(query)
    share = query.shape[1] // keys.shape[1]
    for number, (row, places) in enumerate(seen_by_definition(work)):
        slots = torch.from_numpy(tables.slots(np.full(len(places), row), np.array(places)))
        for head in range(query.shape[1]):
            scores = keys[slots, head // share] @ query[number, head] * scaling
            out[number, head] = scores.softmax(0) @ values[slots, head // share]
    return out


@settings(max_examples=60, deadline=None)
@given(works(), st.sampled_from([1, 3]), st.sampled_from([4, 16]))
def test_paged_sdpa_is_attention_by_definition(work, share, page):
    _, (tables, _), query, keys, values = pools(work, share, 8, page=page)
    expected = by_definition(work, tables, query, keys, values, 0.3)
    torch.testing.assert_close(exact(work, share, tables, query, keys, values), expected, atol=1e-12, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(works(), st.sampled_from([1, 3]), st.sampled_from([16, 128]))
def test_flex_with_a_tree_mask_is_sdpa_with_an_additive_one(work, share, page):
    shape, (tables, _), query, keys, values = pools(work, share, 8, page=page)
    plan = Flex(shape, compiled=False, device=CPU).plan(work, pack(work), tables, len(query))
    expected = exact(work, share, tables, query, keys, values)
    torch.testing.assert_close(plan(query, keys, values, 0.3), expected, atol=1e-12, rtol=1e-12)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_compiled_flex_visits_the_blocks_it_must():
    """Compiled, the kernel reads the block tables that the plain one ignores."""
    work = Work.of([300, 5, 0, 256], [1, 140, 3, 1], [0, 0, 0, 3], [-1, 0, 0, -1])
    shape, (tables, _), query, keys, values = pools(work, 2, 16, dtype=torch.float32, page=128)
    plan = Flex(shape, compiled=True, device=CPU).plan(work, pack(work), tables, len(query))
    expected = exact(work, 2, tables, query, keys, values).float()
    torch.testing.assert_close(plan(query, keys, values, 0.3), expected, atol=1e-5, rtol=1e-5)


def test_flex_visits_a_rows_own_pages_up_to_the_last_key_seen_in_tables_of_the_longest_row():
    """No block goes unmasked: the decode kernel would split the keys by the pool instead of the row."""
    work = Work.of([300, 5], [1, 140])
    shape, (tables, _), *_ = pools(work, 2, 8, page=128)
    shape = replace(shape, pages=500)
    packed = pack(work)
    arrays, _ = group_arrays(np.array([0]), work, packed, tables)
    assert (arrays["blocks"].tolist(), arrays["count"].tolist()) == ([[[tables.pages[0].tolist()]]], [[[3]]])
    arrays, _ = group_arrays(np.array([1]), work, packed, tables)
    assert (arrays["count"].tolist(), arrays["blocks"].shape) == ([[[2, 2]]], (1, 1, 2, 2))
    (long, short) = Flex(shape, compiled=False, device=CPU).plan(work, packed, tables, 141)._masks
    assert long.kv_indices.shape == (1, 1, 1, 500)
    assert long.full_kv_num_blocks is short.full_kv_num_blocks is None


@pytest.mark.parametrize("share", [1, 3, 8])
@pytest.mark.parametrize("queries", [1, 7, 130])
def test_flex_asks_for_kernels_that_exist(share, queries):
    """FlexAttention has none for short queries whose tile is no divisor of the mask's block, and none that share well
    but for a power of two of heads; it falls back to one tile of 128 for each head."""
    work = Work.of([30, 5], [queries, queries])
    shape, (tables, _), query, keys, values = pools(work, share, 8, page=128)
    plan = Flex(shape, compiled=False, device=CPU).plan(work, pack(work), tables, len(query))
    plain, asked = plan._kernel, []

    def kernel(query, *tensors, kernel_options, **options):
        asked.append((query.shape, kernel_options))
        return plain(query, *tensors, kernel_options=kernel_options, **options)

    plan._kernel = kernel
    expected = exact(work, share, tables, query, keys, values)
    torch.testing.assert_close(plan(query, keys, values, 0.3), expected, atol=1e-12, rtol=1e-12)
    [((_, heads, padded, _), options)] = asked
    if padded >= QUERY_BLOCK:
        assert (heads, options) == (2 * share, {})
        return
    together = heads // 2
    assert (together.bit_count(), QUERY_BLOCK % options["BLOCK_M"], options["BLOCK_M"] % together) == (1, 0, 0)
    assert options["BLOCK_M"] >= min(together * padded, QUERY_BLOCK)
    assert options["BLOCK_M"] <= 16 * options["num_warps"]


SWEPT = [(FULL, "target", 39), (FULL, "draft", 23), (QUICK, "target", 5), (QUICK, "draft", 4)]


@pytest.mark.parametrize(("grid", "role", "most"), SWEPT)
def test_a_sweep_compiles_few_kernels(grid, role, most):
    """Each takes seconds on a GPU's host: padded sizes are shared between kinds of pass."""
    kernels = set()
    for point in grid.passes(role):
        work = point.work()
        packed, tables = pack(work), PageTables(np.zeros((work.rows, 64), np.int64), 128)
        for rows in grouped(work.new_tokens, work.key_tokens, limit=2**62):
            arrays, _ = group_arrays(rows, work, packed, tables)
            kernels.add((arrays["point"].shape, arrays["opens"].shape))
    assert len(kernels) <= most


def test_rows_are_grouped_by_like_queries_within_the_limit():
    groups = grouped(np.array([1, 9, 1, 16, 0, 1]), np.array([10, 20, 30, 20, 5, 10]), limit=40)
    assert [group.tolist() for group in groups] == [[0, 5], [2], [1, 3]]


@settings(max_examples=30, deadline=None)
@given(works(), st.sampled_from([1, 3]))
def test_split_attention_to_context_and_tail_is_attention_to_all(work, share):
    shape, (tables, _), query, keys, values = pools(work, share, 8)
    split = planner("split", shape, 2 * share, device=CPU, dtype=torch.float64)
    found = split.plan(work, pack(work), tables, len(query))(query, keys, values, 0.3)
    torch.testing.assert_close(found, exact(work, share, tables, query, keys, values), atol=1e-12, rtol=1e-12)


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
        monkeypatch.setattr("profiler.attention.operations.plain_tail", lambda *given: given[3][0])
    else:
        monkeypatch.setattr("profiler.attention.split.plain_paged", wrong)
    assert "attention 'split' is wrong by" in refusal(checked_error, "split", 4, 2, 16, **place)
