from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

torch = pytest.importorskip("torch")

from profiler.latency.grids import FULL, QUICK  # noqa: E402
from profiler.passes.attention import page_tokens, planner  # noqa: E402
from profiler.passes.attention_flex import QUERY_BLOCK, Flex, group_arrays, tiling  # noqa: E402
from profiler.passes.attention_sdpa import Sdpa, grouped  # noqa: E402
from profiler.passes.packing import Work, pack  # noqa: E402
from profiler.passes.pages import CacheShape, PageTables, deal  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.profiler.passes.works import seen_by_definition, works  # noqa: E402

pytestmark = pytest.mark.torch
CPU = torch.device("cpu")
WIDTH = 8


def pools(work, share, page, seed=0, width=WIDTH, dtype=torch.float64):
    """Return a cache's shape, tables, and random query, keys and values for 2 key heads."""
    shape = CacheShape(1, 2, width, pages=int(np.ceil(work.key_tokens / page).sum()) + 4, page_tokens=page)
    tables = deal(work, shape, np.random.default_rng(seed))
    generator = torch.Generator().manual_seed(seed)
    draw = {"generator": generator, "dtype": dtype}
    query = torch.randn(work.batched_tokens, 2 * share, width, **draw)
    keys, values = (torch.randn(shape.slots, 2, width, **draw) for _ in range(2))
    return shape, tables, query, keys, values


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
    _, tables, query, keys, values = pools(work, share, page)
    plan = Sdpa(share, device=CPU, dtype=torch.float64).plan(work, pack(work), tables, len(query))
    expected = by_definition(work, tables, query, keys, values, 0.3)
    torch.testing.assert_close(plan(query, keys, values, 0.3), expected, atol=1e-12, rtol=1e-12)


@settings(max_examples=20, deadline=None)
@given(works(), st.sampled_from([1, 3]), st.sampled_from([16, 128]))
def test_flex_with_a_tree_mask_is_sdpa_with_an_additive_one(work, share, page):
    shape, tables, query, keys, values = pools(work, share, page)
    packed = pack(work)
    plan = Flex(shape, compiled=False, device=CPU).plan(work, packed, tables, len(query))
    reference = Sdpa(share, device=CPU, dtype=torch.float64).plan(work, packed, tables, len(query))
    torch.testing.assert_close(
        plan(query, keys, values, 0.3), reference(query, keys, values, 0.3), atol=1e-12, rtol=1e-12
    )


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("page", [16, 128])
def test_compiled_flex_visits_the_blocks_it_must(page):
    """Compiled, the kernel reads the block tables that the plain one ignores."""
    work = Work.of([300, 5, 0, 256], [1, 140, 3, 1], [0, 0, 0, 3], [-1, 0, 0, -1])
    shape, tables, query, keys, values = pools(work, 2, page, width=16, dtype=torch.float32)
    packed = pack(work)
    reference = Sdpa(2, device=CPU, dtype=torch.float32).plan(work, packed, tables, len(query))
    plan = Flex(shape, compiled=True, device=CPU).plan(work, packed, tables, len(query))
    torch.testing.assert_close(
        plan(query, keys, values, 0.25), reference(query, keys, values, 0.25), atol=1e-5, rtol=1e-5
    )


def test_flex_visits_a_rows_own_pages_up_to_the_last_key_seen_in_tables_of_the_longest_row():
    """No block goes unmasked: the decode kernel would split the keys by the pool instead of the row."""
    work = Work.of([300, 5], [1, 140])
    shape, tables, *_ = pools(work, 2, 128)
    shape = replace(shape, pages=500)
    packed = pack(work)
    arrays, _ = group_arrays(np.array([0]), work, packed, tables)
    assert arrays["blocks"].tolist() == [[[tables.pages[0].tolist()]]]
    assert arrays["count"].tolist() == [[[3]]]
    arrays, _ = group_arrays(np.array([1]), work, packed, tables)
    assert arrays["count"].tolist() == [[[2, 2]]]
    assert arrays["blocks"].shape == (1, 1, 2, 2)
    (long, short) = Flex(shape, compiled=False, device=CPU).plan(work, packed, tables, 141)._masks
    assert long.kv_indices.shape == (1, 1, 1, 500)
    assert long.full_kv_num_blocks is short.full_kv_num_blocks is None


@pytest.mark.parametrize("share", [1, 3, 4, 5, 7, 8])
@pytest.mark.parametrize("queries", [1, 4, 7, 16, 40, 64, 130])
def test_flex_asks_for_kernels_that_exist(share, queries):
    """FlexAttention has none for short queries whose tile is no divisor of the mask's block, and none that share well
    but for a power of two of heads; it falls back to one tile of 128 for each head."""
    work = Work.of([30, 5], [queries, queries])
    shape, tables, query, keys, values = pools(work, share, 128)
    packed = pack(work)
    plan = Flex(shape, compiled=False, device=CPU).plan(work, packed, tables, len(query))
    plain, asked = plan._kernel, []

    def kernel(query, *tensors, kernel_options, **options):
        asked.append((query.shape, kernel_options))
        return plain(query, *tensors, kernel_options=kernel_options, **options)

    plan._kernel = kernel
    reference = Sdpa(share, device=CPU, dtype=torch.float64).plan(work, packed, tables, len(query))
    torch.testing.assert_close(
        plan(query, keys, values, 0.3), reference(query, keys, values, 0.3), atol=1e-12, rtol=1e-12
    )
    [((_, heads, padded, _), options)] = asked
    if padded >= QUERY_BLOCK:
        assert (heads, options) == (2 * share, {})
        return
    together = heads // 2
    assert together.bit_count() == 1
    assert QUERY_BLOCK % options["BLOCK_M"] == 0
    assert options["BLOCK_M"] % together == 0
    assert options["BLOCK_M"] >= min(together * padded, QUERY_BLOCK)
    assert options["BLOCK_M"] <= 16 * options["num_warps"]


@pytest.mark.parametrize(("capability", "stages"), [((8, 0), {}), ((9, 0), {"num_stages": 3})])
def test_small_tiles_load_ahead_where_the_device_is_made_for_it(monkeypatch, capability, stages):
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: capability)
    pipelined = Flex(CacheShape(1, 2, 8, 4, 128), compiled=False, device=torch.device("cuda"))._pipelined
    assert tiling(1, 4, pipelined=pipelined) == (4, {"BLOCK_M": 16, "num_warps": 2, **stages})
    assert tiling(16, 7, pipelined=pipelined) == (8, {"BLOCK_M": 128, "num_warps": 8})


def test_tables_of_few_keys_are_of_one_width_so_that_fewer_kernels_are_compiled():
    for work in (Work.of([30], [3]), Work.of([30], [1], [0, 0], [-1, 0])):
        _, tables, *_ = pools(work, 1, 128)
        arrays, _ = group_arrays(np.array([0]), work, pack(work), tables)
        assert arrays["opens"].shape == arrays["closes"].shape == (1, 16)
        assert arrays["closes"][0, 3:].max() == 0


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


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
def test_a_plan_takes_over_another_pass_of_the_same_work(kernel):
    work = Work.of([20, 3], [1, 1], [0, 0, 1], [-1, 0, -1])
    shape, tables, query, keys, values = pools(work, 2, 16)
    other = deal(work, shape, np.random.default_rng(9))
    assert (other.pages != tables.pages).any()
    made = planner(kernel, shape, 4, device=CPU, dtype=torch.float64)
    first, second = (made.plan(work, pack(work), each, len(query)) for each in (tables, other))
    expected = second(query, keys, values, 1.0)
    assert (first(query, keys, values, 1.0) - expected).abs().max() > 0.1
    first.load(second)
    torch.testing.assert_close(first(query, keys, values, 1.0), expected, atol=0, rtol=0)


@pytest.mark.parametrize("kernel", ["sdpa", "flex"])
def test_padding_queries_change_nothing(kernel):
    work = Work.of([20], [1], [0, 0], [-1, -1])
    shape, tables, query, keys, values = pools(work, 2, 16)
    made = planner(kernel, shape, 4, device=CPU, dtype=torch.float64)
    expected = made.plan(work, pack(work), tables, 3)(query, keys, values, 1.0)
    padded = torch.cat([query, torch.full((5, 4, WIDTH), 7.0, dtype=torch.float64)])
    out = made.plan(work, pack(work), tables, 8)(padded, keys, values, 1.0)
    assert out.shape == padded.shape
    torch.testing.assert_close(out[:3], expected, atol=0, rtol=0)


def test_rows_are_grouped_by_like_queries_within_the_limit():
    groups = grouped(np.array([1, 9, 1, 16, 0, 1]), np.array([10, 20, 30, 20, 5, 10]), limit=40)
    assert [group.tolist() for group in groups] == [[0, 5], [2], [1, 3]]


def test_unknown_kernel():
    with pytest.raises(SpecsimError, match="attention 'flx' is unknown; did you mean 'flex'"):
        planner("flx", CacheShape(1, 2, 8, 4, 16), 4, device=CPU, dtype=torch.float32)


def test_pages_are_the_kernels_own_blocks_on_a_gpu_only():
    assert page_tokens("flex", torch.device("cuda")) == 128
    assert page_tokens("sdpa", torch.device("cuda")) == 16
    assert page_tokens("auto", CPU) == 16
