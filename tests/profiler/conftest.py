"""Files whose tests all need torch are not even imported where such tests are left out: torch takes seconds."""

import gc
import os
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

# Triton reads this when it is imported; without it no kernel runs on the CPU.
os.environ["TRITON_INTERPRET"] = "1"
ALL_NEED_TORCH = re.compile(r"^pytestmark = \[?pytest\.mark\.torch\b", re.MULTILINE)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Return True for such a file, and None, which leaves it to others, for all else."""
    left_out = "not torch" in config.option.markexpr and collection_path.suffix == ".py"
    return True if left_out and ALL_NEED_TORCH.search(collection_path.read_text(encoding="utf-8")) else None


@pytest.fixture(autouse=True, scope="module")
def one_thread() -> Iterator[None]:
    """Models of a few thousand weights are slower on several threads.

    The profiler collects garbage before it asks how much memory is free: torch's own objects are left out of that.
    """
    if "torch" not in sys.modules:
        yield
        return
    import torch

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    gc.collect()
    gc.freeze()
    yield
    torch.set_num_threads(threads)
