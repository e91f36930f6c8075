"""Tables of a shipped recording, against its rows; and the figures that read them."""

import numpy as np
import pandas as pd
import pytest

from profiler.acceptance.curves import on_path, rounds
from profiler.acceptance.recorded_curves import chain_table, confidence_table, shipped_recording
from specsim import SpecsimError
from specsim.figures.trees import chain_lengths, confidence_curves

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


def test_the_figures_show_the_rows():
    table = pd.concat([confidence_table(name) for name in (PAIR, "smollm2_lookup", f"{PAIR}_t07")])
    figure = confidence_curves(table)
    assert [axes.get_title() for axes in figure.axes] == ["greedy", "temperature 0.7"]
    assert [len(axes.containers) for axes in figure.axes] == [2, 1]
    drawn = figure.axes[1].containers[0].lines[0].get_xydata()
    mine = table[(table["temperature"] == 0.7) & (table["proposals"] >= 50)]
    np.testing.assert_allclose(drawn, 100 * mine[["confidence", "accepted"]].to_numpy())


def test_simulated_lines_stand_beside_recorded_points():
    rows = [(name, k, "coding", 1 + k / 2) for name in ("recorded", "curves") for k in (1, 4)]
    columns = ["acceptance", "scheduler.num_speculative_tokens", "slo_class", "mean_tokens_per_verification"]
    figure = chain_lengths(chain_table(PAIR), pd.DataFrame(rows, columns=columns), {"coding": "code"})
    (axes,) = figure.axes
    lines = [line.get_xydata().tolist() for line in axes.lines if line.get_linestyle() != "None"]
    assert lines == [[[1, 0.5], [4, 2]]] * 2
    assert len(axes.containers[0].lines[0].get_xdata()) == 4
    assert {"recorded", "curves"} <= {text.get_text() for text in axes.texts}
