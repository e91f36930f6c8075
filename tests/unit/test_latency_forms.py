"""The shape of a pass by counting; the forms of its time by hand and as laws (lines, rooflines: tests/reference)."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from specsim.latency.forms import Linear, Roofline, Staged, Table, scaled
from specsim.pass_shape import PassShape, PassShapes
from tests.made import many, one

LINEAR = Linear(alpha_s=5e-8, gamma_s=2e-4, delta_s=0.03)
SMOOTH = Roofline(0.03, 5e-5, 0.02, 2e-4, 5e-8, 4e-9)
STEPPED = Roofline(0.03, 5e-5, 0.02, 2e-4, 5e-8, 4e-9, tile_tokens=64)
TABLE = Table((0.0, 128.0, 256.0, 1024.0), (0.0, 0.055, 0.085, 0.205), 0.03)
COMPOSED = Table((1, 64, 256, 1024), (0.006, 0.007, 0.01, 0.025), 0.0, 5e-8, 4e-9, 1e-6, 2e-6)
READING = Roofline(0.03, 5e-5, 0.02, 2e-4, 5e-8, 4e-9, logit_s=1e-4)
FORMS = {"linear": LINEAR, "roofline": SMOOTH, "staircase": STEPPED, "logits": READING, "table": TABLE}
FORMS |= {"composed": COMPOSED}
FEW = Roofline(0.03, 5e-5, 0.02, 2e-4, 5e-8, 4e-9, few_s=(-0.01, 0.01, 0.02), few_logits_s=(-0.01, 0.004))

amounts = st.floats(0, 1e6, allow_nan=False)
forms = pytest.mark.parametrize("form", FORMS.values(), ids=FORMS.keys())


@forms
@given(context=amounts, batched=amounts, pairs=st.floats(0, 1e10), logits=st.none() | amounts)
def test_scalar_and_array_agree(form, context, batched, pairs, logits):
    scalar = form.seconds(one(context, batched, pairs, logits))
    array = form.seconds_array(many(np.array([context]), np.array([batched]), np.array([pairs]), logits))
    assert (array.shape, array[0]) == ((1,), pytest.approx(scalar, rel=1e-12))


@given(
    context=amounts, batched=st.integers(0, 6) | amounts, logits=st.none() | st.integers(0, 6), pairs=st.floats(0, 1e10)
)
def test_scalar_and_array_agree_to_the_bit_on_few_tokens(context, batched, logits, pairs):
    scalar = FEW.seconds(one(context, batched, pairs, logits))
    array = FEW.seconds_array(many(np.array([context]), np.array([batched]), np.array([pairs]), logits))
    assert array.tolist() == [scalar]


def test_few_tokens_may_take_longer_than_more_and_the_rest_never_do():
    times = [FEW.seconds(one(0, n, 0, 3)) for n in range(1, 6)]
    assert times[2] > times[3], "three tokens take longer than four"
    assert times[3] <= times[4]
    assert FEW.shortest_s == FEW.seconds(one(0, 1, 0, 1))
    assert SMOOTH.shortest_s == SMOOTH.seconds(one(0, 1, 0, 1))


@forms
@given(base=st.tuples(*[amounts] * 4), more=st.tuples(*[st.floats(0, 1e5)] * 4))
def test_more_work_never_takes_less_time(form, base, more):
    larger = [before + added for before, added in zip(base, more, strict=True)]
    assert form.seconds(one(*larger)) >= form.seconds(one(*base)) * (1 - 1e-12)


def test_only_the_last_of_a_chunk_pays_for_logits():
    layers_s = SMOOTH.seconds(one(0, 1000, 1e6))
    assert READING.seconds(one(0, 1000, 1e6, 1)) == pytest.approx(layers_s + 1e-4)
    assert READING.seconds(one(0, 1000, 1e6)) == pytest.approx(layers_s + 0.1), "none said: every batched token"
    assert scaled(READING, 3, 3).seconds(one(0, 1000, 1e6, 7)) == pytest.approx(3 * (layers_s + 7e-4))


def test_the_lines_cross_before_or_behind_the_ridge():
    assert LINEAR.bend_tokens is None
    assert (SMOOTH.knee_tokens, SMOOTH.bend_tokens) == pytest.approx((150, 0.01 / 1.5e-4))
    behind = Roofline(0.03, 5e-5, 0.0, 2e-4, 0.0, 0.0)
    assert (behind.knee_tokens, behind.bend_tokens) == (pytest.approx(150), pytest.approx(200))
    for form in (SMOOTH, behind):
        bend = form.bend_tokens
        assert form.delta_s + form.gamma_s * bend == pytest.approx(form.compute_delta_s + form.compute_s * bend)
    assert Roofline(0.03, 2e-4, 0.0, 2e-4, 0.0, 0.0).bend_tokens is None
    assert Roofline(0.01, 0.0, 0.02, 2e-4, 0.0, 0.0).bend_tokens is None


def test_staircase_pads_to_whole_tiles():
    assert STEPPED.seconds(one(0, 513, 0)) == STEPPED.seconds(one(0, 576, 0))
    assert STEPPED.seconds(one(0, 577, 0)) - STEPPED.seconds(one(0, 576, 0)) == pytest.approx(64 * 2e-4)
    assert STEPPED.seconds(one(0, 576, 0)) == SMOOTH.seconds(one(0, 576, 0))


@pytest.mark.parametrize(
    ("batched", "seconds"),
    [(1, 0.03), (64, 0.03), (128, 0.055), (192, 0.07), (256, 0.085), (640, 0.145), (2048, 0.365)],
)
def test_table_interpolates_extrapolates_and_keeps_its_floor(batched, seconds):
    assert TABLE.seconds(one(1e6, batched, 1e9)) == pytest.approx(seconds)


def test_table_bends_where_it_leaves_its_floor():
    assert TABLE.bend_tokens == pytest.approx(128 * 30 / 55)
    assert COMPOSED.bend_tokens is None, "it has no floor"
    assert Table((1.0, 2.0), (0.01, 0.01), 0.02).bend_tokens is None


def test_table_counts_attention_logits_and_requests():
    """64 tokens: 7 ms; 16 contexts of 2,000 are 1.6 ms to read and 0.512 to multiply; 64 logits, 16 requests."""
    shape = PassShape(32_000, 64, 4 * 32_000, 0, 64, 16)
    assert COMPOSED.seconds(shape) == pytest.approx(7e-3 + 1.6e-3 + 64e-6 + 32e-6)
    more = COMPOSED.seconds(shape._replace(attention_pairs=16 * 32_000)) - COMPOSED.seconds(shape)
    assert more == pytest.approx(16 * 32_000 * 4e-9 - 1.6e-3)
    assert scaled(COMPOSED, 2, 0.5).seconds(shape) == pytest.approx(14e-3 + 0.8e-3 + 128e-6 + 16e-6)


def cycle_s(stages, batches, stage_s):
    """Return the seconds between two visits of a micro-batch to the first stage, of alike ones that go round."""
    free, ready = [0.0] * stages, [0.0] * batches
    starts = []
    for turn in range(40 * batches):
        at = ready[turn % batches]
        for stage in range(stages):
            at = max(at, free[stage])
            starts += [at] if (turn % batches, stage) == (0, 0) else []
            at += stage_s
            free[stage] = at
        ready[turn % batches] = at
    return starts[-1] - starts[-2]


@pytest.mark.parametrize("stages", [1, 2, 4])
@pytest.mark.parametrize("requests", [1, 2, 3, 4, 8, 64])
def test_a_step_on_a_pipeline_is_the_cycle_of_its_micro_batches(stages, requests):
    """Stages work one micro-batch after the other; a pass takes `stages` times as long as one of them."""
    form = Linear(1e-7, 1e-4, 1e-3)
    batches = min(stages, requests)
    each = form.seconds(PassShape.decode(100 * requests / batches, requests / batches))
    step = Staged(form, stages).seconds(PassShape.decode(100 * requests, requests))
    assert step == pytest.approx(cycle_s(stages, batches, each / stages))
    in_turn = Staged(form, stages, in_turn=True).seconds(PassShape.decode(100 * requests, requests))
    assert in_turn == pytest.approx(batches * each)


def test_steps_on_a_pipeline_agree_in_arrays():
    requests = np.array([1, 2, 3, 40])
    for form in (Staged(Linear(1e-7, 1e-4, 1e-3), 4), Staged(Linear(1e-7, 1e-4, 1e-3), 4, in_turn=True)):
        found = form.seconds_array(PassShapes.decode(100 * requests, requests))
        alone = [form.seconds(PassShape.decode(100 * each, each)) for each in requests.tolist()]
        assert found == pytest.approx(np.array(alone), rel=1e-12)


ROWS = st.lists(st.tuples(st.integers(0, 5_000), st.integers(0, 40), st.integers(0, 30)), min_size=1, max_size=20)


def columns(rows):
    cached, chunks, nodes = np.array(rows, dtype=np.int64).T
    return cached, chunks, nodes


@given(ROWS)
def test_it_counts_token_by_token(rows):
    context = batched = pairs = logits = requests = again = 0
    for cached, chunk, nodes in rows:
        context += cached if chunk + nodes else 0
        batched += chunk + nodes
        pairs += sum(cached + place + 1 for place in range(chunk)) + nodes * (cached + chunk + 1)
        logits += nodes + (chunk > 0)
        requests += chunk + nodes > 0
        again += cached * max(nodes - (chunk == 0), 0)
    expected = PassShape(context, batched, pairs, 3, logits, requests, again)
    assert PassShape.of(*columns(rows), prefill_tokens=3) == expected


def counts(shape):
    return [getattr(shape, name) for name in PassShapes._fields]


@given(ROWS)
def test_the_quicker_ways_count_alike(rows):
    """Passes that decode or draft, many passes of one row, and nodes that are added to a pass of roots."""
    cached, chunks, nodes = columns(rows)
    ones, none, added = np.ones_like(cached), np.zeros_like(cached), int(nodes.sum())
    roots, whole = PassShape.of(cached, ones), PassShape.of(cached, ones, nodes)
    assert PassShape.of_decoding(cached, nodes, added) == whole
    assert PassShape.of_decoding(cached, None, 0) == roots
    assert PassShape.of_nodes(cached, nodes) == PassShape.of(cached, none, nodes)
    last = [np.asarray(each)[-1] for each in PassShapes.each(cached, chunks, nodes).cumulated(axis=0)]
    assert last == counts(PassShape.of(cached, chunks, nodes, int(chunks[chunks > 1].sum())))
    pairs = float(np.dot(nodes, cached + 2))
    assert roots.with_nodes(added, pairs) == whole
    grown = PassShapes.with_nodes(roots, np.array([added]), np.array([pairs]))
    assert [np.asarray(each).item() for each in grown] == counts(whole)
