"""The hardware of a sweep: names, sizes, the two ceilings that bound every pass, and a GPU's clocks."""

from __future__ import annotations

import os
import platform
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from profiler.latency.timers import Effort, Timer
from profiler.models.loading import versions

CEILING = Effort(10, 1.0)
CPU_SIDE, CUDA_SIDE = 1024, 8192
CPU_COPY_BYTES, CUDA_COPY_BYTES = 2**28, 2**32
NAN = float("nan")
EVERY_S = 0.01
SMI_EVERY_S = 1.0
"""Seconds between readings of the clocks, by NVML and by nvidia-smi."""
Reading = tuple[float, float]
"""The clocks of multiprocessors and of memory, in MHz."""


@dataclass(frozen=True, slots=True)
class Device:
    """A device by its driver's name, with the bytes of its memory and of its last-level cache (0: unknown).

    `host` names the processor and the operating system beside it.
    """

    name: str
    memory_bytes: int
    cache_bytes: int
    driver: str
    host: str


def hardware(device: torch.device) -> Device:
    """Return the facts of a device."""
    system = f"{platform.system()} {platform.release()}"
    host = f"{cpu_name()}, {system}"
    if device.type == "cuda":
        about: Any = torch.cuda.get_device_properties(device)
        driver = smi("driver_version", device) or ["unknown"]
        return Device(about.name, about.total_memory, getattr(about, "L2_cache_size", 0), driver[0], host)
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    threads = torch.get_num_threads()
    name = f"{cpu_name()}, {threads} thread{'' if threads == 1 else 's'}"
    return Device(name, memory, 0, system, host)


def machine_facts(device: torch.device) -> dict[str, Any]:
    """Return what measurements are kept with: a device and its memory, driver and host, and versions of libraries."""
    about = hardware(device)
    facts = {"hardware": about.name, "driver": about.driver, "host": about.host, "memory_bytes": about.memory_bytes}
    return {**facts, **versions()}


def cpu_name() -> str:
    """Return the model of this machine's processor."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        lines = []
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor() or platform.machine()


def ceilings(timer: Timer, *, device: torch.device, dtype: torch.dtype) -> dict[str, float]:
    """Return the measured peaks, on random values, and the batched tokens at their ridge.

    `flops_per_s` are operations per second of a large matrix product, `bytes_per_s` bytes of a large copy. The products
    of `knee_tokens` take as long as reading the weights, two operations per weight.
    """
    side = CUDA_SIDE if device.type == "cuda" else CPU_SIDE
    size = CUDA_COPY_BYTES if device.type == "cuda" else CPU_COPY_BYTES
    a, b = (torch.randn(side, side, device=device, dtype=dtype) for _ in range(2))
    out = torch.empty_like(a)
    product = timer.launched(lambda: torch.matmul(a, b, out=out), lambda _: None, CEILING)
    source = torch.ones(size // dtype.itemsize, device=device, dtype=dtype)
    target = torch.empty_like(source)
    copy = timer.launched(lambda: target.copy_(source), lambda _: None, CEILING)
    flops_per_s, bytes_per_s = 2 * side**3 / product.median_s, 2 * size / copy.median_s
    knee_tokens = flops_per_s * dtype.itemsize / (2 * bytes_per_s)
    return {"flops_per_s": flops_per_s, "bytes_per_s": bytes_per_s, "knee_tokens": knee_tokens}


@dataclass(slots=True)
class Seen:
    """The clocks read while a piece of work ran, in MHz: multiprocessors and memory."""

    readings: list[Reading] = field(default_factory=list)
    before: Reading = (NAN, NAN)

    def median(self) -> Reading:
        """Return the median of each; for work too short for a reading, the reading under load before it."""
        if not self.readings:
            return self.before
        sm, memory = np.median(np.array(self.readings), axis=0)
        return float(sm), float(memory)


class Clocks:
    """Readings of one device; `reader` returns both clocks in MHz, or None where they cannot be read."""

    def __init__(self, reader: Callable[[], Reading | None] | None, every_s: float = EVERY_S) -> None:
        self._reader = reader
        self._every_s = every_s
        self._seen: Seen | None = None
        self._busy = threading.Event()
        self._latest: Reading = (NAN, NAN)
        if reader is not None:
            threading.Thread(target=self._read_on, daemon=True).start()

    @contextmanager
    def watch(self) -> Iterator[Seen]:
        """Read the clocks while the body runs."""
        seen = self._seen = Seen(before=self._latest)
        self._busy.set()
        try:
            yield seen
        finally:
            self._busy.clear()
            self._seen = None

    def _read_on(self) -> None:
        assert self._reader is not None
        while True:
            self._busy.wait()
            time.sleep(self._every_s)
            seen = self._seen
            found = self._reader() if seen is not None else None
            # Work that ended meanwhile has left an idle device behind.
            if found is not None and seen is not None and seen is self._seen:
                seen.readings.append(found)
                self._latest = found


def clocks_of(device: torch.device) -> Clocks:
    """Return the clocks of a device: by NVML where its Python package is, else by nvidia-smi; none on the CPU."""
    if device.type != "cuda":
        return Clocks(None)
    reader = _nvml(device)
    return Clocks(reader) if reader is not None else Clocks(lambda: _smi_clocks(device), SMI_EVERY_S)


def _nvml(device: torch.device) -> Callable[[], Reading | None] | None:
    try:
        import pynvml

        pynvml.nvmlInit()
        handle = pynvml.nvmlDeviceGetHandleByUUID(smi_id(device))
        kinds = (pynvml.NVML_CLOCK_SM, pynvml.NVML_CLOCK_MEM)
    except Exception:  # The package, its library or the device may be missing, each with errors of its own.
        return None

    def read() -> Reading | None:
        try:
            sm, memory = (float(pynvml.nvmlDeviceGetClockInfo(handle, kind)) for kind in kinds)
        except pynvml.NVMLError:
            return None
        return sm, memory

    return read


def _smi_clocks(device: torch.device) -> Reading | None:
    found = smi("clocks.sm,clocks.mem", device)
    if len(found) != 2 or not all(each.isdigit() for each in found):
        return None
    return float(found[0]), float(found[1])


def smi(query: str, device: torch.device) -> list[str]:
    """Return the answers of nvidia-smi, none where it cannot be asked."""
    command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader,nounits", f"--id={smi_id(device)}"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10, check=True)
    except (OSError, subprocess.SubprocessError):
        return []
    return [each.strip() for each in done.stdout.strip().split(",")]


def smi_id(device: torch.device) -> str:
    """Return the GPU's UUID, since nvidia-smi numbers all GPUs and torch only those of CUDA_VISIBLE_DEVICES."""
    about: Any = torch.cuda.get_device_properties(device)
    uuid = getattr(about, "uuid", None)
    return f"GPU-{uuid}" if uuid else str(device.index or 0)
