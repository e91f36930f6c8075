"""What each drafter costs, what it keeps in memory, and which settings come along with it."""

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
import yaml
from pandas.testing import assert_frame_equal

from specsim.api import simulate
from specsim.config.compose import compose
from specsim.latency.drafter import drafter_from_mapping, equipped
from specsim.latency.engine import engine_from_mapping
from specsim.latency.forms import Block, Linear
from specsim.latency.profile import load_profile, peak_notes, profile_from_mapping
from specsim.pass_shape import PassShape, PassShapes
from tests.made import many, one, refusal

SMALL = {"trace": "poisson", "requests": 20, "rps": 20, "profile": "llama8b_1b_h100", "acceptance": "llama70b_1b"}
PROFILE = load_profile("llama8b_1b_h100")
PASS = (1000, 8, 1008.0)
LOOKUP = {"kind": "lookup", "pass_s": 1e-4}
EAGLE3 = {"kind": "eagle3", "layers": 1, "depth": 8, "draft_vocab_size": 32000}
HEADS = {"kind": "heads", "one_pass": True, "depth": 5, "pass_share": 0.1, "weights_share": 0.1, "cache_share": 0.0}


def draft(profile=PROFILE, **keys):
    return equipped(profile, drafter_from_mapping(keys, "drafter=mine")).draft


def run(scheduler="vllm_spec", **settings):
    return simulate(scheduler, **{**SMALL, **settings}, passes=True)


def drafts(outcome):
    return outcome.passes[outcome.passes["kind"] == 0]


def test_without_graphs_no_pass_is_faster_than_its_launch():
    eager = draft(kind="separate", graphs=False, launch_s=8e-3)
    assert (eager.seconds(one(*PASS)), eager.seconds_array(many(*PASS))) == (8e-3, 8e-3)
    large = (0, 4000, 8e6)
    assert eager.seconds(one(*large)) == PROFILE.draft.seconds(one(*large)) > 8e-3
    mapping = compose({"profile": "llama8b_1b_h100"})["profile"]
    mapping = mapping | {"draft": mapping["draft"] | {"launch_s": 5e-3}}
    eager = draft(profile_from_mapping(mapping, "profile"), kind="separate", graphs=False, launch_s=8e-3)
    assert eager.seconds(one(*PASS)) == 5e-3, "a measured launch goes before the assumed one"


def test_a_lookup_costs_a_constant_and_a_suffix_search_each_request_and_neither_keeps_anything():
    """A suffix search takes 10 us and 16 us a request: 64 take 1.034 ms, whatever their context."""
    lookup = draft(kind="lookup", pass_s=2e-4)
    assert lookup.seconds(one(*PASS)) == lookup.seconds(one(0, 1, 1.0)) == 2e-4
    assert (lookup.kv_bytes_per_token, lookup.weights_bytes, lookup.one_pass, lookup.cached) == (0, 0, True, False)
    suffix = draft(**compose({"drafter": "suffix"})["drafter"])
    assert suffix.seconds(PassShape.decode(64_000, 64)) == pytest.approx(1.034e-3)
    assert (suffix.name, suffix.weights_bytes, suffix.cached) == ("suffix decoding", 0, False)


def test_dspark_reads_its_layers_a_vocabulary_and_its_markov_head_once_a_token():
    """Llama-3.1-8B: 32 layers of 436.2 MB, a vocabulary of 1,050.7 MB; states of 4,096, 128,256 tokens, 2 bytes each.

    Weights are 5 layers (2,181 MB), five states joined (167.8 MB) and twice 128,256 x 256 (65.7 MB each): 2,480 MB. A
    pass takes 2,181 + 167.8 + 1,050.7 + 65.7 = 3,465 MB of the target's 13,959 + 1,050.7: 0.23086 of its time. It reads
    65.7 MB six times more: 0.02626 of the time of one token. It makes keys and values alone of what it is fed: 5 x 16.8
    + 167.8 = 251.7 MB of the 13,959 that a further token of a large pass is multiplied with.
    """
    dspark, target = draft(**compose({"drafter": "dspark"})["drafter"]), PROFILE.target
    assert dspark.weights_bytes == pytest.approx(2480e6, rel=1e-3)
    assert dspark.kv_bytes_per_token == 5 / 32 * target.kv_bytes_per_token
    block = PassShape(0, 7, 7.0, 0, 7, 1)
    of_block, of_one = (target.seconds(each) - target.overhead_s for each in (block, PassShape.decode(0)))
    of_prompts = [target.seconds(PassShape(0, tokens, 0, tokens, 1, 1)) for tokens in (4096, 8192)]
    fed_s = 251.7 / 13959 * (of_prompts[1] - of_prompts[0]) / 4096
    wanted = 0.23086 * of_block + 0.02626 * of_one + fed_s + PROFILE.draft.overhead_s
    assert dspark.seconds(PassShape.decode(0)) == pytest.approx(wanted, rel=1e-4)
    more = dspark.seconds(PassShape(0, 1001, 0, 1000, 1, 1)) - dspark.seconds(PassShape(0, 1, 0, 0, 1, 1))
    assert more == pytest.approx(1000 * fed_s, rel=1e-2), "a prompt goes through no layer"
    vllm = engine_from_mapping(compose({"engine": "vllm_0_18"})["engine"], "engine")
    in_vllm = vllm.running(replace(PROFILE, draft=dspark)).draft.chosen.seconds(PassShape.decode(0))
    assert in_vllm == pytest.approx(wanted - PROFILE.draft.overhead_s, rel=1e-4), "the Markov head is no host time"


def test_a_dense_head_beside_a_mixture_of_experts_reads_no_experts():
    """Qwen3-30B-A3B's passes read more experts the larger they are; a head by name takes what a composed one does.

    An MTP module has experts: one of 61 layers of DeepSeek-V3 is 11.3 GB, and reads more of them, too.
    """
    qwen = load_profile("qwen3_30b_a3b_eagle3_h100")
    for n in (1, 256):
        by_name, composed = (each.seconds(PassShape.decode(0, n)) for each in (draft(qwen, **EAGLE3), qwen.draft))
        assert by_name == pytest.approx(composed, rel=0.35)
    assert qwen.target.seconds(PassShape.decode(0, 256)) > 5 * qwen.target.seconds(PassShape.decode(0, 1))
    mtp = draft(load_profile("deepseek_v3_mtp_8xb200"), kind="mtp", layers=1, depth=3)
    assert mtp.weights_bytes == pytest.approx(11.3e9, rel=1e-2)
    assert mtp.seconds(PassShape.decode(0, 64)) > 1.8 * mtp.seconds(PassShape.decode(0))
    assert peak_notes(replace(qwen, draft=draft(qwen, kind="mtp", layers=1, depth=3)), "profile") == ()


@pytest.mark.parametrize(
    ("target", "weights", "least_s", "most_s"),
    [("llama8b_1b_h100", 5.42e9, 1.6e-3, 2.8e-3), ("qwen3_30b_a3b_eagle3_h100", 3.154e9, 0.94e-3, 1.3e-3)],
)
def test_medusa_s_heads_are_of_the_target_s_shape(target, weights, least_s, most_s):
    """Five of (4,096 + 128,256) x 4,096 x 2 bytes, of (2,048 + 151,936) x 2,048 x 2, at 3.35 TB/s at most.

    Of Vicuna-7B's weights, with 32,000 tokens, they are the tenth of before.
    """
    medusa, profile = compose({"drafter": "medusa"})["drafter"], load_profile(target)
    heads, vicuna = draft(profile, **medusa), load_profile("vicuna7b_160m_a100")
    assert heads.weights_bytes == pytest.approx(weights, rel=1e-3)
    few, many = (heads.seconds(PassShape.decode(500 * n, n)) - heads.overhead_s for n in (1, 16))
    assert least_s < few < many < most_s
    assert (heads.cached, heads.one_pass, heads.max_depth, heads.kv_bytes_per_token) == (False, True, 5, 0)
    assert peak_notes(replace(profile, draft=heads), "profile") == ()
    of_one, of_vicuna = (each.chosen.seconds(PassShape.decode(0)) for each in (draft(vicuna, **medusa), vicuna.target))
    assert of_one == pytest.approx(0.11 * of_vicuna, rel=0.02)


def test_a_head_joins_the_target_s_states_once_a_step():
    """EAGLE-3 beside Llama-3.1-8B: 3 x 4,096 x 4,096 x 2 bytes are 0.00671 of what a token reads.

    What hides behind the launch of the first pass is not paid.
    """
    target, profile = PROFILE.target, replace(PROFILE, draft=draft(**EAGLE3))
    assert profile.draft.step_s == pytest.approx(0.00671 * target.chosen.seconds(PassShape.decode(0)), rel=1e-3)
    engine = engine_from_mapping(compose({"engine": "vllm_0_18"})["engine"], "engine")
    kernels = profile.draft.chosen.seconds(PassShape.decode(512))
    paid = [replace(engine, draft_launch_s=each).running(profile).target.speculation_s for each in (0.0, kernels, 1.0)]
    assert paid == pytest.approx([profile.draft.step_s, profile.draft.step_s, 0.0])
    for beside, keys, one_s in ((PROFILE, EAGLE3, profile.draft.step_s), (profile, LOOKUP, 0.0)):
        served = equipped(engine.running(beside), drafter_from_mapping(keys, "drafter"))
        assert served.target.speculation_s == pytest.approx(one_s, abs=1e-12), "of the drafter that runs"
    assert "step_s: nan" in refusal(equipped, PROFILE, SimpleNamespace(of=lambda p: replace(p.draft, step_s=np.nan)))


@pytest.mark.parametrize("drafter", ["lookup", "suffix"])
def test_what_copies_one_match_proposes_no_tree(drafter):
    suggested = {**SMALL, "acceptance": compose({"drafter": drafter})["drafter"]["suggests"]["acceptance"]}
    said = refusal(simulate, "eagle2_tree", **suggested, drafter=drafter, any_fit=True)
    assert "trees of width 4 are wider than the 1 proposals" in said


def test_a_block_has_so_many_tokens_of_each_request():
    """1 us a token of context, 0.1 ms a token, 2 ms: four blocks of 7 behind 1,000 tokens are 1 + 2.8 + 2 ms."""
    block = Block(Linear(1e-6, 1e-4, 2e-3), 7)
    assert block.seconds(PassShape.decode(1000, 4)) == pytest.approx(5.8e-3)
    assert block.seconds_array(PassShapes.decode(1000, np.array([1, 4]))) == pytest.approx([3.7e-3, 5.8e-3])
    made = Block(Linear(1e-6, 1e-4, 2e-3), 7, queries=8, fed_s=1e-6)
    assert made.seconds(PassShape(1000, 12, 0, 0, 4, 4)) == pytest.approx(1e-3 + 32e-4 + 2e-3 + 12e-6), "8 queries each"
    form = SimpleNamespace(seconds=lambda shape: 1e3 * shape.logit_tokens + shape.attention_pairs)
    assert Block(form, 7).seconds(PassShape.decode(1000, 4)) == 28e3 + 7 * 1004
    assert Block(form, 7, queries=8).seconds(PassShape(1000, 12, 0, 0, 4, 4)) == 28e3 + 8 * 1012


def test_skipped_layers_save_their_share_of_time_and_cache():
    skipped = draft(kind="layers_skipped", layers=32, skipped=8)
    of_target = PROFILE.target.seconds(one(*PASS)) - PROFILE.target.overhead_s
    assert skipped.seconds(one(*PASS)) == pytest.approx(0.75 * of_target + PROFILE.draft.overhead_s)
    assert (skipped.kv_bytes_per_token, skipped.weights_bytes) == (0.75 * PROFILE.target.kv_bytes_per_token, 0)


@pytest.mark.parametrize("cache_share", [0.0, 0.05])
def test_heads_cost_shares_of_the_target(cache_share):
    given = {"pass_share": 0.1, "weights_share": 0.2, "cache_share": cache_share}
    target = PROFILE.target
    with_heads = equipped(PROFILE, drafter_from_mapping(HEADS | given, "d"))
    heads, without = with_heads.draft, target.seconds(one(0, PASS[1], 0))
    over_cache = target.seconds(one(*PASS)) - without
    wanted = 0.1 * (without - target.overhead_s) + cache_share * over_cache + PROFILE.draft.overhead_s
    assert over_cache > 0
    assert heads.seconds(one(*PASS)) == pytest.approx(wanted)
    assert heads.weights_bytes == pytest.approx(0.2 * target.weights_bytes, abs=1)
    assert heads.cached == (cache_share > 0)
    none = equipped(PROFILE, drafter_from_mapping(LOOKUP, "d")).usable_kv_bytes
    assert none - with_heads.usable_kv_bytes == heads.weights_bytes, "weights take from the cache"


def test_one_pass_proposes_all_depths_and_a_drafter_with_a_cache_reads_the_prompts():
    """Of the four draft passes of a step the first costs, the others nothing; prompts are read by the target alone."""
    passes = drafts(run(drafter="lookup"))
    assert set(np.round(passes["seconds"].unique(), 9)) == {0.0, 2e-4}
    assert (passes["prefill_tokens"] == 0).all()
    for name in ("separate", "eagle", "layers_skipped"):
        assert (drafts(run(drafter=name))["prefill_tokens"] > 0).any(), name


def test_a_server_that_never_drafts_loads_no_drafter():
    """Its memory is the target's alone, whichever drafter the policies beside it have."""
    room = {"profile__memory_bytes": round(1.05 * (PROFILE.target.weights_bytes + PROFILE.draft.weights_bytes) / 0.9)}
    tight = {"trace__prompt_tokens": 9000, "slo__ttft_s": None, "rps": 1, "any_fit": True, **room}
    alone, beside = (run("vllm", drafter=each, **tight).requests for each in ("lookup", "separate"))
    assert_frame_equal(alone, beside)
    assert beside["finish_s"].notna().all()
    assert run("vllm_spec", **tight).requests["finish_s"].isna().all(), "both prompts are too much"


def test_a_scheduler_that_prices_passes_knows_that_one_is_enough(tmp_path):
    """Where later depths are free, goodput proposes more of them."""
    (tmp_path / "heads.yaml").write_text(yaml.safe_dump(HEADS | {"pass_share": 0.3}))

    def length(one_pass):
        found = run("smartspec", drafter=str(tmp_path / "heads.yaml"), drafter__one_pass=one_pass, rps=5)
        return float(found.requests["draft_tokens"].sum() / found.requests["verifications"].sum())

    assert length(True) > length(False) + 0.5


def test_a_suggestion_is_followed_with_the_keys_that_are_set_and_is_relative_to_its_file(tmp_path):
    """A sweep over schedulers that sets a key of the separate model means the separate model."""
    assert compose({"scheduler": "smartspec_lookup", "drafter.graphs": "false"})["choices"]["drafter"] == "separate"
    headed = {"profile": "qwen3_30b_a3b_eagle3_h100"}
    for drafter, whose in (("eagle3", "qwen3_30b_a3b_eagle3"), ("dflash", "gemma4_31b_dflash")):
        assert compose({**headed, "drafter": drafter})["choices"]["acceptance"] == whose, "of its own kind of head"
    named = compose({"scheduler": "adaserve_no_graphs", "drafter": "separate"})
    assert named["drafter"]["graphs"] is False, "a suggested setting holds whichever file is named"
    assert "graphs" in refusal(compose, {"scheduler": "adaserve_no_graphs", "drafter": "eagle"})
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "a.yaml").write_text(yaml.safe_dump({"kind": "bernoulli", "alpha": 0.3, "width": 1}))
    drafter = {"kind": "lookup", "pass_s": 1e-4, "suggests": {"acceptance": "./a.yaml"}}
    (tmp_path / "mine" / "d.yaml").write_text(yaml.safe_dump(drafter))
    assert compose({"drafter": str(tmp_path / "mine" / "d.yaml")})["acceptance"]["alpha"] == 0.3


def test_heads_propose_no_deeper_than_they_are():
    for depth in (2, 5):
        found = run(drafter="medusa", drafter__depth=depth, scheduler__num_speculative_tokens=8)
        trees = found.requests["draft_tokens"].sum() / found.requests["speculations"].sum()
        assert depth - 1 < trees <= depth
    for scheduler, keys in (("vllm_spec", {}), ("threshold", {"scheduler__threshold": 0}), ("dsde", {})):
        found = run(scheduler, drafter="eagle", drafter__depth=2, scheduler__num_speculative_tokens=8, **keys)
        assert 0 < (drafts(found)["depth"] == 2).sum() <= (found.passes["kind"] == 1).sum()
        assert any("num_speculative_tokens=8: drafts end at depth 2, " in note for note in found.notes)


@pytest.mark.parametrize(
    ("mapping", "said"),
    [
        ({}, "kind: missing key; valid: dflash, dspark, eagle, eagle3, heads, layers_skipped, lookup, medusa, mtp, "),
        ({"kind": "lookups"}, "did you mean 'lookup'?"),
        ({**LOOKUP, "pass_s": 0}, "pass_s: 0 is not a finite number above 0"),
        ({**HEADS, "one_pass": 1}, "true or false"),
        ({"kind": "layers_skipped", "layers": 30, "skipped": 30}, "at least one has to be left"),
    ],
)
def test_a_mistake_is_one_line(mapping, said):
    told = refusal(drafter_from_mapping, mapping, "drafter=mine")
    assert told.startswith("drafter=mine: ")
    assert said in told


@pytest.mark.parametrize(
    ("name", "value", "said"),
    [
        ("weights_bytes", -5_000_000_000, "weights_bytes: -5000000000 is not a whole number between 0 and"),
        ("kv_bytes_per_token", 0.5, "kv_bytes_per_token: 0.5 is not a whole number between 0 and"),
        ("one_pass", 1, "one_pass: 1 is not true or false"),
    ],
)
def test_a_drafter_of_ones_own_has_sizes_that_a_memory_has(name, value, said):
    wrong = {name: value}
    mine = SimpleNamespace(of=lambda profile: replace(profile.draft, **wrong))
    told = refusal(equipped, PROFILE, mine, "drafter=./mine.yaml")
    assert told.startswith(f"drafter=./mine.yaml: {PROFILE.draft.name}: ")
    assert said in told
    target = replace(PROFILE, target=replace(PROFILE.target, **wrong))
    assert name in refusal(simulate, "continuous", "poisson", requests=3, profile=target)
