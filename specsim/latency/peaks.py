"""Peaks of hardware, and profiles that claim more."""

from __future__ import annotations

from collections.abc import Iterator
from math import inf
from typing import NamedTuple

from specsim.latency.forms import Block, Form, Linear, Roofline, Staged
from specsim.latency.model import ModelLatency, Profile
from specsim.pass_shape import PassShape


class Peak(NamedTuple):
    """Of one GPU: bytes a second from its memory, and 16-bit floating-point operations a second, dense."""

    bytes_per_s: float
    flop_per_s: float


PEAKS = {
    "A100-SXM4-40GB": Peak(1.555e12, 312e12),
    "A100-SXM4-80GB": Peak(2.039e12, 312e12),
    "A100 80GB PCIe": Peak(1.935e12, 312e12),
    "H100-SXM5-80GB": Peak(3.35e12, 989e12),
    "H100 80GB HBM3": Peak(3.35e12, 989e12),
    "H100 PCIe": Peak(2.0e12, 756e12),
    "H200": Peak(4.8e12, 989e12),
    "NVIDIA B200": Peak(8.0e12, 2250e12),
    "L40S": Peak(0.864e12, 362e12),
}
"""By a part of ``hardware``, CUDA's name of the device: NVIDIA's data sheets of A100, H100, H200, HGX B200 and L40S."""
LEAST_NONEMBEDDING_SHARE = 0.5
"""Of the weights, where a profile does not state it: only toys have fewer."""
TERA = 1e12


class Implied(NamedTuple):
    """A coefficient, the rate that it implies and the peak of the GPUs together, both in `unit` (TB/s or TFLOP/s)."""

    coefficient: str
    rate: float
    peak: float
    unit: str


def peak_of(hardware: str) -> Peak | None:
    """Return the peaks of a GPU, None where they are not known here."""
    return next((peak for name, peak in PEAKS.items() if name.lower() in hardware.lower()), None)


def peak_notes(profile: Profile, source: str) -> tuple[str, ...]:
    """Return a line for each coefficient in use that implies more than the profile's GPUs can do together."""
    peak = peak_of(profile.hardware)
    if peak is None:
        return ()
    return tuple(
        f"{source}: {role}.forms.{model.form}.{each.coefficient} implies {each.rate:,.4g} {each.unit}; the peak of "
        f"{profile.gpus} x {profile.hardware} is {each.peak:,.4g}: such passes are too short"
        for role, model in (("target", profile.target), ("draft", profile.draft))
        for each in implied(model, peak, profile.gpus)
        if each.rate > each.peak
    )


def implied(model: ModelLatency, peak: Peak, gpus: int) -> Iterator[Implied]:
    """Yield what the coefficients in use imply: reading a context token's cache, reading the weights, multiplying them.

    A 16-bit weight is two bytes and two operations a batched token, an 8-bit one half the bytes at twice the peak: in
    units of the 16-bit peak both make one operation a byte.
    """
    read, computed = gpus * peak.bytes_per_s / TERA, gpus * peak.flop_per_s / TERA
    stated = model.nonembedding_bytes
    weights = LEAST_NONEMBEDDING_SHARE * model.weights_bytes if stated is None else stated
    amounts = {"cache": model.kv_bytes_per_token, "weights": weights, "products": weights}
    limits = {"cache": (read, "TB/s"), "weights": (read, "TB/s"), "products": (computed, "TFLOP/s")}
    for kind, (coefficient, seconds) in _costs(model.chosen).items():
        if amounts[kind]:
            yield Implied(coefficient, amounts[kind] / seconds / TERA if seconds else inf, *limits[kind])


def _costs(form: Form) -> dict[str, tuple[str, float]]:
    """Return coefficient and seconds: cache of a context token, weights of a pass of one, products of a token more."""
    if isinstance(form, Block | Staged):
        return _costs(form.form)
    one = form.seconds(PassShape(0, 1, 0, 0, 0, 1))
    if isinstance(form, Linear):
        return {"cache": ("alpha_s", form.alpha_s), "weights": ("delta_s", one), "products": ("gamma_s", form.gamma_s)}
    if isinstance(form, Roofline):
        context_s = max(form.alpha_s, form.beta_s) + form.pair_s
        token_s = max(form.compute_s, form.gamma_s)
        return {"cache": ("alpha_s", context_s), "weights": ("delta_s", one), "products": ("compute_s", token_s)}
    (low, high), (before, after) = form.batched_tokens[-2:], form.seconds_at[-2:]
    costs = {"weights": ("floor_s", one), "products": ("seconds_at", (after - before) / (high - low))}
    context_s = max(form.alpha_s, form.beta_s)
    return {"cache": ("alpha_s", context_s), **costs} if context_s else costs
