"""The paged pool against a recount; prompts whose beginning is cached: what is computed, and what files say of it."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specsim import simulate
from specsim.server.kv_cache import DRAFT, TARGET, KvPool, Memory, OutOfMemory
from specsim.simulation import run
from tests.laws.subjects import NAMES, factory_of
from tests.made import hardware, memory, refusal, requests, simulation


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


def test_only_the_rest_of_a_prompt_is_computed():
    def served(cached):
        told = requests([0.0, 50.0, 100.0, 150.0], [40, 40, 9, 1], [4] * 4, cached_tokens=cached)
        return run(simulation(told, [3] * 4, factory_of("continuous"), truth=hardware(0.0, 1e-3, 0.01)))

    found, plain = served([0, 32, 9, 1]), served(None)
    read = found.passes["prefill_tokens"][found.passes["prefill_tokens"] > 0]
    assert read.tolist() == [40, 8, 1, 1], "the last token of a prompt is computed all the same"
    first_s = [each.progress.first_token_s - each.requests.arrival_s for each in (found, plain)]
    assert first_s[0] == pytest.approx([0.05, 0.018, 0.011, 0.011])
    assert first_s[1] == pytest.approx([0.05, 0.05, 0.019, 0.011])


@pytest.mark.parametrize("name", NAMES)
def test_every_scheduler_serves_what_is_partly_cached(name):
    told = requests([0.0, 0.0, 0.01, 0.02, 0.03], [30, 28, 30, 5, 30], [12] * 5, [0, 1, 2, 0, 1], [0, 20, 30, 2, 29])
    simulated = simulation(told, [12, 9, 12, 6, 12], factory_of(name), pool=memory(told, 1.2), truth=hardware())
    assert run(simulated).progress.emitted_tokens.tolist() == [12, 9, 12, 6, 12]


def test_a_file_says_how_much_is_cached(tmp_path):
    head = "arrival_s,prompt_tokens,output_tokens"
    (tmp_path / "mine.csv").write_text(f"{head},cached_tokens\n0,900,4,800\n20,900,4,\n40,900,4,900\n")
    (tmp_path / "plain.csv").write_text(f"{head}\n0,900,4\n20,900,4\n40,900,4\n")
    served, plain = (simulate("continuous", tmp_path / f"{name}.csv", slo="specserve") for name in ("mine", "plain"))
    assert "; cached_tokens: 63% of the prompts' tokens are cached at arrival" in served.notes[0]
    ttft_s = served.requests["ttft_s"]
    assert ttft_s[2] < ttft_s[0] < ttft_s[1]
    assert plain.requests["ttft_s"].tolist() == pytest.approx([ttft_s[1]] * 3)


@pytest.mark.parametrize(
    ("cell", "said"), [("901", "more than the prompt's 900"), ("-1", "cached_tokens"), ("x", "cached_tokens")]
)
def test_a_wrong_cell_is_named(tmp_path, cell, said):
    file = tmp_path / "mine.csv"
    file.write_text(f"arrival_s,prompt_tokens,output_tokens,cached_tokens\n0,900,4,{cell}\n")
    assert said in refusal(simulate, "continuous", file, slo="specserve")
