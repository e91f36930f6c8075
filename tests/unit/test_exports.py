"""Exports by hand: what each engine's documentation says of its settings, and what specsim reads them as."""

import json
from dataclasses import replace

import pytest
import yaml

from specsim.api import simulate
from specsim.config.compose import compose
from specsim.latency.profile import load_profile
from specsim.search.exports import UNKNOWN, Deployment, Inexpressible, exported, kind_of, server_of
from specsim.search.tuned import Candidate

TABLE = "speculation.num_speculative_tokens_per_batch_size"
BY_SIZE = TABLE.replace(".", "__")


def export(engine, scheduler, drafter="eagle3", server=UNKNOWN, **settings):
    named = {f"scheduler.{key.replace('__', '.')}": str(each).replace("'", "") for key, each in settings.items()}
    keys = compose({"scheduler": scheduler, **named})["scheduler"]
    return exported(Candidate(scheduler, settings, keys, 1.0), drafter, engine, server)


def test_vllm_has_ranges_without_gaps_and_no_k_above_the_most():
    table = [[1, 8, 7], [17, 32, 2], [33, 64, 0]]
    found = export("vllm", "vllm_dynamic", **{BY_SIZE: table})
    config = json.loads(found.files["speculative_config.json"])
    ranges = {TABLE.partition(".")[2]: [[1, 16, 5], [17, 32, 2], [33, 2048, 0]]}
    shared = {"method": "eagle3", "model": "DRAFT_MODEL", "num_speculative_tokens": 5}
    assert config == shared | ranges, (
        "7 is cut to num_speculative_tokens=5, the gap from 9 to 16 has the k before it, 0 holds past the end"
    )
    assert found.text.startswith("vllm serve TARGET_MODEL \\\n  --speculative-config '{")
    assert found.scheduler == "vllm_dynamic"
    assert found.settings == {"num_speculative_tokens": 5, TABLE: config["num_speculative_tokens_per_batch_size"]}


def test_vllm_with_one_length_has_no_table_and_without_drafts_no_config():
    found = export("vllm", "vllm_spec", "separate", num_speculative_tokens=3, max_num_batched_tokens=1024)
    config = json.loads(found.files["speculative_config.json"])
    assert config == {"method": "draft_model", "model": "DRAFT_MODEL", "num_speculative_tokens": 3}
    assert found.text.endswith("--max-num-batched-tokens 1024")
    plain = export("vllm", "vllm", max_num_seqs=64)
    assert (plain.text, plain.files) == ("vllm serve TARGET_MODEL \\\n  --max-num-seqs 64", {})


@pytest.mark.parametrize(
    ("drafter", "stages", "seqs"),
    [("eagle3", 1, 512), ("separate", 1, 256), ("dflash", 1, 128), ("p_eagle", 1, 170), ("dspark", 2, 85)],
)
def test_vllm_has_no_more_sequences_than_a_step_has_tokens(drafter, stages, seqs):
    server = Deployment(pp=stages, stated={"max_num_seqs": 1024})
    found = export("vllm", "vllm_spec", drafter, server, num_speculative_tokens=3, max_num_batched_tokens=512)
    assert found.text.endswith(f"--max-num-batched-tokens {512 // stages} \\\n  --max-num-seqs {seqs}")
    assert found.settings["max_num_seqs"] == seqs, "run back with the server's"


def test_sglang_has_flags_of_a_chain_and_steps_by_batch_size():
    found = export("sglang", "vllm_spec", num_speculative_tokens=3, max_num_batched_tokens=512)
    flags = "algorithm EAGLE3", "draft-model-path DRAFT_MODEL", "num-steps 3", "eagle-topk 1", "num-draft-tokens 4"
    wanted = [*(f"--speculative-{each}" for each in flags), "--chunked-prefill-size 512"]
    assert found.text.split(" \\\n  ")[1:] == wanted
    table = [[1, 8, 4], [9, 512, 0]]
    by_size = export("sglang", "vllm_dynamic", **{BY_SIZE: table})
    assert json.loads(by_size.files["sglang.json"]) == {"1": {"candidate_steps": [4]}, "9": {"candidate_steps": [0]}}
    assert "--speculative-adaptive-config sglang.json" in by_size.text
    own = export("sglang", "sglang_adaptive")
    assert json.loads(own.files["sglang.json"])["8"]["candidate_steps"] == [0, 1, 3]
    assert (own.scheduler, "num-steps 3 " in own.text) == ("sglang_adaptive", True)
    key = "speculation__speculative_adaptive_config"
    other = export("sglang", "sglang_adaptive", **{key: {1: {"candidate_steps": [1, 5]}}})
    assert "--speculative-num-steps 5 " in other.text, "SGLang starts with no steps that are no candidate"


def test_drafts_of_one_pass_have_the_flags_of_their_own():
    config = json.loads(export("vllm", "vllm_spec", "p_eagle").files["speculative_config.json"])
    assert (config["method"], config["parallel_drafting"]) == ("eagle3", True)
    for drafter, flag in (("dflash", "num-draft-tokens 5"), ("dspark", "dspark-block-size 4")):
        begin = f"--speculative-algorithm {drafter.upper()} --speculative-draft-model-path DRAFT_MODEL --speculative-"
        text = export("sglang", "vllm_spec", drafter).text.replace(" \\\n  ", " ")
        assert text.partition("TARGET_MODEL ")[2] == begin + flag
    mtp = yaml.safe_load(export("trtllm", "vllm_spec", "mtp").files["trtllm.yaml"])["speculative_config"]
    assert mtp == {"decoding_type": "MTP", "max_draft_len": 4, "num_nextn_predict_layers": 4}


def test_trtllm_has_last_batch_sizes_and_its_longest_first():
    found = export("trtllm", "trtllm_schedule", max_num_seqs=128)
    speculation = {"decoding_type": "Eagle3", "max_draft_len": 4, "speculative_model": "DRAFT_MODEL"}
    speculation |= {"draft_len_schedule": {4: 4, 8: 2, 32: 1}}
    speculation |= {"acceptance_rate_window_size": 100, "acceptance_rate_threshold": 0.2}
    config = yaml.safe_load(found.files["trtllm.yaml"])
    assert "# draft_len_schedule, acceptance_rate_threshold: as TensorRT-LLM reads them after 1.2\n" in found.text
    assert config == {"speculative_config": speculation, "max_batch_size": 128, "enable_chunked_prefill": True}
    table = [[1, 8, 3], [9, 64, 1]]
    ours = export("trtllm", "vllm_dynamic", **{BY_SIZE: table})
    assert yaml.safe_load(ours.files["trtllm.yaml"])["speculative_config"]["draft_len_schedule"] == {8: 3, 2048: 1}
    assert ours.settings["speculation.draft_len_schedule"] == [[8, 3], [2048, 1]]


def test_a_composed_profile_names_the_head_that_drafts():
    assert kind_of("separate", "eagle3 head") == "eagle3"
    assert kind_of("separate", "Llama-3.2-1B") == "separate"
    assert kind_of("lookup", "eagle3 head") == "lookup"


@pytest.mark.parametrize(
    ("profile", "server"),
    [
        ("gpt_oss_120b_eagle3_2xh100", Deployment("openai/gpt-oss-120b", tp=2)),
        ("gpt_oss_120b_eagle3_2xb200", Deployment(tp=2)),
        ("qwen3_235b_eagle3_8xh100", Deployment("Qwen/Qwen3-235B-A22B-FP8", tp=8, ep=8)),
        ("qwen3_8b_06b_h100", Deployment("Qwen/Qwen3-8B", "Qwen/Qwen3-0.6B")),
        ("llama70b_1b_4xa100", Deployment(tp=4)),
    ],
)
def test_a_server_has_the_split_and_the_models_that_its_profile_states(profile, server):
    """A model in another precision than its checkpoint's is the user's to name."""
    assert server_of(load_profile(profile)) == server


def test_each_engine_is_told_the_model_and_how_the_gpus_share_it():
    stages = replace(load_profile("llama70b_1b_4xa100"), pipeline_parallel_size=2)
    assert server_of(stages) == Deployment(tp=2, pp=2)
    server = Deployment("a/b", tp=4, pp=2, ep=4, fp8_cache=True, stated={"max_num_batched_tokens": 1024})
    begins = {
        "vllm": "vllm serve a/b --tensor-parallel-size 4 --pipeline-parallel-size 2 --enable-expert-parallel --spec",
        "sglang": "python -m sglang.launch_server --model-path a/b --tp-size 4 --pp-size 2 --ep-size 4 --chunk",
    }
    ends = {"vllm": "max-num-batched-tokens 512 --kv-cache-dtype fp8", "sglang": "512 --kv-cache-dtype fp8_e4m3"}
    for engine, begin in begins.items():
        text = export(engine, "vllm_spec" if engine == "vllm" else "vllm", server=server).text.replace(" \\\n  ", " ")
        assert text.startswith(begin)
        assert text.endswith(ends[engine]), "a step of two stages is two batches"
    own = export("trtllm", "vllm_spec", server=server)
    assert own.text.startswith("# trtllm-serve a/b --config trtllm.yaml\n")
    sizes = {"tensor_parallel_size": 4, "pipeline_parallel_size": 2, "moe_expert_parallel_size": 4}
    sizes |= {"kv_cache_config": {"dtype": "fp8"}}
    assert sizes.items() <= yaml.safe_load(own.files["trtllm.yaml"]).items()
    with pytest.raises(Inexpressible, match="SGLang does not speculate in pipeline stages"):
        export("sglang", "vllm_spec", server=server)
    with pytest.raises(Inexpressible, match="vLLM splits experts over all 4 GPUs of a stage or over none, not 2"):
        export("vllm", "vllm_spec", server=server._replace(ep=2))


@pytest.mark.parametrize(
    ("engine", "scheduler", "drafter", "settings", "why"),
    [
        ("vllm", "sglang_adaptive", "eagle3", {}, "vLLM does not choose among candidate steps"),
        ("vllm", "trtllm_schedule", "eagle3", {}, "vLLM does not end speculation at a low acceptance rate"),
        ("vllm", "adaserve", "separate", {}, "it batches as no engine does"),
        ("sglang", "vllm_dynamic", "separate", {}, "steps of EAGLE, EAGLE3, NEXTN alone, not of STANDALONE"),
        ("trtllm", "vllm_spec", "medusa", {}, "trtllm has no settings for drafter=medusa"),
        ("trtllm", "vllm_dynamic", "eagle3", {BY_SIZE: [[1, 8, 1], [9, 64, 3]]}, "longest for the smallest batches"),
    ],
)
def test_what_an_engine_cannot_express_is_refused(engine, scheduler, drafter, settings, why):
    with pytest.raises(Inexpressible, match=why):
        export(engine, scheduler, drafter, **settings)


@pytest.mark.parametrize("engine", ["vllm", "sglang", "trtllm"])
def test_an_exported_table_gives_the_numbers_of_the_tuned_one(engine):
    table = [[1, 2, 4], [3, 6, 2], [7, 512, 0]]
    shared = {"trace": "poisson", "requests": 60, "rps": 12, "profile": "llama8b_eagle3_h100"}

    def tpot_ms(scheduler, settings):
        below = {f"scheduler__{key.replace('.', '__')}": each for key, each in settings.items()}
        return float(simulate(scheduler, **shared, **below).metrics["mean_tpot_ms"])

    found = export(engine, "vllm_dynamic", **{BY_SIZE: table})
    wanted_ms = tpot_ms("vllm_dynamic", {TABLE: table})
    assert tpot_ms(found.scheduler, dict(found.settings)) == pytest.approx(wanted_ms, rel=0.02)
