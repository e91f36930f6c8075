"""warmup=: simulated and not counted, as warmup=[a, inf] would."""

import pytest

from specsim.api import simulate

GIVEN = {"scheduler": "continuous", "trace": "poisson", "rps": 4, "requests": 60, "profile": "llama8b_1b_h100"}


@pytest.mark.parametrize(("warmup", "seconds"), [(2.5, 2.5), ("12.5%", 59 / 32)])
def test_a_warmup_is_a_window_without_an_end(warmup, seconds):
    warm, window = simulate(**GIVEN, warmup=warmup), simulate(**GIVEN, warmup=[seconds, 1e6])
    counted, same = dict(warm.metrics["specsim"]), dict(window.metrics["specsim"])
    assert counted.pop("window") == pytest.approx([seconds, 59 / 4])
    assert same.pop("window") == [seconds, 1e6]
    assert counted == same
    assert {**warm.metrics, "specsim": None} == {**window.metrics, "specsim": None}
    left_out = int((warm.requests["arrival_s"] < seconds).sum())
    assert counted["arrived"] == 60 - left_out < 60
    assert f"warmup: {left_out} of 60 requests arrive in the first {seconds:g} s and are not counted" in warm.notes
    assert not any(note.startswith("warmup") for note in simulate(**GIVEN).notes)
