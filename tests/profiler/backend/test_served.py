"""What a pair refuses to serve, what clocks say, and what is held of requests."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.attention.pages import NoRoom  # noqa: E402
from profiler.backend.rows import CachedSequences, pages_for  # noqa: E402
from profiler.backend.served import served  # noqa: E402
from profiler.backend.stopwatch import DeviceStopwatch, WallClock  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from specsim.server.kv_cache import Memory  # noqa: E402
from tests.laws.subjects import factory_of  # noqa: E402
from tests.made import hardware, refusal, requests, simulation  # noqa: E402
from tests.profiler.backend.made import for_drafter, real  # noqa: E402
from tests.profiler.backend.pairs import CPU, SHAPE, VOCABULARY, loud, pair, plain_greedy, prompt  # noqa: E402

pytestmark = pytest.mark.torch


def test_a_pair_serves_the_requests_on_one_replica_with_the_kind_of_drafter_that_is_priced():
    simulated = simulation(requests([0.0] * 3, [5] * 3, [9] * 3), [9] * 3, factory_of("vllm_spec"))
    models, prompts = pair(simulated, "separate"), [prompt(row, 5) for row in range(3)]
    for wrong, said in (
        (prompts[:2], "prompts: 2 for 3 requests"),
        ([*prompts[:2], prompts[2][:4]], "prompts: request 2 has 4 tokens; expected its 5"),
        ([prompts[0], prompts[1] + VOCABULARY, prompts[2]], "prompts: request 1 has a token outside 0 to 10"),
    ):
        assert refusal(served, simulated, models, wrong) == said
    expanding = replace(simulated.truth, draft=replace(simulated.truth.draft, expands=True))
    another = "the latency model prices another kind of drafter"
    for changed, said in (
        ({"replicas": 2}, "2 replicas; expected 1: these models have one cache"),
        ({"prefixes": object()}, "prefix_caching: real passes share no blocks; expected false"),
        ({"truth": simulated.truth.looking_up()}, another),
        ({"truth": expanding}, another),
    ):
        assert refusal(served, replace(simulated, **changed), models).startswith(said)
    assert refusal(served, simulated, pair(for_drafter(simulated, "lookup"), "lookup")).startswith(another)


class Wall:
    """A wall clock that sleeping moves on, and whoever works."""

    def __init__(self):
        self.now, self.slept = 50.0, []

    def sleep(self, seconds):
        self.slept.append(seconds)
        self.now += seconds

    def works(self, seconds):
        return lambda: self.sleep(seconds) or self.slept.pop()


def test_the_walls_clock_waits_for_arrivals_and_counts_the_hosts_time():
    wall, now = Wall(), SimpleNamespace(s=2.0)
    inner = DeviceStopwatch(CPU, lambda: wall.now)
    clock = WallClock(inner, lambda: now.s, lambda: wall.now, wall.sleep)
    timed = lambda seconds: clock.timed("target", None, wall.works(seconds))[1]  # noqa: E731
    assert timed(0.25) == 0.25
    assert not wall.slept, "the first request is there"
    now.s = 2.25
    wall.now += 0.5
    assert timed(0.25) == 0.75, "half a second of the host, then the pass"
    wall.now += 0.125
    now.s = 8.0
    assert timed(0.25) == 0.25
    assert wall.slept == [4.875], "nobody had work"
    # Of several passes behind one decision the run's clock tells only the first's beginning.
    assert timed(0.5) == 0.5
    clock.untimed(wall.works(3.0))
    assert timed(0.5) == 0.5, "no server fills a cache, or captures a graph, in the midst of a run"


def test_who_gives_up_leaves_nothing_behind():
    """Two run at a time, and a later request is served when the others have ended or given up."""
    told = requests([0.0] * 5 + [30.0], [5] * 6, [9] * 6)
    factory = factory_of("vllm_spec", max_num_seqs=2)
    ran = real(simulation(told, [9] * 6, factory, truth=hardware(delta=0.5), timeout_s=6.0), "separate")
    assert set(ran.record.rejected.values()) == {"timeout"}
    assert 0 < ran.record.progress.emitted_tokens[list(ran.record.rejected)].max() < 9
    for request in set(range(6)) - set(ran.record.rejected):
        assert tuple(ran.known.output(request).tolist()) == plain_greedy(request % 3, 5, 30)[:9]


def test_rows_hold_their_pages_and_bring_their_keys_back():
    forward = Forward(loud(), SHAPE, pages=5)
    rows = CachedSequences(forward, 3)
    rows.reserve(0, 17)
    rows.reserve(1, 1)
    with pytest.raises(NoRoom, match="a pass needs 2 more pages of KV cache; 1 are free"):
        rows.reserve(2, 20)
    rows.held[0] = 17
    slots = rows.tables([0]).slots(np.zeros(17, np.int64), np.arange(17))
    forward.cache.keys[1][slots] = kept = torch.randn(17, 1, 8, dtype=torch.float64)
    rows.to_host(0)
    assert rows.away == {0}
    with pytest.raises(NoRoom, match="3 are free"):
        rows.reserve(2, 65)
    forward.cache.fill(0)
    rows.reserve(2, 1)
    rows.from_host(0)
    slots = rows.tables([0]).slots(np.zeros(17, np.int64), np.arange(17))
    assert torch.equal(forward.cache.keys[1][slots], kept)
    for request in range(3):
        rows.drop(request)
    rows.reserve(0, 64)


@pytest.mark.parametrize(("block", "expected"), [(4, 26), (24, 9)])
def test_pages_hold_whatever_the_pool_may_give_to_one_model(block, expected):
    """100 tokens: 25 blocks of 4, 4 of 24 with two pages each; and the page of padding."""
    assert pages_for(Memory(300, block, 3, 1), 3, 16) == expected
    assert pages_for(Memory(300, block, 3, 0), 0, 16) == 1
