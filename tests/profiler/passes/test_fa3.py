"""The call of FlashAttention-3, seen by an operator of the library's own schema that attends in plain torch."""

from functools import partial
from types import SimpleNamespace

import pytest

torch = pytest.importorskip("torch")

from profiler.attention import fa3  # noqa: E402
from profiler.attention.fa3 import LIBRARY, Fa3, library  # noqa: E402
from profiler.attention.packing import pack  # noqa: E402
from profiler.attention.pages import CacheShape  # noqa: E402
from profiler.attention.planning import best_kernel, operations, page_tokens, planner  # noqa: E402
from profiler.attention.split import SplitAttention, plain_tail  # noqa: E402
from profiler.passes.checks import check_replays  # noqa: E402
from profiler.passes.forward import Forward  # noqa: E402
from profiler.passes.graphs import Replays  # noqa: E402
from specsim.errors import SpecsimError  # noqa: E402
from tests.made import refusal  # noqa: E402
from tests.profiler.backend.pairs import SHAPE, loud  # noqa: E402
from tests.profiler.passes.layouts import CAUSAL, CPU, PAGE, PASSES, exact, pools, rerun  # noqa: E402

pytestmark = pytest.mark.torch
# As vllm-project/flash-attention registers it; the other revision has o_scale behind v_descale.
SCHEMA = """fwd{}(Tensor! q, Tensor k, Tensor v, Tensor? k_new, Tensor? v_new, Tensor? q_v, Tensor!? out,
Tensor? cu_seqlens_q, Tensor? cu_seqlens_k, Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? seqused_k,
int? max_seqlen_q, int? max_seqlen_k, Tensor? page_table, Tensor? kv_batch_idx, Tensor? leftpad_k, Tensor? rotary_cos,
Tensor? rotary_sin, Tensor? seqlens_rotary, Tensor? q_descale, Tensor? k_descale, Tensor? v_descale,{}
float softmax_scale, bool is_causal, int window_size_left, int window_size_right, float softcap,
bool is_rotary_interleaved, Tensor? scheduler_metadata, int num_splits, bool? pack_gqa, int sm_margin, Tensor? s_aux,
int cp_world_size, int cp_rank, Tensor? cp_tot_seqused_k) -> Tensor[]"""
SCHEDULE = """get_scheduler_metadata(int batch_size, int max_seqlen_q, int max_seqlen_k, int num_heads, int num_heads_k,
int headdim, int headdim_v, ScalarType qkv_dtype, Tensor seqused_k, Tensor? cu_seqlens_q, Tensor? cu_seqlens_k,
Tensor? cu_seqlens_k_new, Tensor? seqused_q, Tensor? leftpad_k, int? page_size, int max_seqlen_k_new, bool is_causal,
int window_size_left, int window_size_right, bool has_softcap, int num_splits, bool? pack_gqa, int sm_margin)
-> Tensor"""
CALLS, SCHEDULES = [], []


def by_name(op, given, named):
    names = [each.name for each in getattr(LIB, op).default._schema.arguments]
    return {**dict(zip(names, given, strict=False)), **named}


def scheduled(*given, **named):
    """Return the lengths that it was told, as a schedule that another pass's would differ from."""
    told = by_name("get_scheduler_metadata", given, named)
    SCHEDULES.append(told)
    return told["seqused_k"] * 2 + told["is_causal"]


def attended(op, *given, **named):
    """Attend as the operator's documentation says: causal from the bottom right, over `seqused_k` keys of each row."""
    told = by_name(op, given, named)
    CALLS.append(told)
    if (schedule := told["scheduler_metadata"]) is not None:
        assert torch.equal(schedule, told["seqused_k"] * 2 + told["is_causal"])
    q, k, v = told["q"], told["k"], told["v"]
    share = q.shape[1] // k.shape[2]
    out, lse = torch.full_like(q, torch.nan), torch.full(q.shape[1::-1], torch.nan, dtype=q.dtype)
    for row, length in enumerate(told["seqused_k"].tolist()):
        first, last = told["cu_seqlens_q"][row : row + 2].tolist()
        assert last - first <= told["max_seqlen_q"]
        assert length <= told["max_seqlen_k"]
        keys, values = (pool[told["page_table"][row].long()].flatten(0, 1)[:length] for pool in (k, v))
        score = torch.einsum("qhd,khd->hqk", q[first:last], keys.repeat_interleave(share, 1)) * told["softmax_scale"]
        if told["is_causal"]:
            seen = torch.ones(last - first, length, dtype=torch.bool).tril(length - (last - first))
            score = score.masked_fill(~seen, -torch.inf)
        if length:
            out[first:last] = torch.einsum("hqk,khd->qhd", score.softmax(-1), values.repeat_interleave(share, 1))
            lse[:, first:last] = score.logsumexp(-1)
    return [out, lse, q.new_empty(0), q.new_empty(0)]


DEFINED = torch.library.Library("specsim_tests", "DEF")
DEFINED.define(SCHEMA.format("", ""))
DEFINED.define(SCHEMA.format("_scaled", " Tensor? o_scale,"))
DEFINED.define(SCHEDULE.replace("\n", " "))
DEFINED.impl("get_scheduler_metadata", scheduled, "CPU")
DEFINED.define("fwd_other(Tensor! q, Tensor k, float softmax_scale) -> Tensor[]")
DEFINED.define(SCHEMA.format("_more", " int thing,"))
for name in ("fwd", "fwd_scaled"):
    DEFINED.impl(name, partial(attended, name), "CPU")
LIB = torch.ops.specsim_tests


def made(name):
    return Fa3(getattr(LIB, name).default, LIB.get_scheduler_metadata.default)


@pytest.mark.parametrize(("name", "op"), [*((name, "fwd") for name in PASSES), ("tree of 7", "fwd_scaled")])
def test_the_library_is_asked_for_what_a_pass_is(name, op):
    """Rows without keys are left unwritten here, so that what the merge reads of them would show."""
    work = PASSES[name]
    shape, (tables, _), query, keys, values = pools(work, 4, 8)
    planned = SplitAttention("fa3", shape, made(op), plain_tail, device=CPU)
    plan = planned.plan(work, pack(work), tables, len(query) + 2)
    padded = torch.cat([query, query[:1], query[:1]])
    CALLS.clear()
    found = plan(padded, keys, values, 0.3)
    expected = exact(work, 4, tables, query, keys, values)
    torch.testing.assert_close(found[: len(query)], expected, atol=1e-12, rtol=1e-12)
    (told,) = CALLS
    assert told["is_causal"] == (name in CAUSAL)
    assert told["k"].shape == told["v"].shape == (shape.pages, PAGE, 2, 8)
    assert told["k"].data_ptr() == keys.data_ptr()
    integers = ("cu_seqlens_q", "seqused_k", "page_table")
    assert {told[each].dtype for each in integers} == {torch.int32}
    assert all(told[each].is_contiguous() for each in integers)
    assert told["page_table"].shape[0] == len(told["seqused_k"]) == len(told["cu_seqlens_q"]) - 1 == work.rows
    rest = {"window_size_left": -1, "window_size_right": -1, "softcap": 0.0, "num_splits": 0, "sm_margin": 0}
    assert {each: told[each] for each in rest} == rest
    assert (told["cp_world_size"], told["cp_rank"], told["is_rotary_interleaved"]) == (1, 0, True)
    assert told["scheduler_metadata"] is None


@pytest.mark.parametrize("name", ["chunks", "tree of 7"])
def test_a_schedule_is_asked_for_once_with_what_the_pass_then_gets(name, monkeypatch):
    """Each layer would prepare its own. The library refuses a schedule of other sizes."""
    pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")
    monkeypatch.setattr(fa3, "fa3", lambda device, dtype: made("fwd"))
    work = PASSES[name]
    shape, (tables, other), query, keys, values = pools(work, 4, 8)
    planned = planner("fa3", shape, 8, device=CPU, dtype=torch.float64)
    SCHEDULES.clear()
    plan = planned.plan(work, pack(work), tables, len(query))
    (told,) = SCHEDULES
    CALLS.clear()
    plan(query, keys, values, 0.3)
    found = plan(query, keys, values, 0.3)
    torch.testing.assert_close(found, exact(work, 4, tables, query, keys, values), atol=1e-5, rtol=1e-5)
    assert len(SCHEDULES) == 1
    same = ("max_seqlen_q", "max_seqlen_k", "is_causal", "window_size_left", "window_size_right", "num_splits")
    same += ("pack_gqa", "sm_margin", "leftpad_k", "seqused_q", "cu_seqlens_k", "cu_seqlens_k_new")
    for call in CALLS:
        assert {each: call[each] for each in same} == {each: told[each] for each in same}
        assert all(torch.equal(call[each], told[each]) for each in ("seqused_k", "cu_seqlens_q"))
    sizes = {"batch_size": work.rows, "num_heads": 8, "num_heads_k": 2, "headdim": 8, "headdim_v": 8, "page_size": PAGE}
    assert {each: told[each] for each in sizes} == sizes
    assert (told["has_softcap"], told["max_seqlen_k_new"]) == (False, 0)
    held = plan.span.schedule
    held.zero_()
    plan.load(planned.plan(work, pack(work), other, len(query)))
    assert plan.span.schedule is held
    assert torch.equal(held, plan.span.length * 2 + plan.span.causal)


def test_replays_stay_within_what_the_library_was_told():
    """A graph keeps the numbers of the pass that it was captured with; they must bound every other pass's."""
    pytest.importorskip("triton", reason="triton, which has wheels for Linux only, is not installed")
    forward = Forward(loud(dtype=torch.float32), SHAPE, 80, "split")
    forward.cache.fill(seed=1)
    paged, merge = made("fwd"), operations("triton").tail
    prepare = paged.preparation(SHAPE.heads, SHAPE.kv_heads, SHAPE.head_dim, torch.bfloat16)
    forward.planner = SplitAttention("fa3", forward.cache.shape, paged, merge, device=CPU, prepare=prepare)
    replays = Replays(forward, rerun)
    CALLS.clear()
    check_replays(forward, replays)
    assert len(replays) == 6
    assert {(each["max_seqlen_q"], each["is_causal"]) for each in CALLS} >= {(1, True), (8, True), (8, False)}


def test_another_library_is_refused_by_name():
    said = r"attention 'fa3': specsim_tests::fwd_other of this _vllm.* lacks cp_rank, cp_wor"
    with pytest.raises(SpecsimError, match=said):
        made("fwd_other")
    assert "also needs thing; expected the one of vllm 0.21.0" in refusal(made, "fwd_more")


def test_the_library_is_found_by_its_variable_or_in_vllm(tmp_path, monkeypatch):
    monkeypatch.delenv("SPECSIM_FA3", raising=False)
    assert library() is None
    folder = tmp_path / "vllm" / "vllm_flash_attn"
    folder.mkdir(parents=True)
    (folder / LIBRARY).write_bytes(b"")
    spec = SimpleNamespace(submodule_search_locations=[str(tmp_path / "vllm")])
    monkeypatch.setattr(fa3, "find_spec", lambda name: spec)
    assert library() == folder / LIBRARY
    (tmp_path / "mine.so").write_bytes(b"")
    monkeypatch.setenv("SPECSIM_FA3", str(tmp_path / "mine.so"))
    assert library() == tmp_path / "mine.so"
    monkeypatch.setenv("SPECSIM_FA3", str(tmp_path / "mine.sos"))
    with pytest.raises(SpecsimError, match=r"SPECSIM_FA3 '.*mine.sos': no such file; did you mean .*mine.so'\?; exp"):
        library()
    path = folder / LIBRARY
    assert refusal(fa3.loaded, path).startswith(f"attention 'fa3': {path} cannot be loaded: ")


def test_fa3_where_it_cannot_be(monkeypatch, tmp_path):
    shape = CacheShape(1, 2, 8, 4, 16)
    monkeypatch.delenv("SPECSIM_FA3", raising=False)
    place = {"device": CPU, "dtype": torch.bfloat16}
    said = "no _vllm_fa3_C.abi3.so here; expected its path in SPECSIM_FA3, or vLLM"
    assert said in refusal(planner, "fa3", shape, 4, **place)
    (tmp_path / LIBRARY).write_bytes(b"")
    monkeypatch.setenv("SPECSIM_FA3", str(tmp_path / LIBRARY))
    said = "'fa3' does not run on cpu; expected a GPU of compute capability 9"
    assert said in refusal(planner, "fa3", shape, 4, **place)
    cuda = torch.device("cuda")
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (9, 0))
    said = "'fa3' does not take torch.float32; expected bfloat16 or float16"
    assert said in refusal(planner, "fa3", shape, 4, device=cuda, dtype=torch.float32)
    assert (best_kernel(cuda), page_tokens("auto", cuda)) == ("fa3", 16)
    monkeypatch.setattr("torch.cuda.get_device_capability", lambda device: (8, 0))
    assert best_kernel(cuda) == "flex"
