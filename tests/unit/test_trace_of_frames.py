"""Times of a DataFrame: with a zone, without one, as text."""

import numpy as np
import pandas as pd
import pytest

from specsim import simulate
from specsim.workload.user_file import trace_of
from tests.made import refusal

SMALL = {"profile": "llama8b_1b_h100", "acceptance": "bernoulli"}
TIMES = pd.to_datetime(pd.Series(["2026-01-05T10:00:00.5", "2026-01-05T10:00:02.0"]))
ZONED = [TIMES.dt.tz_localize(zone) for zone in (None, "UTC", "Europe/Berlin")]


@pytest.mark.parametrize("times", [*ZONED, pd.to_timedelta([90.5, 92.0], unit="s")], ids=lambda each: str(each.dtype))
def test_times_in_a_zone_and_times_since_any_moment_are_times(times):
    trace = trace_of(pd.DataFrame({"arrival_s": times, "prompt_tokens": [5, 6], "output_tokens": [7, 8]}))
    assert trace.arrival_s.tolist() == [0.0, 1.5]


@pytest.mark.parametrize(("label", "said"), [(["a", "b"], "index 'b'"), ([7, 70], "index 70"), ([0, 1], "index 1")])
def test_a_damaged_row_is_named_by_the_index_of_its_frame(label, said):
    frame = pd.DataFrame({"arrival_s": [0, np.nan], "prompt_tokens": [5, 6], "output_tokens": [7, 8]}, index=label)
    assert refusal(trace_of, frame) == f"DataFrame: 1 damaged row: {said}: arrival_s nan is not a number"
    named = refusal(trace_of, frame.to_dict("list"), "mine")
    assert named == "mine: 1 damaged row: row 2: arrival_s nan is not a number"


def test_missing_cells_of_nullable_columns_and_columns_that_stand_twice():
    frame = pd.DataFrame({"arrival_s": [0, 1], "prompt_tokens": [5, 6], "output_tokens": [7, 8]}).astype("Int64")
    for missing in (pd.array([None, 2], "Int64"), pd.Series([pd.NA, 2], dtype=object)):
        assert trace_of(frame.assign(cached_tokens=missing)).cached_tokens.tolist() == [0, 2]
    assert refusal(trace_of, pd.concat([frame, frame], axis=1)) == "DataFrame: column 'arrival_s' stands twice"
    frame["prompt_tokens"] = pd.Series([5, pd.NA], dtype=object)
    assert "index 1: prompt_tokens <NA> is not a whole number" in refusal(trace_of, frame)


def in_ms(first=1700000000000):
    times = [first, first + 500000, first + 900000]
    return pd.DataFrame({"arrival_s": times, "prompt_tokens": [5, 6, 7], "output_tokens": [7, 8, 9]})


def test_advice_on_the_unit_can_be_followed():
    said = 'in ms 15 min: give simulate trace__time_unit="ms", or trace_of time_unit="ms"'
    assert refusal(simulate, "fcfs", in_ms(), **SMALL).endswith(said)
    assert refusal(trace_of, in_ms()).endswith(said)
    run = simulate("fcfs", in_ms(), trace__time_unit="ms", **SMALL)
    assert run.requests["arrival_s"].tolist() == [0, 500, 900]
    assert trace_of(in_ms(), time_unit="ms").arrival_s.tolist() == [0, 500, 900]
    assert not any("time_unit" in note for note in run.notes)


@pytest.mark.parametrize("given", [in_ms(), trace_of(in_ms(), time_unit="ms")], ids=["frame", "trace"])
def test_a_window_and_blocks_are_of_any_trace(given):
    unit = {"trace__time_unit": "ms"} if isinstance(given, pd.DataFrame) else {}
    late = simulate("fcfs", given, trace__window=[400, 1000], **unit, **SMALL)
    assert late.requests["arrival_s"].tolist() == [0, 400]
    assert late.config["trace"]["window"] == [400, 1000]
    drawn = [simulate("fcfs", given, trace__resample=450, seed=seed, **unit, **SMALL) for seed in range(4)]
    assert len({tuple(run.requests["arrival_s"]) for run in drawn}) > 1
    assert "arrivals" in drawn[0].provenance["varies_with_seed"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"trace__time_unit": "minutes"}, "time_unit: 'minutes' is unknown"),
        ({"trace__window": [5, 1]}, "trace.window: [5, 1] is not [start_s, stop_s]"),
        ({"trace__rps": 2}, "trace.rps: trace is an object; expected the value in it"),
    ],
)
def test_a_setting_that_does_not_fit_a_frame_is_one_line(settings, said):
    assert said in refusal(simulate, "fcfs", in_ms(0), **{**settings, **SMALL})
