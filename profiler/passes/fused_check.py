"""Comparison of the operations of a fused pass with plain torch in float64, on their device, before they are timed."""

from __future__ import annotations

import torch

from profiler.models.shapes import ModelShape
from profiler.passes.attention_check import TOLERANCE
from profiler.passes.operations import Plain
from specsim.errors import SpecsimError, first_line

TOKENS = 5
SLOTS = 64
EPSILON = 1e-5


def operations_error(made: Plain, shape: ModelShape, *, device: torch.device, dtype: torch.dtype) -> float:
    """Return the largest relative error of a token's result, at the sizes of a model: norms, rotary, writes, SwiGLU."""
    generator = torch.Generator(device=device).manual_seed(0)

    def drawn(*size: int) -> torch.Tensor:
        return torch.randn(size, generator=generator, device=device, dtype=torch.float32).to(dtype)

    hidden, residual, weight = drawn(TOKENS, shape.hidden), drawn(TOKENS, shape.hidden), drawn(shape.hidden)
    qkv = drawn(TOKENS, (shape.heads + 2 * shape.kv_heads) * shape.head_dim)
    gate_up = drawn(TOKENS, 2 * shape.ffn)
    angle = drawn(SLOTS, shape.head_dim // 2).float()
    rotary = angle.cos().to(dtype), angle.sin().to(dtype)
    positions, slots = (torch.randperm(SLOTS, generator=generator, device=device)[:TOKENS] for _ in range(2))

    def results(with_: Plain, wide: bool) -> list[torch.Tensor]:
        def given(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.double() if wide else tensor.clone()

        first = with_.add_norm(given(hidden), None, given(weight), EPSILON)
        second = with_.add_norm(given(hidden), given(residual), given(weight), EPSILON)
        pools = (
            given(hidden.new_zeros(SLOTS, shape.kv_heads, shape.head_dim)),
            given(hidden.new_zeros(SLOTS, shape.kv_heads, shape.head_dim)),
        )
        query = with_.rotary_write(given(qkv), positions, slots, (given(rotary[0]), given(rotary[1])), pools)
        return [
            *first,
            *second,
            query.flatten(1),
            *(pool.flatten(1) for pool in pools),
            with_.silu_multiply(given(gate_up)),
        ]

    pairs = zip(results(made, False), results(Plain(), True), strict=True)
    return max(_relative(found.double(), expected) for found, expected in pairs)


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error of a row over the row's norm; a row of zeros counts as of norm 1."""
    size = expected.norm(dim=-1)
    error = (found - expected).norm(dim=-1) / torch.where(size > 0, size, 1.0)
    return float(error.nan_to_num(float("inf")).max())


def check_operations(made: Plain, shape: ModelShape, *, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse operations that do not run on the device, or whose error exceeds the rounding of their type.

    Raises
    ------
    SpecsimError
        One line.
    """
    try:
        error = operations_error(made, shape, device=device, dtype=dtype)
    except Exception as problem:  # Compilers may raise anything; the user gets one line.
        said = first_line(problem)
        raise SpecsimError(f"the {made.name} operations of passes 'fused' do not run on {device}: {said}") from None
    if not error <= TOLERANCE[dtype]:
        raise SpecsimError(f"the {made.name} operations of passes 'fused' are wrong by {error:.2g} on {device}")
