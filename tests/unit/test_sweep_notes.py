"""The notes of a sweep's runs in short: on its terminal, and in Python."""

import pytest

from specsim.api import load_sweep, sweep
from specsim.metrics.sweep_table import in_short


def point(place: int) -> str:
    return f"rps={place}"


def test_a_kind_that_several_runs_have_is_counted_and_names_its_columns():
    notes = [("surrogate", "OVERLOADED: a"), ("surrogate", "too short: b"), ("OVERLOADED: c", "too short: d"), ()]
    assert in_short(notes, point) == [
        "surrogate",
        "OVERLOADED: 2 of 4 runs; the table's column load.overloaded tells which, the notes in each run's provenance"
        " why",
        "too short: 2 of 4 runs; the table's columns load.too_short and load.attainment_half_width tell which, the"
        " notes in each run's provenance why",
    ]


def test_a_kind_that_one_run_has_is_said_in_full_with_its_point():
    notes = [(), ("surrogate", "too short: b", "not steady: c"), ("extrapolated: 2 of 100 passes",)]
    said = [
        "surrogate",
        "extrapolated: rps=2: 2 of 100 passes",
        "too short: rps=1: b",
        "not steady: rps=1: c",
    ]
    assert in_short(notes, point) == said
    assert in_short([("too short: b",)], lambda _: "") == ["too short: b"]


SMALL = {"trace": "poisson", "requests": 30, "profile": "llama8b_1b_h100", "progress": False}


@pytest.mark.parametrize("stored", [False, True])
def test_a_sweep_in_python_has_the_notes_of_its_runs(tmp_path, stored):
    out = tmp_path if stored else None
    runs = sweep({"scheduler": ["continuous", "vllm_spec"], "rps": [2, 4]}, out=out, **SMALL)
    assert runs.whole_notes == ()
    assert any(note.startswith("MISMATCHED PAIR: ") for note in runs.notes)
    assert sum(note.startswith("too short: 4 of 4 runs") for note in runs.notes) == 1
    assert not stored or load_sweep(tmp_path).notes == runs.notes
    (plain,) = (note for note in runs.select(scheduler="continuous", rps=2).notes if note.startswith("too short"))
    assert plain.startswith("too short: 30 requests in ")
    html = runs._repr_html_()
    assert "too short: 4 of 4 runs" in html
