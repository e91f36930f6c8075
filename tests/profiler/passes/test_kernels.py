"""Every Triton kernel on Triton's interpreter, against the definition in float64."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")

from profiler.attention.packing import pack  # noqa: E402
from profiler.attention.planning import operations  # noqa: E402
from profiler.attention.split import SplitAttention, plain_paged, plain_tail  # noqa: E402
from tests.profiler.passes.layouts import CPU, TREES, exact, pools  # noqa: E402

pytestmark = pytest.mark.torch
DTYPES = {torch.float32: 2e-6, torch.bfloat16: 1e-2}
# The interpreter multiplies matrices of bfloat16 as integers.
OF_PRODUCTS = {torch.float32: 2e-6, torch.float16: 1.5e-3}


def drawn(*size, seed=0, dtype=torch.float32):
    return torch.randn(size, generator=torch.Generator().manual_seed(seed)).to(dtype)


def relative(found, expected):
    """Return the largest error of a row over the row's norm; NaN is infinite."""
    error = (found.double() - expected).norm(dim=-1) / expected.norm(dim=-1)
    return float(error.nan_to_num(float("inf")).max())


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [96, 896])
@pytest.mark.parametrize("adds", [False, True])
def test_add_and_norm(dtype, width, adds):
    hidden, residual = (drawn(5, width, seed=i, dtype=dtype) for i in (0, 1))
    weight = drawn(width, seed=2, dtype=dtype)
    summed = hidden.double() + (residual.double() if adds else 0.0)
    expected = summed / (summed.pow(2).mean(-1, keepdim=True) + 1e-3).sqrt() * weight.double()
    out, kept = operations("triton").add_norm(hidden, residual.clone() if adds else None, weight, 1e-3)
    assert out.dtype == kept.dtype == dtype
    assert relative(out, expected) < DTYPES[dtype]
    assert relative(kept, summed) < DTYPES[dtype]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize(("share", "width"), [(1, 16), (3, 24), (7, 64)])
def test_rotary_and_cache_write(dtype, share, width):
    """As complex numbers: pair i of a head is turned by the position's i-th angle."""
    kv_heads, tokens, slots = 2, 5, 40
    qkv = drawn(tokens, (share + 2) * kv_heads * width, dtype=dtype)
    angle = drawn(30, width // 2, seed=1)
    rotary = angle.cos().to(dtype), angle.sin().to(dtype)
    positions, at = torch.tensor([3, 0, 29, 3, 7]), torch.tensor([39, 5, 0, 17, 8])
    pool = tuple(drawn(slots, kv_heads, width, seed=i, dtype=dtype) for i in (2, 3))
    before = [each.clone() for each in pool]
    query = operations("triton").rotary_write(qkv, positions, at, rotary, pool)
    heads = qkv.double().view(tokens, -1, width)
    turn = torch.complex(*(each.double()[positions] for each in rotary))[:, None]
    turned = torch.complex(*heads.chunk(2, dim=-1)) * turn
    whole = torch.cat([turned.real, turned.imag], dim=-1)
    assert relative(query, whole[:, : kv_heads * share]) < DTYPES[dtype]
    assert relative(pool[0][at], whole[:, kv_heads * share : kv_heads * (share + 1)]) < DTYPES[dtype]
    assert torch.equal(pool[1][at].double(), heads[:, -kv_heads:])
    others = np.setdiff1d(np.arange(slots), at.numpy())
    for now, old in zip(pool, before, strict=True):
        assert torch.equal(now[others], old[others])


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("width", [1024, 1500])
def test_silu_multiply(dtype, width):
    gate_up = drawn(3, 2 * width, dtype=dtype)
    gate, up = gate_up.double().chunk(2, dim=-1)
    expected = gate / (1 + (-gate).exp()) * up
    assert relative(operations("triton").silu_multiply(gate_up), expected) < DTYPES[dtype]


@pytest.mark.parametrize("dtype", OF_PRODUCTS)
@pytest.mark.parametrize(
    ("name", "share"), [*((name, 4) for name in TREES), *(("tree of 7", share) for share in (1, 7, 8))]
)
def test_tail_merged_with_the_context_is_attention_to_both(name, share, dtype):
    work = TREES[name]
    shape, (tables, _), query, keys, values = pools(work, share, 16, dtype=dtype)
    expected = exact(work, share, tables, query, keys, values)
    split = SplitAttention("split", shape, plain_paged, operations("triton").tail, device=CPU)
    plan = split.plan(work, pack(work), tables, len(query))
    assert relative(plan(query, keys, values, 0.3), expected) < OF_PRODUCTS[dtype]


def test_the_kernel_reads_nothing_of_an_empty_context():
    """An output that is not written keeps what the memory held: here no numbers."""
    work = TREES["tree behind nothing"]
    shape, (tables, _), query, keys, values = pools(work, 2, 16, dtype=torch.float32)
    split = SplitAttention("split", shape, plain_paged, plain_tail, device=CPU)
    plan = split.plan(work, pack(work), tables, len(query))
    assert work.context.tolist() == [0, 1]
    out, lse = plain_paged(query, (keys, values), plan.span, 0.4)
    expected = plain_tail(query, (keys, values), plan.tail, (out, lse), 0.4)
    first = int(plan.tail.start[1])
    for poison in (float("nan"), float("inf")):
        out[:first], lse[:, :first] = poison, poison
        for tail in (plain_tail, operations("triton").tail):
            found = tail(query, (keys, values), plan.tail, (out.clone(), lse), 0.4)
            assert relative(found, expected.double()) < 2e-6


@pytest.mark.slow
def test_a_pair_compiles_at_most_eight_kernels_whatever_the_grid():
    """Every launch of the full grid, with Triton's own rules of specialisation, compiled for compute capability 9.0."""
    words = [sys.executable, str(Path(__file__).with_name("compiled.py"))]
    done = subprocess.run(words, capture_output=True, text=True, timeout=600, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    *_, told = done.stdout.splitlines()
    assert told == "8 kernels of 4 functions; spilled bytes: 0"
