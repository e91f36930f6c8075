"""How much memory a device has left."""

from __future__ import annotations

import os

import torch


def free_bytes(device: torch.device) -> int:
    """Return the bytes that are free on a device; on the CPU what the operating system calls available pages."""
    if device.type == "cuda":
        free, _ = torch.cuda.mem_get_info(device)
        return int(free)
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES")
