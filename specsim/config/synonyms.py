"""Words of servers, load generators and Hydra that specsim does not have, and what means them here."""

from __future__ import annotations

import re
from difflib import get_close_matches
from functools import cache

from specsim.config.schema import known_keys

MODEL = "profile=NAME, a pair of models measured on its GPUs (`specsim list profiles`)"
COMPOSED = "profile=./mine.yaml, of `specsim profile compose --{}`"
LENGTHS = "trace=poisson trace.{}_tokens=N, or trace=./FILE with a length each"
WORDS = {
    "rps=R": "request_rate qps rate arrival_rate requests_per_second lambda",
    "concurrency=N": "max_concurrency max_concurrent num_concurrent streams clients users",
    "requests=N": "num_prompts num_requests request_count max_requests num_samples",
    "requests=N, the rate times the seconds; trace.window=[0,S] of a file": "max_seconds duration benchmark_duration",
    "timeout_s=S": "request_timeout request_timeout_seconds",
    "warmup=10% (of the arrivals' span), or seconds": (
        "num_warmups warmup_request_count warmup_percent warmup_requests rampup cooldown"
    ),
    "warmup=[a,b]": "metrics_window",
    "slo_scale=X": "slo_factor slo_multiplier tpot_scale slo_scale slo_scale_factor",
    "slo.classes.coding.share and those of the other classes, which add up to 1 (docs/slo.md)": (
        "slo_mix slo_shares class_mix shares mix"
    ),
    "acceptance=0.7, or a rate a draft position, acceptance=[0.8,0.6,0.4]": (
        "acceptance_rate accept_rate acceptance_rates mean_acceptance_rate token_acceptance_rate acceptance_alpha"
    ),
    "acceptance=pinned_vllm acceptance.synthetic_acceptance_length=X, or a file of kind: length (docs/acceptance.md)": (
        "acceptance_length accept_length mean_acceptance_length mean_accept_length acceptance_len"
    ),
    "trace=azure_conv or trace=./FILE: drawn arrivals have no such key": "trace_window trace_resample",
    "router=NAME (`specsim list routers`)": (
        "load_balancer load_balancing load_balance_method routing_policy router_mode"
    ),
    "scheduler=vllm, whose passes mix chunks of prompts with decodes": "enable_chunked_prefill chunked_prefill",
    "any_fit=true": "any_target",
    "--jobs N beside -m": "jobs hydra_launcher",
    "--executor NAME beside -m": "executor",
    "--keep WHAT beside -m": "keep",
    "--until WIDTH beside -m": "until",
    "--each beside -m": "each",
    "--against NAME,NAME beside one run": "against",
    MODEL: "model model_path model_name served_model_name tokenizer hardware device gpu gpu_type",
    f"{MODEL}; replicas=N for more servers": "gpus num_gpus num_gpu n_gpus",
    COMPOSED.format("tp N, --ep N or --pp N"): (
        "tp tp_size tensor_parallel_size pp pp_size pipeline_parallel_size num_pipeline_stages "
        "ep ep_size expert_parallel_size enable_expert_parallel moe_expert_parallel_size"
    ),
    COMPOSED.format("kv-cache-dtype TYPE"): "kv_cache_dtype kv_cache_config_dtype",
    COMPOSED.format("precision TYPE"): "dtype quantization quantize weight_dtype load_format",
    "no such choice: weights and cache take 0.9 of profile.memory_bytes, or as the file says (docs/your-profile.md)": (
        "mem_fraction_static gpu_memory_utilization kv_cache_free_gpu_mem_fraction kv_cache_free_gpu_memory_fraction "
        "free_gpu_memory_fraction num_gpu_blocks_override"
    ),
    "no such choice: weights stay on the GPUs, in 0.9 of profile.memory_bytes": "cpu_offload_gb",
    "no such choice: attention is split by heads (docs/composing.md)": (
        "enable_dp_attention enable_attention_dp attention_dp_size"
    ),
    "replicas=N split.prefill=M split.link_gb_per_s=X (docs/replicas.md)": (
        "disaggregation_mode pd_disaggregation kv_transfer_config prefill_replicas decode_replicas"
    ),
    "replicas=N": "dp dp_size data_parallel_size num_replicas num_workers instances",
    "engine.max_num_batched_tokens=N": (
        "max_num_batched_tokens chunked_prefill_size chunk_size max_prefill_tokens max_num_tokens batched_tokens "
        "max_batched_tokens max_tokens_in_batch token_budget"
    ),
    "engine.pipeline_steps=1, or 0 for none": "async_scheduling enable_overlap_schedule disable_overlap_schedule",
    "engine.graph_most=N": (
        "cuda_graph_max_bs cuda_graph_sizes cudagraph_capture_sizes max_cudagraph_capture_size cuda_graph_batch_sizes"
    ),
    "no such choice: a scheduler decides each pass, as in vLLM V1": "num_scheduler_steps num_continuous_decode_steps",
    "shed.waiting=N": "max_queued_requests max_queue_size",
    "scheduler.max_num_seqs=N": "max_num_seqs max_running_requests max_batch_size batch_size batch_size_cap",
    "scheduler=vllm_spec scheduler.num_speculative_tokens=K, of which 0 is no drafts": (
        "num_speculative_tokens num_spec_tokens num_spec speculative_num_steps speculative_tokens max_draft_len "
        "num_nextn_predict_layers k gamma scheduler_k scheduler_draft_tokens draft_length draft_len num_draft_tokens"
    ),
    "scheduler=vllm_dynamic 'scheduler.speculation.num_speculative_tokens_per_batch_size={1-16: 3}'": (
        "num_speculative_tokens_per_batch_size"
    ),
    "scheduler=vllm_spec scheduler.num_speculative_tokens=N-1, or scheduler=eagle2_tree for a tree": (
        "speculative_num_draft_tokens speculative_eagle_topk"
    ),
    "drafter=NAME (`specsim list drafters`)": (
        "speculative_config speculative_algorithm speculative_model speculative_draft_model_path draft_model method"
    ),
    "slo=one slo.ttft_s=0.2 slo.tpot_s=0.05 (s; a request's mean), or slo.classes.chat.tpot_s (docs/slo.md)": (
        "goodput slos ttft tpot ttft_ms tpot_ms itl itl_s itl_ms tbt tbt_s tbt_ms inter_token_latency "
        "ttft_slo tpot_slo ttft_slo_ms tpot_slo_ms slo_ttft slo_tpot slo_ttft_ms slo_tpot_ms"
    ),
    "scheduler=vllm_spec drafter=lookup any_fit=true (its acceptance is SmolLM2's: docs/drafters.md)": (
        "drafter_ngram drafter_prompt_lookup scheduler_ngram scheduler_prompt_lookup"
    ),
    "scheduler=specserve": "scheduler_adaspec",
    "scheduler=smartspec": "scheduler_turbospec",
    "trace=./FILE, with a request a row (docs/trace-formats.md)": (
        "dataset dataset_name dataset_path data input_file custom_dataset_path trace_file workload fixed_schedule"
    ),
    "trace=NAME (`specsim list traces`)": "arrival arrival_pattern rate_type",
    LENGTHS.format("prompt"): (
        "input_len input_length max_input_len random_input_len isl isl_mean synthetic_input_tokens_mean "
        "prompt_tokens prompt_tokens_mean input_tokens input_tokens_mean prefill_tokens"
    ),
    LENGTHS.format("output"): (
        "output_len output_length random_output_len sharegpt_output_len osl osl_mean output_tokens_mean output_tokens "
        "max_new_tokens max_output_tokens decode_tokens"
    ),
    "trace=poisson trace.prompt_tokens={distribution: lognormal, mean: 512, cv: 0.5}, cv of the mean": (
        "isl_stddev osl_stddev synthetic_input_tokens_stddev output_tokens_stddev prompt_tokens_stddev "
        "prompt_tokens_stdev output_tokens_stdev random_range_ratio"
    ),
    "trace=gamma trace.cv=X, where burstiness is 1 / X^2": "burstiness arrival_smoothness",
    "trace=./FILE 'trace.columns={prompt_tokens: YOURS}'": "columns",
    "block_tokens=N": "block_size page_size tokens_per_block",
    "prefix_caching=true, of a trace with hash_ids; false is the default": (
        "enable_prefix_caching no_enable_prefix_caching enable_radix_cache disable_radix_cache enable_block_reuse"
    ),
    "profile.target.max_model_len=N": "max_model_len context_length max_seq_len",
    "scheduler=NAME (`specsim list schedulers`)": "policy schedule_policy scheduling_policy capacity_scheduler_policy",
    "engine=NAME (`specsim list engines`)": "backend endpoint_type framework",
    "out=DIR": "output out_dir result_dir output_dir output_path output_file result_filename save_result artifact_dir",
    "out=DIR, with a folder below it for each point": "hydra_run_dir hydra_sweep_dir",
    "seed=S": "random_seed",
    "replicas=N router=least_tokens": "router_jsq router_lor router_least_loaded router_least_requests router_load",
    "replicas=N router=cache_aware": "router_prefix router_prefix_aware router_kv router_kv_aware",
    "replicas=N router=cache_aware router.overlap_weight=X": "kv_overlap_score_weight overlap_score_weight",
    "a file of yours for a group, scheduler=./mine.yaml": (
        "config_name config_path config_dir hydra_searchpath cn cp cd"
    ),
    "--cfg job": "info",
    "`specsim completion bash`, or zsh or fish": "shell_completion",
}
"""Settings that mean the words of vLLM, SGLang, aiperf, GuideLLM, vidur and Hydra: keys, with dashes, or GROUP_NAME."""
TRACES = {
    "burstgpt": "BurstGPT_1.csv of github.com/HPMLL/BurstGPT",
    "bailian": "a file of github.com/alibaba-edu/qwen-bailian-usagetraces-anon",
    "sharegpt": "conversations hold texts: a file with prompt_tokens and output_tokens of each",
    "azure_2024": "AzureLLMInferenceTrace_conv_1week.csv of github.com/Azure/AzurePublicDataset",
}
"""Public traces that do not ship and are read by path."""
ALIKE, SHORT = 0.9, 6
"""The least similarity, 0 to 1, of a misspelt word, and the letters up to which a word is never taken for another."""
CHOSEN = {
    "find": {
        "rps": "find chooses it; expected --rates LOW..HIGH",
        "out": "find chooses it; expected --out DIR",
        "concurrency": "find looks for a rate of open arrivals; expected specsim run -m concurrency=1,2,4",
    },
    "tune": {"out": "tune chooses it; expected --out DIR"},
}
"""Keys that a command gets in another way."""
SHARED = ("--jobs", "--executor")
"""Flags of sweeps that these commands have, too."""


def for_word(word: str, *, misspelt: bool = False) -> str:
    """Return what means a word of other tools, ``; expected rps=R``; empty where no table has it.

    A plain word below a group, but alpha of drafter.alpha, is another tool's where its meaning names the group or is a
    KEY=N. `misspelt`: a word a letter or two away is meant, too.
    """
    means = _meaning(word)
    if misspelt and not means:
        close = get_close_matches(_plain(word), [each for each in _known() if len(each) > SHORT], n=1, cutoff=ALIKE)
        means = _known()[close[0]] if close else ""
    return f"; {means}" if means.startswith("no such") else f"; expected {means}" if means else ""


def chosen_by(verb: str, word: str) -> str:
    """Return why a command takes no such key, or no word for it of other tools; empty where it takes it."""
    key = word.lstrip("-+").partition("=")[0]
    chosen, means = CHOSEN.get(verb, {}), "" if key.partition(".")[0] in known_keys() else _meaning(word)
    flag, beside, run = means.partition(" beside ")
    if beside and chosen:
        return f"expected {flag}" if flag.split()[0] in SHARED else f"unknown; `specsim run` has {flag} beside {run}"
    return chosen.get(key) or chosen.get(means.partition("=")[0], "")


def _meaning(word: str) -> str:
    above, _, leaf = re.sub("-", "_", word.partition("=")[0]).lower().rpartition(".")
    below = _known().get(leaf) or _known().get(leaf.rpartition("_config_")[2], "")
    fits = "_" in leaf or re.search(rf"^\w+=[A-Z](,|$)|\b{above.partition('.')[0]}\b", below)
    return _known().get(_plain(word)) or (below if fits else "")


def _plain(word: str) -> str:
    return re.sub("[-./]", "_", word.lstrip("-").partition("=")[0]).lower()


@cache
def _known() -> dict[str, str]:
    return {each: key for key, words in WORDS.items() for each in words.split()}


def for_trace(name: str) -> str:
    """Return where the file of a public trace is, ``; expected trace=./FILE``; empty where no table has it."""
    plain = name.lower().replace("-", "_")
    found = next((where for known, where in TRACES.items() if plain.startswith(known)), None)
    return f"; it does not ship; expected trace=./FILE: {found}" if found else ""
