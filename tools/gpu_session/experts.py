"""The check `experts`: routed experts of a layer, by torch's grouped products and by one Triton kernel as engines have.

The shape is that of Qwen3-30B-A3B. A stack of layers with weights of their own is timed, so that no cache holds them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch.nn.functional import grouped_mm, silu

from profiler.attention.planning import operations_of
from specsim.errors import first_line
from tools.gpu_session.place import Place
from tools.gpu_session.state import Row

TOKENS = (1, 2, 4, 8, 16, 32, 64, 128, 256, 512)
LAYERS = 4
SPREAD = 0.02
TILES = ((16, 64, 128, 4), (16, 128, 128, 4), (32, 128, 64, 4), (64, 128, 64, 8))
"""Rows, columns and depth of a product's tile, and its warps: those that vLLM's tuned tables choose between."""


class ExpertShape(NamedTuple):
    """Width of the model, experts, those that a token takes, and width of one."""

    hidden: int
    experts: int
    taken: int
    width: int


QWEN3_30B_A3B = ExpertShape(2048, 128, 8, 768)
TINY = ExpertShape(64, 8, 2, 32)


@dataclass(frozen=True, slots=True)
class Experts:
    """Weights of a layer: router (E, H), gate-up (E, 2 f, H) and down (E, H, f) products."""

    router: torch.Tensor
    gate_up: torch.Tensor
    down: torch.Tensor
    taken: int

    def route(self, hidden: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and numbers of the experts that each token takes, (T, taken) each."""
        share, chosen = (hidden @ self.router.T).float().softmax(-1).topk(self.taken)
        return share / share.sum(-1, keepdim=True), chosen


def drawn(shape: ExpertShape, place: Place, seed: int) -> Experts:
    """Return random experts."""
    generator = torch.Generator(device=place.device).manual_seed(seed)

    def weights(*size: int) -> torch.Tensor:
        empty = torch.empty(size, device=place.device, dtype=place.dtype)
        return empty.normal_(0.0, SPREAD, generator=generator)

    hidden, experts, taken, width = shape
    return Experts(
        weights(experts, hidden), weights(experts, 2 * width, hidden), weights(experts, hidden, width), taken
    )


def plain(experts: Experts, hidden: torch.Tensor) -> torch.Tensor:
    """Return the result (T, H) by one expert after the other: the definition."""
    share, chosen = experts.route(hidden)
    out = torch.zeros_like(hidden)
    for token in range(len(hidden)):
        for weight, expert in zip(share[token], chosen[token], strict=True):
            gate, up = (hidden[token] @ experts.gate_up[expert].T).chunk(2, dim=-1)
            out[token] += weight.to(out.dtype) * ((silu(gate) * up) @ experts.down[expert].T)
    return out


def grouped(experts: Experts, hidden: torch.Tensor) -> torch.Tensor:
    """Return the result by torch's grouped products over tokens sorted by expert."""
    share, chosen = experts.route(hidden)
    expert, order = chosen.flatten().sort()
    ends = _counts(expert, len(experts.router)).cumsum(0).to(torch.int32)
    inner = grouped_mm(hidden[order // experts.taken], experts.gate_up.transpose(1, 2), offs=ends)
    outer = grouped_mm(operations_of(hidden.device).silu_multiply(inner), experts.down.transpose(1, 2), offs=ends)
    weighted = outer * share.flatten()[order, None].to(outer.dtype)
    return torch.zeros_like(hidden).index_add_(0, order // experts.taken, weighted)


class TilePlacement(NamedTuple):
    """Tokens laid out in tiles of one expert each: shares (T, taken), pair of each row, expert of each tile."""

    share: torch.Tensor
    placed: torch.Tensor
    of_tile: torch.Tensor


def laid_out(experts: Experts, hidden: torch.Tensor, rows: int) -> TilePlacement:
    """Return the layout in tiles of so many rows, padded as vLLM's are; a row of padding has the number of pairs."""
    share, chosen = experts.route(hidden)
    count, pairs = len(experts.router), chosen.numel()
    expert, order = chosen.flatten().sort()
    held = _counts(expert, count)
    padded = (held + rows - 1) // rows * rows
    ends = padded.cumsum(0)
    at = (ends - padded)[expert] + torch.arange(pairs, device=hidden.device) - (held.cumsum(0) - held)[expert]
    tiles = min(pairs, count) + pairs // rows
    placed = torch.full((tiles * rows,), pairs, device=hidden.device, dtype=torch.int64).index_copy_(0, at, order)
    of_tile = torch.searchsorted(ends, torch.arange(tiles, device=hidden.device) * rows, right=True)
    return TilePlacement(share, placed, of_tile)


def fused(experts: Experts, hidden: torch.Tensor, tile: tuple[int, int, int, int]) -> torch.Tensor:
    """Return the result by a Triton kernel over tiles of one expert each."""
    from tools.gpu_session.experts_kernel import product

    share, placed, of_tile = laid_out(experts, hidden, tile[0])
    inner = product(hidden, experts.gate_up, placed, of_tile, experts.taken, tile)
    outer = product(operations_of(hidden.device).silu_multiply(inner), experts.down, placed, of_tile, 1, tile)
    return (outer.view(len(hidden), experts.taken, -1) * share[..., None].to(outer.dtype)).sum(1)


def routed(experts: Experts, hidden: torch.Tensor) -> torch.Tensor:
    """Return what waits for router and layout alone, which plain torch does in many kernels and an engine in two."""
    share, placed, of_tile = laid_out(experts, hidden, TILES[0][0])
    return hidden * (share[:, :1] + placed[0] + of_tile[0]).to(hidden.dtype)


def _counts(expert: torch.Tensor, count: int) -> torch.Tensor:
    """Return how many tokens each expert has, without asking the device."""
    return (expert[:, None] == torch.arange(count, device=expert.device)).sum(0)


def ways(place: Place) -> dict[str, Callable[[Experts, torch.Tensor], torch.Tensor]]:
    """Return the ways to compute experts that run on the device."""
    found: dict[str, Any] = {"grouped": grouped}
    if place.device.type == "cuda":
        for tile in TILES:
            name = "fused " + " x ".join(map(str, tile[:3]))
            found[name] = lambda experts, hidden, tile=tile: fused(experts, hidden, tile)
    return found


@torch.inference_mode()
def experts(place: Place) -> Iterator[Row]:
    """Yield the error of each way, and the microseconds of a layer's experts by way and tokens, router included."""
    shape, tokens = (QWEN3_30B_A3B, TOKENS) if place.on_gpu else (TINY, TOKENS[:3])
    stack = [drawn(shape, place, seed) for seed in range(LAYERS)]
    given = torch.randn(max(tokens), shape.hidden, device=place.device, dtype=place.dtype)
    for name, way in {"router and layout alone": routed, **ways(place)}.items():
        try:
            expected = plain(stack[0], given[:8])
            error = float((way(stack[0], given[:8]) - expected).norm() / expected.norm())
        except Exception as problem:  # Compilers may raise anything.
            yield Row("experts", name, "error", note=first_line(problem))
            continue
        if way is not routed:
            yield Row("experts", name, "error", error)
        for count in tokens:
            held = given[:count].clone()

            def run(held: torch.Tensor = held, way: Any = way) -> torch.Tensor:
                hidden = held
                for layer in stack:
                    hidden = hidden + way(layer, hidden)
                return hidden

            def rotate(turn: int, held: torch.Tensor = held) -> None:
                held.copy_(given[torch.arange(len(held), device=held.device).add_(7 * turn) % len(given)])

            seconds = place.timed(run, rotate).median_s
            yield Row("experts", f"{name}, {count} tokens", "time", 1e6 * seconds / LAYERS, "us")
