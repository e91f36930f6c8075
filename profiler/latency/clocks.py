"""The clocks of a GPU, read by a thread while the GPU works: an idle one shows others."""

from __future__ import annotations

import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

NAN = float("nan")
EVERY_S = 0.01
SMI_EVERY_S = 1.0
Reading = tuple[float, float]


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
