"""The counts of docs/reliability.md are those of the tests that it names."""

from pathlib import Path

import pytest

from tests.e2e.test_resume import HARMS
from tests.laws.subjects import NAMES
from tests.laws.test_illegal_passes import ILLEGAL
from tests.laws.test_nothing_to_fake import LIES, REFUSED, WORLD_LIES

PAGE = (Path(__file__).parents[2] / "docs" / "reliability.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    "said",
    [
        f"{len(ILLEGAL)} illegal passes and {len(REFUSED)} faulty schedulers",
        f"{len(LIES) + len(WORLD_LIES)} schedulers that write to private names",
        f"{len(HARMS)} harms, each to reading and to resuming",
        f"Golden files of all {len(NAMES)} schedulers",
    ],
)
def test_the_page_counts_what_is_there(said: str) -> None:
    assert said in PAGE
