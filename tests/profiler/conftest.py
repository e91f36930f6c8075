"""Files whose tests all need torch are not even imported where such tests are left out: torch takes seconds."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

# Triton reads this when it is imported; without it no kernel runs on the CPU.
os.environ["TRITON_INTERPRET"] = "1"
ALL_NEED_TORCH = "\npytestmark = pytest.mark.torch\n"


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return True for such a file, and None, which leaves it to others, for all else."""
    left_out = "not torch" in config.option.markexpr and collection_path.suffix == ".py"
    return True if left_out and ALL_NEED_TORCH in collection_path.read_text(encoding="utf-8") else None
