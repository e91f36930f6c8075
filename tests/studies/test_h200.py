"""The page of the session on an H200 is that of its committed rows, and its claims are theirs."""

import pytest

from studies.h200.page import PAGE, PASSES, attention, page, times
from studies.report import without_images


def test_the_page_is_that_of_the_rows_and_the_kernel_that_is_kept_the_fastest_in_every_pass():
    pytest.importorskip("aiconfigurator_core")
    text = PAGE.read_text(encoding="utf-8")
    assert without_images(page()) == text
    ratios = [float(row[-1]) for row in attention(times())]
    assert len(ratios) == len(PASSES)
    assert min(ratios) > 1
    assert f"by {min(ratios):.2f} to {max(ratios):.1f} times" in " ".join(text.split())
