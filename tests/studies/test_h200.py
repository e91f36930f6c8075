"""The page of the session on an H200 is that of its committed rows, and its claims are theirs."""

import pytest

pytest.importorskip("torch")

from studies.h200.page import PAGE, PASSES, attention, page, times
from studies.report import without_images


def test_the_page_is_that_of_the_rows():
    pytest.importorskip("aiconfigurator_core")
    assert without_images(page()) == PAGE.read_text(encoding="utf-8")


def test_the_kernel_that_is_kept_is_the_fastest_in_every_pass():
    ratios = [float(row[-1]) for row in attention(times())]
    assert len(ratios) == len(PASSES)
    assert min(ratios) > 1
    told = f"by {min(ratios):.2f} to {max(ratios):.1f} times"
    assert told in " ".join(PAGE.read_text(encoding="utf-8").split())
