"""Every public row of rates by draft position, typed as it is listed, gives the length that these rates state."""

from __future__ import annotations

import csv
import re

import pytest

from specsim.acceptance.curves import Acceptance
from specsim.acceptance.loading import acceptance_from_mapping
from specsim.config.compose import compose
from tests.data import real_file
from tests.theory.test_acceptance_by_position import accepted_of, mean_length

MEASURED = real_file("speculation/measured.csv")
TOLERANCE = 0.01


def rows() -> list[tuple[str, list[float], int, float | None]]:
    """Return pair and data set, cumulative rates, k and the stated length of each row whose rates are numbers."""
    found = []
    if MEASURED is not None:
        for row in csv.DictReader(MEASURED.read_text(encoding="utf-8").splitlines()):
            if not re.fullmatch(r"[\d.]+(;[\d.]+)*", row["acceptance_per_position"]):
                continue
            rates = [float(each) for each in row["acceptance_per_position"].split(";")]
            k = int(re.findall(r"\d+", row["k_or_tree"])[0])
            stated = float(row["acceptance_length"]) if row["acceptance_length"] else None
            found.append((f"{row['target']} with {row['drafter']}, {row['dataset']}", rates, k, stated))
    return found


ROWS = rows()
CONTRADICTORY = {"cnn": 0.24, "gsm8k": 0.19, "instructcoder": 0.55, "sharegpt": 0.40, "SPEED-Bench coding": -0.57}
"""Data sets whose stated length is not that of their rates, and the difference (docs/acceptance.md lists them)."""

pytestmark = pytest.mark.skipif(not ROWS, reason="needs speculation/measured.csv of the data folder")


def test_all_numeric_rows_are_there() -> None:
    assert len(ROWS) == 44


@pytest.mark.parametrize(("named", "rates", "k", "stated"), ROWS or [("", [], 0, None)])
def test_rates_typed_in_one_line_give_their_length(
    named: str, rates: list[float], k: int, stated: float | None
) -> None:
    """The chain drafts k; 8,000 requests of 100 tokens have a standard error of about a quarter of the tolerance."""
    typed = compose({"acceptance": str(rates)})["acceptance"]
    made = acceptance_from_mapping(typed, named)
    assert isinstance(made, Acceptance)
    wanted = 1 + sum(rates[:k])
    assert abs(mean_length(accepted_of(made, k, 8000, 100)) / wanted - 1) < TOLERANCE
    if stated is not None:
        known = CONTRADICTORY.get(named.rpartition(", ")[2], 0.0)
        assert wanted - stated == pytest.approx(known, abs=0.006)
