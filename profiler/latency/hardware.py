"""The hardware of a sweep: name, sizes, and the two ceilings that bound every pass."""

from __future__ import annotations

import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from profiler.latency.clocks import smi
from profiler.latency.timers import Effort, Timer

CEILING = Effort(10, 1.0)
CPU_SIDE, CUDA_SIDE = 1024, 8192
CPU_COPY_BYTES, CUDA_COPY_BYTES = 2**28, 2**32


@dataclass(frozen=True, slots=True)
class Hardware:
    """A device by its driver's name, with the bytes of its memory and of its last-level cache (0: unknown).

    `host` names the processor and the operating system beside it.
    """

    name: str
    memory_bytes: int
    cache_bytes: int
    driver: str
    host: str


def hardware(device: torch.device) -> Hardware:
    """Return the facts of a device."""
    system = f"{platform.system()} {platform.release()}"
    host = f"{cpu_name()}, {system}"
    if device.type == "cuda":
        about: Any = torch.cuda.get_device_properties(device)
        driver = smi("driver_version", device) or ["unknown"]
        return Hardware(about.name, about.total_memory, getattr(about, "L2_cache_size", 0), driver[0], host)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    threads = torch.get_num_threads()
    name = f"{cpu_name()}, {threads} thread{'' if threads == 1 else 's'}"
    return Hardware(name, memory, 0, system, host)


def cpu_name() -> str:
    """Return the model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


@dataclass(frozen=True, slots=True)
class Ceilings:
    """The measured peaks: operations per second of a large matrix product, bytes per second of a large copy."""

    flops_per_s: float
    bytes_per_s: float

    def knee_tokens(self, value_bytes: int) -> float:
        """Return the batched tokens whose products take as long as reading the weights, two operations per weight."""
        return self.flops_per_s * value_bytes / (2 * self.bytes_per_s)


def ceilings(timer: Timer, *, device: torch.device, dtype: torch.dtype) -> Ceilings:
    """Measure both peaks, on random values."""
    side = CUDA_SIDE if device.type == "cuda" else CPU_SIDE
    size = CUDA_COPY_BYTES if device.type == "cuda" else CPU_COPY_BYTES
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    product = timer.launched(lambda: torch.matmul(a, b, out=out), lambda _: None, CEILING)
    source = torch.ones(size // dtype.itemsize, device=device, dtype=dtype)
    target = torch.empty_like(source)
    copy = timer.launched(lambda: target.copy_(source), lambda _: None, CEILING)
    return Ceilings(2 * side**3 / product.median_s, 2 * size / copy.median_s)
