"""AdaServe played by hand: beam search, budget, catch-up, prompts that ride along, and plain steps."""

from dataclasses import replace

import numpy as np
import pytest

from specsim.core.passes import DraftPass
from specsim.schedulers.adaserve import tokens_needed
from specsim.schedulers.parts.selection import at_most_the_tree, least_needy_first, neediest_first
from specsim.schedulers.parts.tree_shape import LoadAdaptive, TreeShape
from tests.laws.subjects import factory_of
from tests.made import ledger_and_view, memory, requests
from tests.schedulers.test_specserve import prefilled
from tests.unit.hand import Hand, sizes


def adaserve(**changed):
    shape = {"_target_": "specsim.schedulers.parts.tree_shape.Fixed", "depth": 2, "width": 2}
    given = {"verify_tokens": 9, "shape": shape, "prefill_tokens": 64, "max_num_seqs": 4, "watermark": 0.0}
    return factory_of("adaserve", **given | changed)()


def test_a_step_grows_layers_by_beam_and_verifies_the_likeliest_within_the_budget():
    told = requests([0.0] * 2, [6] * 2, [30] * 2, [2] * 2)
    hand, asked = prefilled(Hand(adaserve(), told, memory(told, 9.0, block_tokens=1))), []
    work = hand.begin()
    while isinstance(work, DraftPass):
        asked.append((work.scheduled_tokens.tolist(), len(work.leaves), work.width, work.beam))
        work = hand.propose(0.8, 0.1)
    assert asked == [([1, 1], 2, 2, 2), ([], 4, 2, 2)]
    # Paths per row: 0.8, 0.1; then 0.64 behind the first, and of 0.08 twice the beam keeps one. B = 9: 7 nodes.
    assert len(work.forest) == 9
    assert np.allclose(np.sort(work.forest.path_probability[2:])[::-1], [0.8, 0.8, 0.64, 0.64, 0.1, 0.1, 0.08])


def test_where_memory_is_short_trees_are_shortened():
    told = requests([0.0] * 2, [6] * 2, [14] * 2, [2] * 2)
    pool = replace(memory(told, 1.0, block_tokens=1), capacity_bytes=2 * 4 * 10)
    hand = prefilled(Hand(adaserve(verify_tokens=64), told, pool))
    passes, work = 0, hand.begin()
    while isinstance(work, DraftPass):
        passes, work = passes + 1, hand.propose(0.9)
    assert passes == 2, "6 cached; 1 + 2 x 2 more of each model are 11 tokens, 10 there are: one wide, still two deep"
    assert sizes(work) == [2, 2]


def test_who_is_behind_its_objective_gets_the_nodes():
    """Row 1 has an objective it misses, row 0 has none: with room for one node only, it is row 1's."""
    told = requests([0.0] * 2, [6] * 2, [30] * 2, [2, 0])
    hand = prefilled(Hand(adaserve(verify_tokens=3, max_num_seqs=2), told, memory(told, 9.0)))
    hand.view.now_s = 5.0
    work = hand.begin()
    while isinstance(work, DraftPass):
        work = hand.propose(0.8, 0.1)
    assert sizes(work) == [0, 1]


def test_tokens_needed_is_equation_5():
    """A(r) = (l + t_spec) / t_TPOT - o: 0.15 s since decoding began, 4 tokens since, 0.06 s to come, 30 ms: 3."""
    ledger, view = ledger_and_view(requests([0.0] * 4, [6] * 4, [30] * 4, [0, 1, 2, 0]))
    ledger.progress.emitted_tokens[:] = [5, 5, 5, 1]
    ledger.progress.first_decode_s[:] = [1.0, 1.0, 1.0, np.nan]
    view.now_s = 1.15
    need = tokens_needed(view, np.arange(4), 0.06)
    assert need[:2] == pytest.approx([0.21 / 0.03 - 4, 0.21 / 0.2 - 4])
    assert need[2] == -np.inf, "no objective"
    assert need[3] == pytest.approx(0.06 / 0.03 - 0), "decoding begins now"


@pytest.mark.parametrize(
    ("requests_", "depth", "width"),
    [(1, 8, 3), (32, 8, 3), (33, 8, 2), (48, 8, 2), (49, 8, 1), (57, 7, 1), (64, 7, 1), (100, 4, 1), (512, 4, 1)],
)
def test_depth_and_width_are_equations_8_and_9(requests_, depth, width):
    """With B1 = 512, B2 = 96, D in 4..8, W to 3: 512 // 57 - 1 = 7 and 96 // 33 = 2, say."""
    assert LoadAdaptive(8, 3, 512, 96, 4, 0, 0)(requests_) == TreeShape(depth, width)


def test_orders_and_caps():
    need = np.array([1.5, 9.0, -np.inf, 1.5])
    assert (neediest_first(need).tolist(), least_needy_first(need).tolist()) == ([1, 0, 3, 2], [2, 0, 3, 1])
    assert at_most_the_tree(need, 4).tolist() == [1.5, 5.0, -np.inf, 1.5]
