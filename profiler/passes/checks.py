"""Comparisons before anything is timed: attention kernels, operations of a fused pass, replayed passes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike

from profiler.attention.operations import Plain
from profiler.attention.packing import Ints, Work, pack
from profiler.attention.pages import CacheShape, deal, is_out_of_memory, memory_for
from profiler.attention.planning import KERNELS, SPLIT, best_kernel, page_tokens, planner
from profiler.attention.sdpa import Sdpa
from profiler.models.shapes import TransformerShape
from profiler.passes.forward import PackedForward
from profiler.passes.graphs import Replays, capture
from specsim.errors import SpecsimError, first_line, say

# A right kernel errs by a few roundings of its type: at most 0.4%, 0.05% and 1e-6 of a query's head on the CPU, by SDPA
# or FlexAttention. From four heads on, one visible node too many or too few is at least 3%.
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-3, torch.float16: 5e-3, torch.bfloat16: 1.5e-2}
PAGES = 24
"""Of the cache over which attention is compared."""
TOKENS, SLOTS, EPSILON = 5, 64, 1e-5
"""Of the compared operations: tokens, slots of the cache and positions, epsilon of the norms."""
SHORT, MOST = 17, 2048
"""Tokens of the short rows of a replayed pass, and the most of the long one."""


def kernel_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return the largest relative error of a query's head against SDPA, over trees, a chain, a chunk and a decode.

    A kernel that passes without a tree take another way through is compared over such a pass too.
    """
    works = [checked_work(), causal_work()] if kernel in SPLIT else [checked_work()]
    return max(work_error(kernel, work, heads, kv_heads, head_dim, **place) for work in works)


def work_error(kernel: str, work: Work, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return the largest relative error over one pass.

    As in a sweep, the plan takes over other pages before it runs, and on CUDA runs as a captured graph. `place` holds
    the device and dtype, and in tests a stand-in ``cuda`` for ``torch.cuda``.
    """
    device, dtype = place["device"], place["dtype"]
    shape = CacheShape(1, kv_heads, head_dim, PAGES, page_tokens(kernel, device))
    packed, size, scaling = pack(work), work.batched_tokens, head_dim**-0.5
    rng = np.random.default_rng(0)
    before, tables = deal(work, shape, rng), deal(work, shape, rng)
    generator = torch.Generator(device=device).manual_seed(0)
    draw = {"generator": generator, "device": device, "dtype": dtype}
    keys, values = (torch.randn(shape.slots, kv_heads, head_dim, **draw) for _ in range(2))
    query = torch.randn(size, heads, head_dim, **draw)
    made = planner(kernel, shape, heads, device=device, dtype=dtype)
    plan, other = (made.plan(work, packed, each, size) for each in (before, tables))
    cuda = place.get("cuda", torch.cuda if device.type == "cuda" else None)
    found = _swapped(lambda: plan(query, keys, values, scaling), lambda: plan.load(other), cuda)
    precise = Sdpa(heads // kv_heads, device=device, dtype=torch.float64).plan(work, packed, tables, size)
    expected = precise(query.double(), keys.double(), values.double(), scaling)
    return _relative(found.double(), expected)


def checked_work() -> Work:
    """Return the pass that attention is compared over: a tree and a chunk, a decode, trees of siblings, one node."""
    return Work.of(
        [70, 0, 17, 200],
        [1, 40, 1, 1],
        [0, 0, 0, 0, 2, 2, 2, 2, 2, 2, 2],
        [-1, 0, -1, 2, -1, 4, 5, 4, 5, -1, 9],
    )


def causal_work() -> Work:
    """Return the compared pass without a tree: decodes, chunks, a chain, a draft step behind two cached tokens."""
    return Work.of(
        [70, 0, 17, 200],
        [1, 40, 3, 0],
        [0, 0, 3, 3, 3],
        [-1, 0, -1, 2, 3],
        [False, False, True, True, False],
    )


@torch.inference_mode()
def _swapped(run: Callable[[], torch.Tensor], swap: Callable[[], object], cuda: Any) -> torch.Tensor:
    """Return the result of a pass after it has taken over other pages; with `cuda` it is a replay of a graph."""
    if cuda is None:
        swap()
        return run()
    graph, result = capture(run, run, cuda)
    try:
        swap()
        graph.replay()
        cuda.synchronize()
        kept: torch.Tensor = result.clone()
        return kept
    finally:
        graph.reset()


def checked_error(kernel: str, heads: int, kv_heads: int, head_dim: int, **place: Any) -> float:
    """Return `kernel_error`, if it is small enough.

    Raises
    ------
    SpecsimError
        When the kernel cannot run here, or its error exceeds the rounding of its type.
    """
    device = place["device"]
    with _one_line(f"attention {kernel!r} does not run on {device}"), memory_for(f"attention {kernel!r}", device):
        error = kernel_error(kernel, heads, kv_heads, head_dim, **place)
    if not error <= TOLERANCE[place["dtype"]]:
        raise SpecsimError(f"attention {kernel!r} is wrong by {error:.2g} of a query's result on {device}")
    return error


@contextmanager
def _one_line(said: str) -> Iterator[None]:
    try:
        yield
    except SpecsimError:
        raise
    except Exception as problem:
        raise SpecsimError(f"{said}: {first_line(problem)}") from None


def working_kernel(kernel: str, **place: Any) -> str:
    """Return the kernel to use: the one named, or with ``auto`` the fastest that gives right results here.

    A faster kernel that fails is named on standard error. On CUDA ``auto`` takes only fused kernels. SDPA gathers every
    key in every layer first, which takes other times, so it must be named.

    Raises
    ------
    SpecsimError
        When the named kernel does not work, or none does.
    """
    device = place["device"]
    if kernel != "auto":
        checked_error(kernel, 8, 2, 64, **place)
        return kernel
    for name in KERNELS[KERNELS.index(best_kernel(device)) :]:
        if name == "sdpa" and device.type == "cuda":
            break
        try:
            checked_error(name, 8, 2, 64, **place)
        except SpecsimError as problem:
            say(f"note: {problem}", error=True)
        else:
            return name
    raise SpecsimError(f"no fused attention works on {device}; expected one that does, or --attention sdpa asked for")


def operations_error(made: Plain, shape: TransformerShape, *, device: torch.device, dtype: torch.dtype) -> float:
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


def check_operations(made: Plain, shape: TransformerShape, *, device: torch.device, dtype: torch.dtype) -> None:
    """Refuse operations that do not run on the device, or whose error exceeds the rounding of their type.

    Raises
    ------
    SpecsimError
        One line.
    """
    those = f"the {made.name} operations of passes 'fused'"
    with _one_line(f"{those} do not run on {device}"):
        error = operations_error(made, shape, device=device, dtype=dtype)
    if not error <= TOLERANCE[dtype]:
        raise SpecsimError(f"{those} are wrong by {error:.2g} on {device}")


def check_replays(forward: PackedForward, replays: Replays) -> None:
    """Replay passes of each kind over other rows than their graphs were captured with, and compare.

    Roundings of a layer add up like steps of a random walk; logits of a wrong row differ by as much as they are.

    Raises
    ------
    SpecsimError
        When a graph cannot be captured, or its logits differ.
    """
    allowed = TOLERANCE[forward.dtype] * (2 * forward.shape.layers) ** 0.5
    for seed, work in enumerate(checked_works(forward.cache.shape, forward.planner.name)):
        rng = np.random.default_rng(seed)
        tables = deal(work, forward.cache.shape, rng)
        tokens = rng.integers(0, forward.shape.vocab, work.batched_tokens)
        plain = forward.run(forward.inputs(work, tables, tokens)).double()
        try:
            run = replays.prepared(work, tables, tokens)
            assert run is not None, "a pass whose shape comes again is replayed"
            error = _relative(run().double(), plain)
        except RuntimeError as refused:
            if is_out_of_memory(refused):
                raise
            raise SpecsimError(f"graphs: {forward.shape.name} cannot be captured: {first_line(refused)}") from None
        if not error <= allowed:
            raise SpecsimError(f"graphs: a replay of {forward.shape.name} errs by {error:.2g}; expected {allowed:.2g}")


def checked_works(shape: CacheShape, kernel: str) -> list[Work]:
    """Return the passes that are replayed: each graph is captured over three rows and replayed over four.

    Decodes and draft steps of chains; in one pair of decodes the last row is long, at first just over half of what the
    graph has room for, then nearly all. Where `Replays` takes them also verified chains and trees, draft steps of
    several leaves, and catch-ups.
    """
    pages, fewest = 2, shape.pages - 8
    while 2 * pages <= min(fewest, MOST // shape.page_tokens):
        pages *= 2
    room = pages * shape.page_tokens
    works = [decodes(3), decodes(4), extended([1, 1, 1]), extended([1, 1, 1, 1])]
    if pages > 2:
        works += [decodes(3, room // 2 + 1), decodes(4, room - 2)]
    if kernel in SPLIT:
        for children in (1, 2):
            works += [verified([1, 2, 4], children), verified([7, 0, 3, 1], children)]
        works += [extended([2, 1, 3]), extended([4, 2, 1, 1])]
        works += [Work.of(_contexts(3), [2, 1, 4]), Work.of(_contexts(4), [4, 1, 2, 1])]
    return works


def decodes(rows: int, last: int | None = None) -> Work:
    """Return a decode of rows of different contexts, the last of them so long if it is given."""
    context = _contexts(rows)
    if last is not None:
        context[-1] = last
    return Work.of(context, np.ones(rows))


def verified(nodes: Sequence[int], children: int) -> Work:
    """Return the verification of trees of so many nodes, with so many behind each node; with one they are chains."""
    row, place = _places(nodes)
    parent = np.where(place > 0, np.arange(len(row)) - place + (place - 1) // children, -1)
    return Work.of(_contexts(len(nodes)), np.ones(len(nodes)), row, parent)


def extended(leaves: Sequence[int]) -> Work:
    """Return a draft step: behind so many cached nodes of each row one node each."""
    row, place = _places(2 * np.array(leaves))
    behind = np.array(leaves)[row]
    parent = np.where(place < behind, -1, np.arange(len(row)) - behind)
    return Work.of(_contexts(len(leaves)), np.zeros(len(leaves)), row, parent, place < behind)


def _contexts(rows: int) -> Ints:
    return np.arange(rows) * 4 + SHORT


def _places(counts: ArrayLike) -> tuple[Ints, Ints]:
    """Return the row of each of so many nodes a row, and its place among the row's."""
    count = np.asarray(counts)
    row = np.repeat(np.arange(len(count)), count)
    return row, np.arange(len(row)) - (np.cumsum(count) - count)[row]


def _relative(found: torch.Tensor, expected: torch.Tensor) -> float:
    """Return the largest error of a row over the row's norm; a row of zeros counts as of norm 1."""
    size = expected.norm(dim=-1)
    error = (found - expected).norm(dim=-1) / torch.where(size > 0, size, 1.0)
    return float(error.nan_to_num(float("inf")).max())
