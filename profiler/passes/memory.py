"""How much memory a device has left, and what running out of it looks like."""

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
    """Return the bytes that are free on a device; on the CPU what the operating system calls available pages.

    On CUDA what earlier work left in torch's cache is given back before, so that it does not count as taken.
    """
    give_back(device)
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")


def give_back(device: torch.device) -> None:
    """Collect what nobody holds any more, and on CUDA hand it to the driver."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that memory ran out: CUDA's own kind, Python's, or the CPU allocator's words."""
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    return isinstance(error, RuntimeError) and any(words in str(error).lower() for words in _SAID)


def breaks_the_device(error: BaseException) -> bool:
    """Return whether an error is CUDA's own and no want of memory: after most, nothing runs before a new start.

    What may not be captured is another matter: the device is sound, and every point would meet it.
    """
    said = str(error).lower()
    if not isinstance(error, RuntimeError) or is_out_of_memory(error) or "captur" in said:
        return False
    return said.startswith(_BROKEN)


@contextmanager
def memory_for(what: str, device: torch.device) -> Iterator[None]:
    """Turn running out of memory inside into one line.

    Raises
    ------
    SpecsimError
        Naming `what` there was too little memory for.
    """
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise SpecsimError(f"{what}: too little memory on {device}") from None
