"""Laws of the prefix cache, for every scheduler: what is shared, what it takes of the pool, what it must not change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from specsim.cluster.split import Splitting
from specsim.core.request import Ints, Prefixes, Requests
from specsim.server.kv_cache import DRAFT, TARGET
from specsim.server.view import LedgerView
from specsim.simulation import Simulation, run
from tests.laws.every import watched
from tests.laws.subjects import KINDS, NAMES, factory_of
from tests.made import memory, requests, simulation, simulations

law = settings(max_examples=2, suppress_health_check=[HealthCheck.too_slow])


def hashed(told: Requests, families: list[int], block_tokens: int, outputs: Ints | None = None) -> Prefixes:
    """Return hashes by which two texts of one family are alike as far as the shorter goes: prompts, with outputs."""
    blocks = -(-(told.prompt_tokens + (0 if outputs is None else outputs)) // block_tokens)
    rows = [1000 * family + np.arange(count) for family, count in zip(families, blocks, strict=True)]
    return Prefixes(np.concatenate(rows), np.cumsum(blocks) - blocks, blocks, block_tokens, outputs is not None)


@st.composite
def sharing(draw: st.DrawFn) -> Simulation:
    """Draw a simulation whose prompts begin alike in up to three families, without a scheduler."""
    drawn = draw(simulations(20))
    size = len(drawn.requests)
    families = draw(st.lists(st.integers(1, 3), min_size=size, max_size=size))
    block_tokens = draw(st.sampled_from((1, 2))) * drawn.memory.block_tokens
    outputs = drawn.ground_truth.output_tokens if draw(st.booleans()) else None
    return replace(drawn, prefixes=hashed(drawn.requests, families, block_tokens, outputs))


def recount(view: LedgerView) -> None:
    """Count the pool again from what each request holds and shares, and the blocks that nobody uses."""
    pool, cache, everyone = view._ledger.pool, view._ledger.caches.prefix, view._ledger.queues.ids
    each = [(model, request) for model in (TARGET, DRAFT) for request in everyone.tolist()]
    used = {(model, key) for model, one in each for key in cache._hashes(one, int(cache._used[model, one]))}
    shared = sum(pool.bytes_of(model, cache._tokens) for model, _ in used)
    assert pool.used_bytes == shared + int(pool.held_bytes(everyone).sum())
    assert {key for key, users in cache._users.items() if users} == used
    assert cache._idle.keys() == cache._users.keys() - used
    assert cache._idle_bytes == sum(pool.bytes_of(model, cache._tokens) for model, _ in cache._idle)


@pytest.mark.parametrize("name", NAMES)
@law
@given(drawn=sharing())
def test_every_scheduler_emits_the_same_and_the_pool_is_kept(name: str, drawn: Simulation) -> None:
    simulated = replace(drawn, scheduler=factory_of(name))

    seen = watched(simulated, inspect=lambda view, *_: recount(view))
    plain = run(replace(simulated, prefixes=None))
    assert np.array_equal(seen.record.progress.emitted_tokens, plain.progress.emitted_tokens)
    for view in seen.views:
        cache = view._ledger.caches.prefix
        assert view._ledger.pool.used_bytes == 0
        assert not view._ledger.pool.blocks.any()
        assert not cache._used.any()
        assert cache._idle_bytes <= view.capacity_bytes
        assert not [*cache._waiting, *cache._watched]
        assert 0 <= cache.hits <= cache.queries
        assert (cache._hit_tokens % cache._tokens == 0).all()


@law
@given(drawn=sharing())
def test_with_room_for_all_a_prompt_finds_what_has_been_read_before_it_begins(drawn: Simulation) -> None:
    roomy = memory(drawn.requests, 1e4, drawn.memory.block_tokens)
    of_prompts = replace(drawn.prefixes, of_outputs=False)
    seen = watched(replace(drawn, replicas=1, memory=roomy, scheduler=factory_of("continuous"), prefixes=of_prompts))
    prefixes, begun, read, found = drawn.prefixes, set[int](), set[int](), {}
    for step in seen.heard[0]:
        for request in step.work.requests.tolist():
            if request in begun:
                continue
            begun.add(request)
            first, prompt = prefixes.first[request], int(drawn.requests.prompt_tokens[request])
            hashes = prefixes.hashes[first : first + (prompt - 1) // prefixes.block_tokens].tolist()
            there = [each in read for each in hashes]
            found[request] = (there.index(False) if False in there else len(there)) * prefixes.block_tokens
        for request in step.work.requests.tolist():
            first, prompt = prefixes.first[request], int(drawn.requests.prompt_tokens[request])
            read |= set(prefixes.hashes[first : first + prompt // prefixes.block_tokens].tolist())
    cache = seen.views[0]._ledger.caches.prefix
    assert {request: int(cache._hit_tokens[request]) for request in found} == found


def test_the_end_of_the_prompt_used_longest_ago_goes_first() -> None:
    """Room for five blocks: what the third prompt needs is taken from the end of the first, of both models alike."""
    told = requests([0.0, 100.0, 200.0, 300.0], [12, 8, 4, 12], [1] * 4)
    prefixes = Prefixes(np.array([1, 2, 3, 11, 12, 21, 1, 2, 3]), np.array([0, 3, 5, 6]), np.array([3, 2, 1, 3]), 4)
    pool = replace(memory(told, 1.0, draft_bytes=0), capacity_bytes=5 * 4 * 3)
    record = run(simulation(told, [1] * 4, factory_of("continuous"), pool=pool, prefixes=prefixes))
    assert record.passes["prefill_tokens"].tolist() == [12, 8, 4, 4]
    assert record.passes["context_tokens"].tolist() == [0, 0, 0, 8]
    assert (record.totals.prefix_queries, record.totals.prefix_hits) == (36, 8)
    answering = requests([0.0, 100.0, 200.0, 300.0], [8, 4, 4, 12], [1, 9, 1, 1])  # Two blocks of an answer stay, too.
    named = Prefixes(np.array([1, 2, 11, 21, 1, 2, 3]), np.array([0, 2, 3, 4]), np.array([2, 1, 1, 3]), 4)
    record = run(simulation(answering, [1, 9, 1, 1], factory_of("continuous"), pool=pool, prefixes=named))
    assert record.totals.prefix_hits == 4
    told, pool = replace(told, max_tokens=np.full(4, 4)), replace(memory(told, 1.0), capacity_bytes=5 * 4 * 4)
    passes = run(simulation(told, [4] * 4, factory_of("vllm_spec"), pool=pool, prefixes=prefixes)).passes
    drafts = passes["kind"] == 0
    assert passes["prefill_tokens"][drafts].sum() == passes["prefill_tokens"][~drafts].sum()


def test_of_split_servers_those_that_read_prompts_keep_them() -> None:
    """The second of two prompts that are alike reads its last block; its whole cache moves all the same."""
    told = requests([0.0, 100.0], [12, 12], [4, 4])
    split = {"replicas": 2, "split": Splitting(1, np.inf), "prefixes": hashed(told, [1, 1], 4)}
    record = run(simulation(told, [4, 4], factory_of("vllm_spec"), pool=memory(told, 9.0), **split))
    read = (record.passes["replica"] == 0) & (record.passes["kind"] == 1)
    assert record.passes["prefill_tokens"][read].tolist() == [12, 4]
    assert record.moves.moved_bytes[0] == record.moves.moved_bytes[1] > 0
    assert (record.totals.prefix_queries, record.totals.prefix_hits) == (24, 8)


@pytest.mark.parametrize("name", KINDS)
def test_prompts_that_share_nothing_are_served_as_without_a_cache(name: str) -> None:
    """Short of memory, with prompts of whole blocks: what nobody shares is freed by an eviction as before."""
    size = 8
    prompts = [8, 16, 24, 8, 24, 16, 8, 24]
    told = requests([0.01 * each for each in range(size)], prompts, [8] * size, [each % 3 for each in range(size)])
    simulated = simulation(told, [8] * size, factory_of(name), pool=memory(told, 2.0))
    shared = run(replace(simulated, prefixes=hashed(told, list(range(1, size + 1)), 4)))
    plain = run(simulated)
    assert shared.progress.emitted_tokens.tolist() == [8] * size
    assert shared.progress.preemptions.sum() <= plain.progress.preemptions.sum()
    if not plain.progress.preemptions.any():
        assert np.array_equal(shared.progress.finish_s, plain.progress.finish_s)


def test_two_that_share_all_their_prompt_can_be_evicted() -> None:
    told = requests([0.0, 0.0, 0.001], [24, 24, 32], [8] * 3, [2, 2, 0])
    pool = replace(memory(told, 1.0), capacity_bytes=14 * 4 * 4)
    for name in ("priority", "srpt", "stta", "continuous", "vllm_spec"):
        simulated = simulation(told, [8] * 3, factory_of(name), pool=pool, prefixes=hashed(told, [1, 1, 2], 4))
        assert run(simulated).progress.emitted_tokens.tolist() == [8] * 3, name


def test_later_rows_of_a_pass_use_what_earlier_ones_compute() -> None:
    """Whole blocks of 4 but the last token's; 30 tokens hold half of the third prompt, which lacks fewer then."""
    told, cut, reserved = requests([0.0] * 4, [12, 12, 11, 14], [3] * 4), {"max_num_batched_tokens": 30}, "max_tokens"
    each = {"pool": memory(told, 9.0), "prefixes": hashed(told, [1] * 4, 4)}
    for name, limits, read in (("vllm", {}, [21]), ("vllm_spec", cut, [19, 2]), ("vllm", {"reserves": reserved}, [49])):
        record = run(simulation(told, [3] * 4, factory_of(name, **limits), **each))
        found = record.passes["prefill_tokens"][record.passes["kind"] == 1]
        assert (found[found > 0].tolist(), record.totals.prefix_hits) == (read, 49 - sum(read))
