"""Words of servers, load generators and Hydra that specsim does not have, and what means them here."""

from __future__ import annotations

import re

MODEL = "profile=NAME, a pair of models measured on its GPUs (`specsim list profiles`)"
COMPOSED = "profile=./mine.yaml, of `specsim profile compose --{}`"
LENGTHS = "trace=poisson trace.{}_tokens=N, or trace=./FILE with a length each"
WORDS = {
    "rps=R": "request_rate qps rate arrival_rate requests_per_second lambda",
    "concurrency=N": "max_concurrency num_concurrent streams clients users",
    "requests=N": "num_prompts num_requests request_count max_requests num_samples",
    "requests=N, the rate times the seconds; trace.window=[0,S] of a file": "max_seconds duration benchmark_duration",
    "timeout_s=S": "request_timeout request_timeout_seconds",
    "warmup=10% (of the arrivals' span), or seconds": "num_warmups warmup_request_count warmup_percent warmup_requests",
    "warmup=[a,b]": "metrics_window",
    "slo_scale=X": "slo_factor slo_multiplier tpot_scale slo_scale slo_scale_factor",
    "slo.classes.coding.share and those of the other classes, which add up to 1 (docs/slo.md)": (
        "slo_mix slo_shares class_mix shares mix"
    ),
    "trace=azure_conv or trace=./FILE: drawn arrivals have no such key": "trace_window trace_resample",
    "router=NAME (`specsim list routers`)": "load_balancer load_balancing routing_policy",
    "scheduler=vllm, whose passes mix chunks of prompts with decodes": "enable_chunked_prefill chunked_prefill",
    "any_fit=true": "any_target",
    "--jobs N beside -m": "jobs hydra_launcher",
    "--executor NAME beside -m": "executor",
    "--keep WHAT beside -m": "keep",
    "--until WIDTH beside -m": "until",
    "--each beside -m": "each",
    "--against NAME,NAME beside one run": "against",
    MODEL: "model model_path model_name served_model_name tokenizer hardware device gpu gpu_type",
    f"{MODEL}; replicas=N for more servers": "gpus num_gpus n_gpus",
    COMPOSED.format("tp N, --ep N or --pp N"): (
        "tp tp_size tensor_parallel_size pp pp_size pipeline_parallel_size "
        "ep ep_size expert_parallel_size enable_expert_parallel moe_expert_parallel_size"
    ),
    COMPOSED.format("kv-cache-dtype TYPE"): "kv_cache_dtype kv_cache_config_dtype",
    "no such choice: weights and cache take 0.9 of profile.memory_bytes, or as the file says (docs/your-profile.md)": (
        "mem_fraction_static gpu_memory_utilization kv_cache_free_gpu_mem_fraction kv_cache_free_gpu_memory_fraction "
        "free_gpu_memory_fraction num_gpu_blocks_override"
    ),
    "no such choice: weights stay on the GPUs, in 0.9 of profile.memory_bytes": "cpu_offload_gb",
    "no such choice: attention is split by heads (docs/composing.md)": (
        "enable_dp_attention enable_attention_dp attention_dp_size"
    ),
    "replicas=N split.prefill=M split.link_gb_per_s=X (docs/replicas.md)": (
        "disaggregation_mode pd_disaggregation kv_transfer_config"
    ),
    "replicas=N": "dp dp_size data_parallel_size num_replicas instances",
    "scheduler=vllm scheduler.max_num_batched_tokens=N": (
        "max_num_batched_tokens chunked_prefill_size chunk_size max_prefill_tokens max_num_tokens batched_tokens "
        "token_budget"
    ),
    "scheduler.max_num_seqs=N": "max_num_seqs max_running_requests max_batch_size batch_size",
    "scheduler=vllm_spec scheduler.num_speculative_tokens=K": (
        "num_speculative_tokens num_spec_tokens num_spec speculative_num_steps speculative_tokens max_draft_len "
        "num_nextn_predict_layers k gamma scheduler_k scheduler_draft_tokens"
    ),
    "scheduler=vllm_dynamic 'scheduler.speculation.num_speculative_tokens_per_batch_size={1-16: 3}'": (
        "num_speculative_tokens_per_batch_size"
    ),
    "scheduler=vllm_spec scheduler.num_speculative_tokens=N-1, or scheduler=eagle2_tree for a tree": (
        "speculative_num_draft_tokens speculative_eagle_topk"
    ),
    "drafter=NAME (`specsim list drafters`)": (
        "speculative_config speculative_algorithm speculative_model speculative_draft_model_path draft_model"
    ),
    "slo.ttft_s=0.2 and slo.classes.chat.tpot_s=0.05, in seconds (docs/slo.md)": (
        "goodput slos ttft tpot ttft_ms tpot_ms itl "
        "ttft_slo tpot_slo ttft_slo_ms tpot_slo_ms slo_ttft slo_tpot slo_ttft_ms slo_tpot_ms"
    ),
    "scheduler=vllm_spec drafter=lookup any_fit=true (its acceptance is SmolLM2's: docs/drafters.md)": (
        "drafter_ngram drafter_prompt_lookup scheduler_ngram scheduler_prompt_lookup"
    ),
    "scheduler=specserve": "scheduler_adaspec",
    "trace=./FILE, with a request a row (docs/trace-formats.md)": (
        "dataset dataset_name dataset_path data input_file custom_dataset_path trace_file workload"
    ),
    "trace=NAME (`specsim list traces`)": "arrival arrival_pattern rate_type",
    LENGTHS.format("prompt"): (
        "input_len random_input_len isl isl_mean synthetic_input_tokens_mean prompt_tokens input_tokens"
    ),
    LENGTHS.format("output"): "output_len random_output_len osl osl_mean output_tokens_mean output_tokens",
    "trace=gamma trace.cv=X, where burstiness is 1 / X^2": "burstiness arrival_smoothness",
    "trace=./FILE 'trace.columns={prompt_tokens: YOURS}'": "columns",
    "block_tokens=N": "block_size page_size",
    "prefix_caching=true": "enable_prefix_caching enable_radix_cache",
    "profile.target.max_model_len=N": "max_model_len context_length max_seq_len",
    "scheduler=NAME (`specsim list schedulers`)": "policy schedule_policy scheduling_policy",
    "engine=NAME (`specsim list engines`)": "backend endpoint_type framework",
    "out=DIR": "result_dir output_dir output_path output_file result_filename save_result artifact_dir",
    "out=DIR, with a folder below it for each point": "hydra_run_dir hydra_sweep_dir",
    "seed=S": "random_seed",
    "a file of yours for a group, scheduler=./mine.yaml": (
        "config_name config_path config_dir hydra_searchpath cn cp cd"
    ),
    "--cfg job": "info",
    "`specsim completion bash`, or zsh or fish": "shell_completion",
}
"""Settings that mean the words of vLLM, SGLang, aiperf, GuideLLM and Hydra, as keys, with dashes, or as GROUP_NAME."""
TRACES = {
    "burstgpt": "BurstGPT_1.csv of github.com/HPMLL/BurstGPT",
    "bailian": "a file of github.com/alibaba-edu/qwen-bailian-usagetraces-anon",
    "sharegpt": "conversations hold texts: a file with prompt_tokens and output_tokens of each",
    "azure_2024": "AzureLLMInferenceTrace_conv_1week.csv of github.com/Azure/AzurePublicDataset",
}
"""Public traces that do not ship and are read by path."""


def for_word(word: str) -> str:
    """Return what means a word of other tools, ``; expected rps=R``; empty where no table has it.

    A plain word below a group, but acceptance.rate, is another tool's where its meaning names the group or is a KEY=N.
    """
    plain = re.sub("[-./]", "_", word.lstrip("-").partition("=")[0]).lower()
    above, _, leaf = re.sub("-", "_", word.partition("=")[0]).lower().rpartition(".")
    known = {each: key for key, words in WORDS.items() for each in words.split()}
    below = known.get(leaf, "")
    means_it = re.search(rf"^\w+=[A-Z](,|$)|\b{above.partition('.')[0]}\b", below)
    fits = "_" in leaf or (means_it and plain != "acceptance_rate")
    means = known.get(plain) or (below if fits else "")
    return f"; {means}" if means.startswith("no such") else f"; expected {means}" if means else ""


def for_trace(name: str) -> str:
    """Return where the file of a public trace is, ``; expected trace=./FILE``; empty where no table has it."""
    plain = name.lower().replace("-", "_")
    found = next((where for known, where in TRACES.items() if plain.startswith(known)), None)
    return f"; it does not ship; expected trace=./FILE: {found}" if found else ""
