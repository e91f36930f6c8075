"""Tables of a shipped recording, against its rows."""

import pytest

from profiler.acceptance.curves import chain_table, confidence_table, on_path, rounds, shipped_recording
from specsim import SpecsimError

PAIR = "qwen1_5b_05b"


def test_longer_chains_accept_more_in_fewer_rounds():
    table, tape = chain_table(PAIR), shipped_recording(PAIR)
    assert set(table["category"]) == set(tape.categories)
    assert len(table) == 8 * len(tape.categories)
    assert (table["accepted_tokens"] <= table["draft_tokens"]).all()
    for _, rows in table.groupby("category"):
        assert rows["accepted_tokens"].is_monotonic_increasing
        assert rows["rounds"].is_monotonic_decreasing
    chat = on_path(tape, "chat")
    for each in table[table["category"] == "chat"].itertuples():
        assert each.accepted_tokens == pytest.approx(rounds(chat, each.draft_tokens).accepted)


def test_confidences_are_those_of_the_recording():
    table, tape = confidence_table(PAIR), shipped_recording(PAIR)
    sure, right = tape.confidence[tape.on_path, 0], tape.rank[tape.on_path] == 0
    assert table["proposals"].sum() == len(sure)
    assert (table["accepted"] * table["proposals"]).sum() == pytest.approx(right.sum())
    assert (table["confidence"] * table["proposals"]).sum() == pytest.approx(sure.sum(), rel=1e-6)
    assert set(table["temperature"]) == {0.0}


def test_a_recording_that_does_not_ship_is_refused():
    with pytest.raises(SpecsimError, match=r"no recording 'llama70b_1b' ships; expected one of qwen1_5b_05b, "):
        confidence_table("llama70b_1b")
