"""The two ways through a model: few fused kernels, as engines have them, or transformers' own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

import torch

from profiler.models.shapes import TransformerShape
from profiler.passes.checks import check_operations
from profiler.passes.forward import Forward, PackedForward
from profiler.passes.fused import Fused, check_fused, refusal
from specsim.errors import SpecsimError, say

if TYPE_CHECKING:
    from transformers import PreTrainedModel

PASSES = ("fused", "transformers")
ASSUMPTIONS = {
    "fused": "kernels of specsim's fused path: QKV and gate-up one product each; norms, rotary, SwiGLU one kernel each",
    "transformers": "kernels of transformers' models as they are: nothing fused beyond what the attention kernel fuses",
}


def working_passes(asked: str | None, configs: Iterable[Any], device: torch.device) -> str:
    """Return the path to use: the one asked for, else fused on CUDA if it can be had, else transformers.

    `configs` are the configurations of loaded models. Why CUDA does without the fused path is said on standard error.

    Raises
    ------
    SpecsimError
        When the fused path is asked for and cannot be had.
    """
    if asked == "fused":
        for config in configs:
            check_fused(config)
        if device.type == "cuda" and find_spec("triton") is None:
            raise SpecsimError("passes 'fused' need triton: pip install \"specsim[profiler]\"")
        return asked
    if asked is not None or device.type != "cuda":
        return asked or "transformers"
    reasons = [why for config in configs if (why := refusal(config))]
    if find_spec("triton") is None:
        reasons.append("triton is not installed")
    if reasons:
        say(f"note: passes of transformers' model instead of 'fused': {reasons[0]}", error=True)
    return "transformers" if reasons else "fused"


def forward_of(passes: str, model: PreTrainedModel, shape: TransformerShape, pages: int, kernel: str) -> PackedForward:
    """Return a model ready for passes of one of the two paths; the operations of the fused one are checked first.

    Raises
    ------
    SpecsimError
        When the model has no such path, or an operation is wrong on its device.
    """
    if passes == "transformers":
        return Forward(model, shape, pages, kernel)
    made = Fused(model, shape, pages, kernel)
    check_operations(made.operations, shape, device=made.device, dtype=made.dtype)
    return made
