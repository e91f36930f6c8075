"""Acceptance traces that were recorded, row after row, or drawn in easy and hard stretches; bad ones in one line."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml

from specsim.acceptance.curves import Acceptance, Curve
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.acceptance.recorded import METADATA_KEY, RecordedTexts
from specsim.acceptance.trace import STRETCHES, of_category
from specsim.api import simulate
from specsim.rng import mix
from tests.made import refusal

K = 3
TEXTS = {"code": (4, 3), "chat": (5,)}
"""Positions of each recorded text, by category."""


def rows():
    """Return a recording whose confidence tells where a row stood: 0.5 + sequence / 10 + position / 100."""
    found = []
    for category, lengths in TEXTS.items():
        for sequence, length in enumerate(lengths):
            for position in range(length):
                sure = 0.5 + sequence / 10 + position / 100
                here = {"category": category, "sequence": sequence, "position": position}
                found.append(here | {"path": -1, "confidence": [sure, 0.2, 0.1], "rank": position % (K + 1)})
                found += [here | {"path": j, "confidence": [j / 10, 0.05, 0.01], "rank": K} for j in (1, 2)]
    return [row | {"target_probability": [0.1, 0.6, 0.2]} for row in found]


def write(folder, table=None, about=None, **columns):
    """Write a recording in the order of `table`, some columns replaced; return its path."""
    table = rows() if table is None else table
    kinds = {"category": pa.string(), "sequence": pa.int32(), "position": pa.int32(), "path": pa.int8()}
    kinds |= {"confidence": pa.list_(pa.float32(), K), "target_probability": pa.list_(pa.float32(), K)}
    kinds |= {"rank": pa.int8(), "depth": pa.int8()}
    built = pa.table({name: pa.array([row[name] for row in table], kinds[name]) for name in table[0]} | columns)
    said = json.dumps(about or {"format": 1, "drafter": "skip"})
    path = folder / "mine.parquet"
    pq.write_table(built.replace_schema_metadata({METADATA_KEY: said}), path)
    return path


def read(folder, categories=None):
    mapping = {"kind": "recorded", "path": "mine.parquet", "categories": categories or {"default": "code"}}
    return acceptance_from_mapping(mapping, "acceptance=mine", folder)


def acceptance_trace(folder, category="code", count=40, seed=0):
    model = read(folder, {"default": category})
    found = model.acceptance_trace(["any"], np.zeros(count, dtype=np.int64), np.arange(count), seed)
    assert isinstance(found.layout, RecordedTexts)
    return found


def rows_of(text, ids, keys, on, depth=0):
    return text.rows(ids, keys, mix(keys), np.full(len(keys), on), np.full(len(keys), depth))


def along(text, requests, positions):
    """Return the likeliest confidence at each output position of requests, (requests, positions)."""
    ids, at = np.divmod(np.arange(requests * positions), positions)
    return text.confidence[rows_of(text, ids, text.on_path(ids, at), True), 0].reshape(requests, positions)


def test_a_request_reads_its_own_text_from_its_start_then_the_next_one_wraps_and_has_wrong_turns_beside(tmp_path):
    write(tmp_path)
    whole = np.array([0.5, 0.51, 0.52, 0.53, 0.6, 0.61, 0.62])
    text = acceptance_trace(tmp_path)
    found = along(text, 40, 14)
    second = np.isclose(found[:, 0], 0.6)
    assert {*second.tolist()} == {False, True}
    np.testing.assert_allclose(found[~second], np.tile(whole, (sum(~second), 2)))
    np.testing.assert_allclose(found[second], np.tile(np.roll(whole, -4), (sum(second), 2)))
    assert np.array_equal(along(acceptance_trace(tmp_path, count=10), 10, 14), found[:10])
    assert not np.array_equal(along(acceptance_trace(tmp_path, seed=1), 40, 14), found)
    beside = rows_of(text, np.zeros(500, dtype=np.int64), np.arange(500, dtype=np.uint64), False)
    assert set(np.round(text.confidence[beside, 0], 6)) == {0.1, 0.2}


def test_a_lookup_is_silent_where_it_found_nothing_and_a_model_never_however_sure_of_one_token(tmp_path):
    table = [row | {"confidence": [0.9 * (row["position"] % 2), 0.0, 0.0]} for row in rows()]
    write(tmp_path, table, {"format": 1, "drafter": "lookup"})
    text = acceptance_trace(tmp_path)
    assert (text.silent, text.width) == (True, 1)
    write(tmp_path, [row | {"confidence": [1.0, 0.0, 0.0]} if row["sequence"] else row for row in rows()])
    text = acceptance_trace(tmp_path)
    assert not text.silent
    assert (text.confidence > 0).all()


def by_depth(rank):
    """Return one recorded text whose rows of (position, draft position) have these ranks."""
    row = {"category": "code", "sequence": 0, "path": -1, "confidence": [0.6, 0.2, 0.1]}
    row["target_probability"] = row["confidence"]
    return [row | {"position": at, "depth": depth, "rank": each} for (at, depth), each in rank.items()]


def test_a_row_on_the_path_is_asked_for_by_position_and_draft_position(tmp_path):
    """A row of depth 1 holds at 1 and deeper; a position without one has its row of depth 0."""
    table = by_depth({(1, 0): 1, (0, 0): 0, (1, 1): 2, (2, 1): 3, (2, 0): 2})
    write(tmp_path, table)
    text = acceptance_trace(tmp_path, count=1)
    assert text.depths == 2
    ids, at = np.zeros(3, dtype=np.int64), np.arange(3)
    keys = text.on_path(ids, at)
    found = [text.rank[rows_of(text, ids, keys, True, depth)].tolist() for depth in range(4)]
    assert found == [[0, 1, 2], [0, 2, 3], [0, 2, 3], [0, 2, 3]]
    assert [text.rank[text.text_rows(ids[:1], depth)].tolist() for depth in (0, 1, 7)] == [[0, 1, 2], *[[0, 2, 3]] * 2]


def test_a_run_reads_a_recording_beside_its_yaml_and_names_it_where_a_category_is_not_there(tmp_path):
    write(tmp_path)
    file, mapping = tmp_path / "mine.yaml", {"kind": "recorded", "path": "mine.parquet"}
    file.write_text(yaml.safe_dump(mapping | {"categories": {"default": "code"}}))
    given = {"trace": "poisson", "requests": 30, "rps": 40, "profile": "llama8b_1b_h100", "acceptance": str(file)}
    adaserve, seeing = (simulate(name, **given) for name in ("adaserve", "adaserve_true_probability"))
    assert adaserve.metrics["completed"] == 30
    # The recorded target likes the second proposal best, so who sees that selects otherwise.
    assert not np.array_equal(adaserve.requests["finish_s"], seeing.requests["finish_s"])
    assert [of_category({"default": 1, "chat": 2}, each) for each in ("chat", "coding")] == [2, 1]
    file.write_text(yaml.safe_dump(mapping | {"categories": {"codin": "chat"}}))
    said = f"acceptance={file}: categories: no category 'coding' and no default; did you mean"
    assert refusal(simulate, **given, any_fit=True).startswith(said)


def fourth(**changes):
    """Return the recording with its fourth row changed, which is position 1 of the first text."""
    table = rows()
    return {"table": [*table[:3], table[3] | changes, *table[4:]]}


def by_depth_only(*depths):
    return {"table": [by_depth({each: 0})[0] for each in depths]}


def lists(*row):
    return pa.array([row] * len(rows()), pa.list_(pa.float32(), len(row)))


BAD = [
    ({"about": {"format": 2}}, "format 2; this specsim reads format 1"),
    ({"rank": pa.array([9] * len(rows()), pa.int8())}, "row 1: rank: 9; expected 0 to 3"),
    ({"confidence": lists(2.0, 0, 0)}, "0.0]; expected prob"),
    ({"confidence": lists(0.1, 0.2, 0)}, "the likeliest first"),
    ({"target_probability": lists(0.1)}, "one list of K numbers"),
    ({"table": [row for row in rows() if row["path"] > 0]}, "no row of a target's own text"),
    (fourth(position=0), "row 4: position: 0; expected one more than the position before in its text"),
    (fourth(position=7), "row 4: position: 7; expected one more than the position before in its text"),
    (fourth(confidence=[0.75, 0.75, 0.0]), "row 4: confidence: [0.75, 0.75, 0.0]; expected probabilities whose sum"),
    (by_depth_only((0, 1)), "depth: 1; expected 0 at each position, and each other once"),
    (by_depth_only((0, 0), (1, 0), (1, 1), (1, 1)), "depth: 1; expected 0 at each position, and each other once"),
]


@pytest.mark.parametrize(("change", "said"), BAD, ids=[said for _, said in BAD])
def test_a_bad_recording_is_one_line_that_names_the_file(tmp_path, change, said):
    path = write(tmp_path, **change)
    told = refusal(read, tmp_path)
    assert told.startswith(str(path))
    assert said in told


def stretched(**more):
    body = {"agreement": 0.7, "concentration": 2.0, "spread": 0.3, "tail": 0.5} | more
    return {"kind": "curves", "width": 4, "levels": 4, "categories": {"x": body}}


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({"kind": "recorded", "path": "mine.parquet", "categories": {"a": "cod"}}, "did you mean 'code'?"),
        ({"kind": "recorded", "path": "broken.parquet", "categories": {"a": "code"}}, "cannot be read as Parquet"),
        ({"path": "mine.parquet"}, "kind: missing key; valid: bernoulli, curves, length, pinned, positions, recorded"),
        (stretched(stretch_tokens=16), "categories.x.stretch_spread: None is not a number beside stretch_tokens"),
        (stretched(stretch_spread=1.0), "categories.x.stretch_tokens: None is not a number beside stretch_spread"),
        (stretched(stretch_tokens=-1, stretch_spread=1.0), "stretch_tokens: -1 is not a whole number between 0 and"),
        (stretched(stretch_tokens=16, stretch_spread=21), "stretch_spread"),
    ],
)
def test_a_bad_yaml_is_one_line(tmp_path, mapping, said):
    write(tmp_path)
    (tmp_path / "broken.parquet").write_text("no parquet")
    assert said in refusal(acceptance_from_mapping, mapping, "acceptance=mine", tmp_path)


CURVE = Curve(0.7, 2.0, 0.3, 0.5, stretch_tokens=16, stretch_spread=1.0)
COUNT, TOKENS = 300, 256


def drawn(curve, texts=COUNT):
    return Acceptance({"x": curve}, 4, 16).acceptance_trace(["x"], np.zeros(texts, np.int64), np.arange(texts), 3)


def rows_in(text, texts=COUNT):
    """Return the row of each position, (texts, TOKENS)."""
    request, position = np.divmod(np.arange(texts * TOKENS), TOKENS)
    return rows_of(text, request, text.on_path(request, position), True).reshape(texts, TOKENS)


def test_a_stretch_is_of_one_kind_they_begin_anywhere_and_off_the_path_any_kind_may_follow():
    text = drawn(CURVE)
    start, pool_rows = text.layout.start, text.layout.pool_rows
    kind = (rows_in(text) - start[:, None]) // pool_rows
    assert (kind.min(), kind.max()) == (0, STRETCHES - 1)
    changes = np.diff(kind, axis=1) != 0
    places = [set((np.flatnonzero(each) + 1) % CURVE.stretch_tokens) for each in changes]
    assert all(len(each) == 1 for each in places)
    assert {place for each in places for place in each} == set(range(CURVE.stretch_tokens))
    shares = np.bincount(kind[:, ::16].ravel(), minlength=STRETCHES) / kind[:, ::16].size
    assert shares == pytest.approx(1 / STRETCHES, abs=0.02)
    rows = rows_of(text, np.zeros(5000, np.int64), mix(np.arange(5000, dtype=np.uint64)), False)
    assert np.bincount((rows - start[0]) // pool_rows, minlength=STRETCHES).min() > 200
    assert set(np.unique(rows)) <= set(text.text_rows(np.zeros(1, np.int64)))


def test_neighbours_are_alike_as_far_as_a_stretch_reaches():
    """The covariance of two positions is that of the stretches' means, times the chance that one holds both."""
    text = drawn(CURVE, 2000)
    right = (text.rank[rows_in(text, 2000)] == 0) - 0.7
    covariance = [float((right[:, lag:] * right[:, :-lag]).mean()) for lag in (1, 8, 16, 40)]
    between = covariance[3]
    assert covariance[2] == pytest.approx(between, abs=0.002)
    assert covariance[1] - between == pytest.approx((covariance[0] - between) * (8 / 16) / (15 / 16), rel=0.1)
    assert covariance[0] - between > 0.02
