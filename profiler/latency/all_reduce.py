"""A model of tensor parallelism's all-reduce, with which one shard on one GPU stands for all shards."""

from __future__ import annotations

from profiler.models.shapes import ModelShape
from specsim.errors import SpecsimError, nearest

PER_LAYER = 2


LINKS = {
    "nvlink4": {2: (7.9e-6, 248e9), 4: (12.3e-6, 196e9), 8: (19.4e-6, 201e9)},
    "nvlink3": {2: (11.7e-6, 155e9), 4: (15.8e-6, 117e9), 8: (23.7e-6, 104e9)},
}
"""Seconds, and bytes per second, of an all-reduce by link and number of GPUs: least squares of relative errors on
aiconfigurator 0.4.0's table of NCCL's half-precision all-reduce (A100 SXM, H100 SXM), with messages up to 256 MiB."""


def check_link(name: str | None, gpus: int) -> None:
    """Refuse an unknown link, a link without that number of GPUs, and several GPUs without a link.

    Raises
    ------
    SpecsimError
        One line.
    """
    if name is None:
        if gpus > 1:
            raise SpecsimError(f"tp {gpus}: --link is missing; expected nvlink4 (H100, H200) or nvlink3 (A100)")
        return
    if name not in LINKS:
        raise SpecsimError(f"link {name!r} is unknown{nearest(name, LINKS)}")
    if gpus > 1 and gpus not in LINKS[name]:
        raise SpecsimError(f"tp {gpus}: the model of link {name} is for 2, 4 or 8 GPUs")


def all_reduce_s(shape: ModelShape, link: str | None, gpus: int, tokens: int, value_bytes: int) -> float:
    """Return the all-reduce seconds of a pass of `tokens`: two all-reduces per layer, none on one GPU."""
    if gpus == 1 or link is None:
        return 0.0
    latency_s, bytes_per_s = LINKS[link][gpus]
    return PER_LAYER * shape.layers * (latency_s + tokens * shape.hidden * value_bytes / bytes_per_s)


MEDIAN_ERROR = "8 to 16%"


def stated(link: str, gpus: int) -> str:
    """Return the model and its error as one line for the profile's assumptions."""
    latency_s, bytes_per_s = LINKS[link][gpus]
    return (
        f"one of {gpus} shards measured; its all-reduces by a model: {PER_LAYER} a layer, "
        f"{latency_s * 1e6:.1f} us + bytes / {bytes_per_s / 1e9:.0f} GB/s ({link}), "
        f"a line whose median error is {MEDIAN_ERROR} on NCCL's times"
    )
