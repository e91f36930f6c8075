"""What a scheduler notes is kept, whatever number it is: a run that has ended is not lost for an infinite estimate."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from specsim import load_run, simulate
from specsim.core.request import Floats
from specsim.schedulers.fcfs import Fcfs


class Noting(Fcfs):
    numbers = (1.0, 2.0)

    def noted(self, requests: int) -> dict[str, Floats]:
        return {"estimate": np.resize(np.array(self.numbers), requests)}


@pytest.mark.parametrize(
    ("numbers", "mean", "infinite"),
    [
        ((1.0, 2.0), 1.5, 0),
        ((1.0, np.inf), 1.0, 5),
        ((-np.inf, np.inf), None, 10),
        ((np.nan, np.inf), None, 5),
        ((1e308, 1e308), None, 0),
    ],
)
def test_an_infinite_number_is_kept_and_told(
    numbers: tuple[float, ...], mean: float | None, infinite: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Noting, "numbers", numbers)
    simulate(Noting(8), "poisson", requests=10, profile="llama8b_1b_h100", out=tmp_path / "run")
    run = load_run(tmp_path / "run")
    assert np.array_equal(run.requests["noted.estimate"], np.resize(np.array(numbers), 10), equal_nan=True)
    assert json.loads((tmp_path / "run" / "metrics.json").read_text())["specsim"]["noted"] == {"estimate": mean}
    told = [note for note in run.notes if "noted.estimate" in note]
    said = f"noted.estimate is infinite for {infinite} of 10 requests: its mean leaves them out"
    assert [said in note and "Noting" in note for note in told] == ([True] if infinite else [])
