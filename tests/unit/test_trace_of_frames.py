"""Times of a DataFrame: with a zone, without one, as text."""

import pandas as pd
import pytest

from specsim.workload.frame import trace_of

TIMES = ["2026-01-05T10:00:00.5", "2026-01-05T10:00:02.0"]


@pytest.mark.parametrize("zone", [None, "UTC", "Europe/Berlin"])
def test_times_in_a_zone_are_times(zone):
    times = pd.to_datetime(pd.Series(TIMES)).dt.tz_localize(zone)
    trace = trace_of(pd.DataFrame({"arrival_s": times, "prompt_tokens": [5, 6], "output_tokens": [7, 8]}))
    assert trace.arrival_s.tolist() == [0.0, 1.5]
