"""What an engine adds to its kernels: host time, padding, batch expansion; and how a run takes it up."""

from dataclasses import replace

import numpy as np
import pytest

from specsim import simulate
from specsim.config.configured import from_point
from specsim.core.passes import DraftPass
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.files.yaml_file import read_yaml, shipped
from specsim.latency.drafter import DecoderHead, Heads, LayersSkipped, Separate, equipped
from specsim.latency.engine import RESERVES, Batches, Engine, engine_from_mapping
from specsim.latency.profile import load_profile
from specsim.metrics.requests import VERIFY_PASS
from specsim.pass_shape import PassShape, PassShapes
from specsim.runs.prepare import prepare
from specsim.schedulers.parts import batching
from specsim.simulated_backend import SimulatedDrafter
from tests.made import acceptance_trace, ledger_and_view, refusal, requests

PROFILE = load_profile("llama8b_1b_h100")
SHAPE = PassShape.of(np.array([100, 250]), np.array([1, 1]), np.array([3, 4]))
DECODE = PassShape.of(np.array([100, 250]), np.array([1, 1]))
SHAPES = PassShapes.each(np.array([100, 250, 9]), np.array([1, 1, 600]), np.array([3, 4, 0]))
PLAIN = {"overhead_s": None, "request_s": 0.0, "sequence_s": None, "speculation_s": 0.0, "pipeline_steps": 0}
PLAIN |= {"graph_tokens": None, "graph_step": 8, "graph_most": 512, "verification": "tree_attention", "frontend_s": 0.0}
SIZES = {"large_gpu": 8, "other": 8}


@pytest.mark.parametrize(("tokens", "padded"), [(1, 1), (2, 2), (3, 4), (5, 8), (8, 8), (9, 16), (17, 17)])
def test_a_pass_is_padded_to_the_next_captured_size(tokens, padded):
    model = Engine(graph_tokens=(1, 2, 4, 8, 16)).running(PROFILE).target
    shape = PassShape.decode(5_000, tokens)
    assert model.seconds(shape) == PROFILE.target.seconds(shape._replace(batched_tokens=padded))
    assert model.seconds_array(PassShapes.decode(5_000, np.array([tokens])))[0] == pytest.approx(model.seconds(shape))


@pytest.mark.parametrize(("requests", "padded"), [(1, 1), (2, 2), (3, 4), (5, 5)])
def test_a_verification_of_sglang_is_padded_to_the_next_captured_number_of_requests(requests, padded):
    engine = Engine(graph_tokens=(1, 2, 16), graph_requests=(1, 2, 4)).running(PROFILE)
    shape = PassShape.of(*np.full((3, requests), [[100], [1], [4]]))
    assert engine.target.seconds(shape) == PROFILE.target.seconds(shape._replace(batched_tokens=5 * padded))
    many = PassShapes(**{name: getattr(shape, name) for name in PassShapes._fields})
    assert engine.target.seconds_array(many) == pytest.approx(engine.target.seconds(shape))
    draft = PassShape.decode(5_000, 3)
    assert engine.draft.seconds(draft) == PROFILE.draft.seconds(draft._replace(batched_tokens=4))


def test_vllm_captures_multiples_of_what_a_request_verifies():
    engine = Engine(graph_tokens=(1, 2, 4, 8, 16), graph_multiples=True)
    running = engine.speculating(engine.running(PROFILE), drafts=4)
    assert running.target.graph_tokens == running.draft.graph_tokens == (5, 10)
    assert engine.speculating(running) == replace(running, stated_baseline_s=running.baseline_s)


def test_batch_expansion_reads_the_context_again_for_every_node_of_the_target():
    engine = Engine(expands=True).running(PROFILE)
    again = SHAPE._replace(context_tokens=100 * 4 + 250 * 5)
    assert engine.target.seconds(SHAPE) == PROFILE.target.seconds(again) > PROFILE.target.seconds(SHAPE)
    assert engine.target.seconds(DECODE) == PROFILE.target.seconds(DECODE)
    alone = PassShape.of(np.array([100]), np.array([1]), np.array([3]))
    assert engine.target.seconds_array(SHAPES)[0] == pytest.approx(engine.target.seconds(alone))


@pytest.mark.parametrize(
    ("host", "verifying_s", "decoding_s"),
    [
        ({"overhead_s": 2e-3, "request_s": 5e-5}, 2e-3 + 2 * 5e-5, 2e-3 + 2 * 5e-5),
        ({"request_s": 1e-3, "sequence_s": 2e-4, "expands": True}, 2 * 1e-3 + 7 * 2e-4, 2 * 1e-3),
        ({"request_s": 1e-3, "sequence_s": 2e-4}, 2 * 1e-3, 2 * 1e-3),
        ({"speculation_s": 2e-3}, 2e-3, 0.0),
        ({"drafted_token_s": 1e-5}, 7 * 1e-5, 0.0),
    ],
)
def test_host_time_of_two_requests_with_seven_drafts(host, verifying_s, decoding_s):
    bare = Engine(overhead_s=0.0, expands=host.get("expands", False)).running(PROFILE).target
    model = Engine(**{"overhead_s": 0.0} | host).running(PROFILE).target
    assert model.seconds(SHAPE) - bare.seconds(SHAPE) == pytest.approx(verifying_s)
    assert model.seconds(DECODE) - bare.seconds(DECODE) == pytest.approx(decoding_s, abs=1e-12)
    each = [PassShape.of(*(np.array([count]) for count in row)) for row in ((100, 1, 3), (250, 1, 4), (9, 600, 0))]
    assert model.seconds_array(SHAPES) == pytest.approx([model.seconds(shape) for shape in each])


HOST = Engine(overhead_s=1e-3, request_s=1e-4)
"""An engine whose draft passes pay as a step does."""


def test_drafts_run_within_a_step_that_pays_its_host_time_once():
    bare, within = Engine(overhead_s=0.0).running(PROFILE), replace(HOST, draft_launch_s=3e-3).running(PROFILE)
    one = PassShape.decode(1000, 4)
    verified = one.with_nodes(4 * 3, 4 * 3 * 250)
    assert bare.draft.seconds(one) < 3e-3, "the kernels of the draft model hide behind its launch"
    step_s = 3 * within.draft.seconds(one) + within.target.seconds(verified)
    assert step_s == pytest.approx(3 * 3e-3 + bare.target.seconds(verified) + 1e-3 + 4 * 1e-4)
    prompt = PassShape.prompt(8000)
    assert within.draft.seconds(prompt) == pytest.approx(bare.draft.seconds(prompt)), "longer than a launch"
    captured = replace(HOST, draft_launch_s=0.0).running(PROFILE).draft
    assert captured.seconds(one) == pytest.approx(bare.draft.seconds(one)), "a captured graph adds no host time"
    assert HOST.running(PROFILE).draft.seconds(one) == pytest.approx(bare.draft.seconds(one) + 1e-3 + 4e-4)


def test_a_pass_beyond_the_largest_graph_takes_at_least_its_launches():
    model = Engine(graph_tokens=(1, 2, 4), layer_launch_s=1e-3, overhead_s=2e-3).running(PROFILE).target
    kernels = PROFILE.target.chosen.seconds
    within, beyond, prompt = PassShape.decode(400, 4), PassShape.decode(500, 5), PassShape.prompt(4000)
    assert model.seconds(within) == pytest.approx(kernels(within) + 2e-3)
    assert model.seconds(beyond) == pytest.approx(32 * 1e-3 + 2e-3), "32 layers"
    assert model.seconds(prompt) == pytest.approx(kernels(prompt) + 2e-3), "its kernels take longer"
    both = model.seconds_array(PassShapes.decode(np.array([400, 500]), np.array([4, 5])))
    assert both == pytest.approx([model.seconds(within), model.seconds(beyond)])


def test_speculation_that_is_configured_and_off_costs_decodes_without_drafts():
    plain = Engine(undrafted_s=1e-3, undrafted_request_s=1e-4).running(PROFILE)
    taxed = Engine(undrafted_s=1e-3, undrafted_request_s=1e-4).speculating(PROFILE)
    assert plain == PROFILE
    decode, prompt = PassShape.decode(900, 3), PassShape.prompt(100)
    assert taxed.target.seconds(decode) == pytest.approx(plain.target.seconds(decode) + 1e-3 + 3e-4)
    assert all(taxed.target.seconds(same) == plain.target.seconds(same) for same in (prompt, SHAPE))
    assert taxed.target.seconds_array(PassShapes.decode(900, 3)) == pytest.approx(taxed.target.seconds(decode))
    assert taxed.target.seconds_array(PassShapes.each(0, np.int64(100))) == pytest.approx(taxed.target.seconds(prompt))
    assert taxed.baseline_s == plain.baseline_s, "objectives are of a server without speculation"


TABLE = "scheduler__speculation__num_speculative_tokens_per_batch_size"


def tpot_ms(scheduler, **settings):
    given = {"requests": 8, "profile": "llama8b_1b_h100", "slo": "absolute"}
    return float(simulate(scheduler, "poisson", **given, **settings).metrics["mean_tpot_ms"])


def test_a_table_that_chooses_no_drafts_is_slower_than_no_speculation():
    given = {"concurrency": 4, "engine__frontend_s": 0.0, "drafter": "eagle3", "engine__draft_launch_s": 6e-4}
    without = tpot_ms("vllm", **given)
    tables = [[1, 1, 0], [2, 512, 0]], [[1, 1, 0], [2, 4, 0], [5, 512, 1]]
    never, off = (tpot_ms("vllm_dynamic", **{TABLE: each}, **given) for each in tables)
    assert never == without, "a table without drafts configures no speculation"
    assert 0.78 + 0.084 < off - without < 0.78 + 4 * 0.084 + 0.05, "the drafter's pass is in it"


@pytest.mark.parametrize("name", ["vllm_dynamic", "trtllm_schedule", "smartspec"])
def test_a_drafter_that_catches_up_reads_no_more_than_a_step(name):
    given = {"rps": 100, "slo": "absolute", "scheduler__max_num_batched_tokens": 256}
    assert simulate(name, "poisson", requests=60, passes=True, **given).passes.batched_tokens.max() <= 256


def test_a_table_of_drafts_replays_piecewise_graphs():
    given = {"concurrency": 1, "engine": "vllm_0_28"}
    table = {**given, TABLE: [[1, 512, 3]]}
    fixed = tpot_ms("vllm_spec", scheduler__num_speculative_tokens=3, engine__piecewise_factor=1.19, **given)
    assert tpot_ms("vllm_dynamic", engine__piecewise_factor=1.0, **table) == pytest.approx(fixed)
    assert 1.05 < tpot_ms("vllm_dynamic", **table) / fixed < 1.19, "the drafter's passes are as long"


def test_a_run_notes_constants_of_the_engine_that_take_much_of_its_time():
    few = {"engine__eager_factor": 5.0, "engine__graph_most": 16, "profile": "qwen3_30b_a3b_eagle3_h100"}
    run = simulate("vllm_spec", "poisson", requests=60, rps=60, passes=True, **few)
    eager = run.passes.query(f"kind == {VERIFY_PASS} and prefill_tokens == 0 and batched_tokens > 10")
    share = eager.seconds.sum() / run.passes.seconds.sum()
    assert f"not captured: {share:.0%} of the passes' time is of decodes above the 10 captured" in run.notes[-1]
    off = {"engine__undrafted_request_s": 1e-3, TABLE: [[1, 1, 1], [2, 512, 0]]}
    assert "without drafts: about " in str(simulate("vllm_dynamic", "poisson", requests=60, rps=60, **off).notes)
    off = {"engine": "vllm_0_28", "profile": "llama8b_1b_h100", "concurrency": 100}
    assert "without drafts" not in str(simulate("slos_serve", "poisson", requests=250, **off).notes)


SPARSE = replace(PROFILE, target=replace(PROFILE.target, nonembedding_bytes=PROFILE.target.weights_bytes // 10))
BLACKWELL = replace(SPARSE, hardware="2 x NVIDIA B300")


@pytest.mark.parametrize(
    ("profile", "tokens", "factor"),
    [(SPARSE, 33, 2), (SPARSE, 32, 1), (PROFILE, 33, 1), (BLACKWELL, 33, 1), (BLACKWELL, 65, 5)],
)
def test_a_decode_beyond_the_largest_graph_is_a_factor_slower_of_a_mixture_of_experts(profile, tokens, factor):
    given = {"graph_tokens": [1, 2, 4], "graph_most": {"blackwell": 64, "other": 32}}
    engine = engine_from_mapping(PLAIN | given | {"eager_factor": {"blackwell": 5, "other": 2}}, "mine")
    plain = engine_from_mapping(PLAIN | given, "mine").running(profile).target
    model, decode = engine.running(profile).target, PassShape.decode(1000, tokens)
    host_s = PROFILE.target.overhead_s
    assert model.seconds(decode) - host_s == pytest.approx(factor * (plain.seconds(decode) - host_s))
    prompt = PassShape.prompt(4000)
    assert model.seconds(prompt) == plain.seconds(prompt), "prompts were measured without graphs"
    for shape in (decode, prompt, prompt.plus(decode)):
        many = PassShapes(**{name: getattr(shape, name) for name in PassShapes._fields})
        assert model.seconds_array(many) == pytest.approx(model.seconds(shape))


@pytest.mark.parametrize(("missing", "sequences"), [(1, 1), (2, 2), (3, 1), (20, 1)])
def test_a_drafter_that_fell_behind_is_no_bonus_token(missing, sequences):
    _, view = ledger_and_view(requests([0.0], [30], [9]))
    drafter = SimulatedDrafter(acceptance_trace(1), Engine(expands=True, request_s=1.0).running(PROFILE).draft, view)
    row, root, chunks = np.array([0]), np.array([0]), np.array([missing])
    work = DraftPass(row, chunks, Forest.roots(1), root, width=1, depth=2)
    levels = drafter.draft(work, PassShape.of(np.array([30 - missing]), chunks)).levels
    assert [level.shape.logit_tokens for level in levels] == [sequences] * 2
    assert [level.shape.requests for level in levels] == [1, 1]
    assert [int(level.seconds) for level in levels] == [sequences] * 2


@pytest.mark.parametrize(
    "drafter",
    [
        *(Separate(True, 0.0), LayersSkipped(32, 16), Heads(False, 5, 0.1, 0.1, 0.1)),
        *(DecoderHead("eagle3", 3, True, False, 1, 8, 32_000), Separate(False, 1e-3)),
    ],
)
def test_a_drafter_runs_on_the_same_engine_and_pays_its_launch(drafter):
    bare = equipped(Engine(overhead_s=0.0).running(PROFILE), drafter).draft
    on = equipped(Engine(overhead_s=1e-3, request_s=1e-4, graph_tokens=(64,)).running(PROFILE), drafter).draft
    assert on.seconds(SHAPE) == pytest.approx(bare.seconds(SHAPE._replace(batched_tokens=64)) + 1e-3 + 2e-4)
    launched = equipped(replace(HOST, draft_launch_s=5e-3).running(PROFILE), drafter).draft
    assert launched.seconds(PassShape.decode(100)) == 5e-3


def test_sizes_are_those_named_then_multiples():
    given = PLAIN | {"graph_tokens": [1, 2, 4], "graph_most": 32}
    assert engine_from_mapping(given, "mine").graph_tokens == (1, 2, 4, 8, 16, 24, 32)
    given = PLAIN | {"graph_tokens": [1, 2, 4, 8, 16], "graph_step": 32, "graph_most": 100}
    assert engine_from_mapping(given, "mine").graph_tokens == (1, 2, 4, 8, 16, 32, 64, 96)


@pytest.mark.parametrize(
    ("changed", "said"),
    [
        *(({"overhead_s": -1.0}, "overhead_s"), ({"graph_tokens": [4, 2]}, "sizes that rise")),
        ({"graph_requests": [1, 2]}, "graph_tokens beside it"),
        ({"graph_tokens": [1, 2, 600]}, "graph_most"),
        ({"verification": "tree"}, "tree_attention"),
        ({"overhed_s": 1.0}, "overhead_s"),
        ({"batching": "chunked"}, "batching: 'chunked' is unknown; valid: mixed, prompts_first"),
        ({"lookahead": True, "batching": "prompts_first"}, "lookahead: True"),
        ({"lookahead": True, "reserves": "max_tokens"}, "lookahead: True is not false where reserves is max_tokens"),
        ({"chunked_prefill": False}, "chunked_prefill: False is not true where prompts are mixed"),
        ({"reserves": "outputs"}, "reserves: 'outputs' is unknown; valid: estimate, max_tokens, prompt"),
        ({"pipeline_steps": {"speculating": 1}}, "pipeline_steps.other: missing key"),
        ({"max_num_seqs": {"large_gpu": 8}}, "max_num_seqs.other: missing key"),
        ({"max_num_seqs": SIZES | {"blackwell": 8}}, "max_num_seqs.blackwell: unknown key"),
        ({"max_num_batched_tokens": SIZES | {"speculating": 8}}, "max_num_batched_tokens.speculating: unknown key"),
    ],
)
def test_a_mistake_is_one_line(changed, said):
    told = refusal(engine_from_mapping, PLAIN | changed, "engine=mine")
    assert told.startswith("engine=mine")
    assert said in told


def test_a_belief_may_be_the_profile_in_another_form(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    point = {"trace": "poisson", "requests": "5", "profile": "llama8b_1b_h100", "cost_model": "linear"}
    simulation = prepare(from_point(point)).simulation
    assert simulation.truth.target.form == "roofline"
    assert simulation.cost_model.target.form == "linear"
    own = prepare(from_point(point | {"profile.target.forms.linear.delta_s": "1.0"})).simulation
    assert own.cost_model.baseline_s > 1
    with pytest.raises(SpecsimError, match="cost_model: form: 'table' is not in this profile"):
        prepare(from_point(point | {"cost_model": "table"}))
    with pytest.raises(SpecsimError, match="cost_model=linear: profile is an object"):
        simulate("smartspec", "poisson", requests=5, profile=replace(PROFILE), cost_model="linear")


def test_every_engine_file_says_how_it_batches():
    stated = {"batching", "max_num_batched_tokens", "max_num_seqs", "source"}
    for file in (shipped("conf") / "engine").glob("*.yaml"):
        assert file.stem == "file" or read_yaml(file).keys() >= stated, file.name


@pytest.mark.parametrize(
    ("profile", "limits"),
    [("llama8b_1b_h100", (1024, 8192)), ("llama70b_1b_4xh200", (1024, 8192)), ("llama70b_1b_4xa100", (256, 2048))],
)
def test_a_gpu_of_70_gib_that_is_no_a100_is_large(profile, limits):
    engine = engine_from_mapping(read_yaml(shipped("conf") / "engine" / "vllm_0_12.yaml"), "engine=vllm_0_12")
    assert engine.batches_on(load_profile(profile)) == Batches("mixed", *limits, lookahead=True)
    sglang = engine_from_mapping(read_yaml(shipped("conf") / "engine" / "sglang_0_5.yaml"), "engine=sglang_0_5")
    assert sglang.batches_on(load_profile(profile)).max_num_batched_tokens == 8192, "an A100 of 80 GB, too"
    assert [sglang.steps_ahead(speculating=each) for each in (False, True)] == [1, 0]
    assert {*RESERVES} == {*batching.RESERVES}, "those that schedulers know"
    staged = replace(load_profile(profile), pipeline_parallel_size=2)
    assert engine.batches_on(staged) == Batches("mixed", limits[0], 2 * limits[1], lookahead=True)


@pytest.mark.parametrize(
    ("scheduler", "settings", "together"),
    [
        *(("vllm", {}, 50), ("vllm_spec", {}, 48)),
        ("vllm_spec", {"scheduler__num_speculative_tokens": 0}, 50),
        ("vllm_spec", {"engine__max_num_seqs__speculating": 49}, 49),
        ("vllm_spec", {"scheduler__max_num_seqs": 49}, 49),
    ],
)
def test_sglang_seats_48_requests_while_it_speculates(scheduler, settings, together):
    """Of 50 requests that come at once, as many as have slots get a first token before any of them ends."""
    lengths = {"trace__prompt_tokens": 20, "trace__output_tokens": 4}
    given = {"requests": 50, "concurrency": 50, "profile": "llama8b_1b_h100", "slo": "absolute", "drafter": "eagle3"}
    run = simulate(scheduler, "poisson", engine="sglang_0_5", acceptance=0.001, **given, **lengths, **settings)
    assert np.sum(run.requests["first_token_s"] < run.requests["finish_s"].min()) == together


def served(scheduler, **settings):
    """Return a run of 61.8 requests/s of 201 + 63 tokens on an H100 with 128 slots, as inference-perf measured."""
    lengths = {"trace__prompt_tokens": 201, "trace__output_tokens": 63}
    given = {"slo": "absolute", "profile": "llama8b_1b_h100", "rps": 61.8, "requests": 1200, **lengths}
    return simulate(scheduler, "poisson", **given | {"scheduler__max_num_seqs": 128} | settings)


EAGLE = {"drafter": "eagle3", "acceptance": "bernoulli", "acceptance__alpha": 0.08}


@pytest.mark.parametrize(
    ("scheduler", "settings", "measured_tpot_ms", "within"),
    [
        *(("vllm", {"engine": "vllm_0_11"}, 10.50, 0.15), ("vllm", {}, 10.50, 0.20)),
        ("vllm_spec", {"engine": "vllm_0_11", "rps": 35.3, "requests": 700, **EAGLE}, 13.80, 0.20),
    ],
)
def test_vllm_batches_as_a_measured_vllm(scheduler, settings, measured_tpot_ms, within):
    """vLLM 0.11, Llama-3.1-8B on an H100 (kubernetes-sigs/inference-perf, demos/kubecon-na-2025).

    With EAGLE random text at 35 requests/s, k = 4: a step brings 1.09 tokens.
    """
    assert served(scheduler, **settings).metrics["mean_tpot_ms"] == pytest.approx(measured_tpot_ms, rel=within)


@pytest.mark.parametrize(("engine", "same"), [("vllm_0_6", "continuous"), ("vllm_0_12", "sarathi")])
def test_an_engine_decides_in_which_order_vllm_reads_prompts(engine, same):
    limits = {"scheduler__max_num_batched_tokens": 2048, "engine": engine, "passes": True, "requests": 100}
    plain, without = served("vllm", **limits), served("vllm_spec", scheduler__num_speculative_tokens=0, **limits)
    for found in (without, served(same, **limits)):
        assert found.passes.equals(plain.passes)
        assert found.requests.equals(plain.requests)
    assert without.notes == plain.notes


def test_an_engine_without_batching_mixes_and_is_noted():
    named = from_point({"engine": "profiled", "scheduler": "vllm", "trace": "poisson"})
    named.config["engine"] = PLAIN
    (note,) = (each for each in prepare(named).notes if "does not say how it batches" in each)
    assert note.startswith("engine=profiled does not say how it batches (batching): prompts are mixed with decodes")


@pytest.mark.parametrize(
    ("scheduler", "engine", "noted"),
    [
        *(("continuous", "vllm_0_12", True), ("continuous", "vllm_0_6", False)),
        ("vllm", "vllm_0_6", False),
        ("adaserve", "vllm_0_6", True),
        ("sglang_adaptive", "vllm_0_15", True),
        ("sglang_adaptive", "sglang_0_5", False),
    ],
)
def test_a_scheduler_or_kernels_on_an_engine_that_never_ran_them_is_noted(scheduler, engine, noted):
    notes = prepare(from_point({"engine": engine, "scheduler": scheduler, "trace": "poisson"})).notes
    assert any("no server ran the two together" in each for each in notes) is noted
    assert any("is made of vLLM's kernels" in each for each in notes) is not engine.startswith("vllm")
