"""Free memory of a device, and errors of running out of it."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

from specsim.errors import SpecsimError

_BROKEN = ("cuda error", "triton error [cuda]")
_SAID = ("can't allocate memory", "out of memory", "alloc_failed")


def free_bytes(device: torch.device) -> int:
    """Return the free bytes of a device; on the CPU those of the operating system's available pages.

    On CUDA torch's cache is given back first, so that it counts as free.
    """
    give_back(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def give_back(device: torch.device) -> None:
    """Collect unused objects, and on CUDA give their memory back to the driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error means that memory ran out: CUDA's, Python's, or one of the CPU allocator."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _SAID)


def breaks_the_device(error: BaseException) -> bool:
    """Return whether an error is CUDA's and not of memory; after most of these nothing runs until a new start.

    An error of capturing is none of them: the device works, but every point would fail alike.
    """
    said = str(error).lower()
    if not isinstance(error, RuntimeError) or is_out_of_memory(error) or "captur" in said:
        return False
    return said.startswith(_BROKEN)


@contextmanager
def memory_for(what: str, device: torch.device) -> Iterator[None]:
    """Turn an out-of-memory error inside the context into one line.

    Raises
    ------
    SpecsimError
        Naming `what` needed the memory.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise SpecsimError(f"{what}: too little memory on {device}") from None
