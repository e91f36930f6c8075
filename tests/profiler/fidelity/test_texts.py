"""The acceptance trace of texts that were decoded alone."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from profiler.backend.future import OracleText  # noqa: E402
from profiler.backend.known import Known  # noqa: E402
from profiler.fidelity.serving import acceptance_trace_of, differing  # noqa: E402
from specsim.rng import mix  # noqa: E402

pytestmark = pytest.mark.torch
LIKELY = np.zeros((3, 2), dtype=np.int64)
SURE = np.array([[0.9], [0.0], [0.4]])
TEXTS = [
    OracleText(np.array([5, 6, 7]), SURE, np.array([0, 1, 1]), LIKELY, np.array([[0.6, 0.3]] * 3)),
    OracleText(np.array([8, 9]), np.array([[0.2], [0.3]]), np.array([1, 0]), LIKELY[:2], np.array([[0.5, 0.5]] * 2)),
]


def rows_of(acceptance_trace, request, positions):
    requests, at = np.full(len(positions), request), np.array(positions)
    keys = acceptance_trace.on_path(requests, at)
    return acceptance_trace.rows(requests, keys, mix(keys), np.ones(len(at), dtype=np.bool_), np.zeros_like(requests))


def test_each_request_reads_its_own_text_and_begins_again_behind_its_end():
    acceptance_trace = acceptance_trace_of(TEXTS, 0, None)
    np.testing.assert_array_equal(rows_of(acceptance_trace, 0, [0, 1, 2, 3]), [0, 1, 2, 0])
    np.testing.assert_array_equal(rows_of(acceptance_trace, 1, [0, 1, 2]), [3, 4, 3])
    np.testing.assert_array_equal(acceptance_trace.rank, [0, 1, 1, 1, 0])
    np.testing.assert_allclose(acceptance_trace.confidence[:, 0], [0.9, 1e-7, 0.4, 0.2, 0.3])


def test_a_lookup_proposes_nothing_without_a_match_also_behind_a_wrong_token_where_a_model_says_what_it_says():
    lookup = acceptance_trace_of([TEXTS[0]._replace(confidence=np.array([[1.0], [0.0], [1.0]]))], 0, 0.5)
    np.testing.assert_allclose(lookup.confidence[:, 0], [0.5, 0, 0.5, 0.5])
    assert lookup.silent
    keys = np.arange(50).astype(np.uint64) * np.uint64(977)
    away, nobody = np.zeros(50, dtype=np.bool_), np.zeros(50, dtype=np.int64)
    assert set(lookup.rows(nobody, keys, mix(keys), away, np.zeros_like(nobody)).tolist()) == {3}
    model = acceptance_trace_of(TEXTS, 0, None)
    assert set(model.rows(nobody, keys, mix(keys), away, np.zeros_like(nobody)).tolist()) == set(range(5))


def test_texts_that_differ_are_counted_with_the_gap_where_they_begin_to():
    known = Known([np.array([1]), np.array([1])], np.array([3, 2]))
    known.emit(0, np.array([5, 0, 0]))
    known.emit(1, np.array([8, 9]))
    assert differing(known, TEXTS, np.array([0, 1])) == (1, pytest.approx(np.log(2)))
    assert differing(known, TEXTS, np.array([1])) == (0, 0.0)
