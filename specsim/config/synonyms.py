"""Words of Hydra, and of servers and load generators, that specsim does not have, and what to do here instead."""

from __future__ import annotations

from collections.abc import Sequence

from specsim.errors import SpecsimError

OWN_FILES = "specsim reads its own conf/; a file of yours stands in for a group's: scheduler=./mine.yaml"
FLAGS = {
    ("--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd"): OWN_FILES,
    ("--info", "-i"): "`specsim run --cfg job` shows the settings, `specsim list` what can be chosen",
    ("--hydra-help",): "Hydra reads values and runs nothing here; see `specsim run --help`",
    ("--run", "-r"): "a run is the default; expected key=value, or -m for a sweep",
    ("--experimental-rerun",): "the same settings give the same bytes; they stand in config.yaml of the run folder",
    ("--shell-completion", "-sc"): 'expected `eval "$(specsim completion bash)"`, or zsh or fish',
}
LAUNCHER = "expected --jobs N, --executor NAME beside -m; with out=DIR, a sweep that was cut goes on where it stopped"
KEYS = {
    "hydra.run": "expected out=DIR",
    "hydra.sweep": "expected out=DIR; each point has a folder below it",
    "hydra.sweeper": "expected -m with commas, range(), choice() or glob()",
    "hydra.launcher": LAUNCHER,
    "hydra.searchpath": OWN_FILES,
}
GUESSED = {
    "scheduler.k": "scheduler.num_speculative_tokens",
    "scheduler.draft_tokens": "scheduler.num_speculative_tokens",
    "jobs": "--jobs N beside -m",
    "executor": "--executor NAME beside -m",
    "metrics.window": "warmup=[a,b]",
    "any_target": "any_fit=true",
}
"""Keys that one may try, and what means it."""
MODEL = "profile=NAME, a pair of models measured on its GPUs (`specsim list profiles`)"
LENGTHS = "trace=poisson trace.{}_tokens=N, or trace=./FILE with a length each"
WORDS = {
    "rps=R": "request_rate qps rate arrival_rate requests_per_second",
    "concurrency=N": "max_concurrency num_concurrent streams clients users",
    "requests=N": "num_prompts num_requests request_count max_requests num_samples",
    "warmup=10% (of the arrivals' span), or seconds": "num_warmups warmup_request_count warmup_percent warmup_requests",
    MODEL: "model model_path model_name served_model_name tokenizer hardware gpu gpu_type",
    f"{MODEL}; replicas=N for more servers": "gpus num_gpus tp tp_size tensor_parallel_size n_gpus",
    "replicas=N": "dp dp_size data_parallel_size num_replicas instances",
    "scheduler=vllm scheduler.max_num_batched_tokens=N": (
        "max_num_batched_tokens chunked_prefill_size max_prefill_tokens batched_tokens token_budget"
    ),
    "scheduler.max_num_seqs=N": "max_num_seqs max_running_requests max_batch_size batch_size",
    "scheduler=vllm_spec scheduler.num_speculative_tokens=K": (
        "num_speculative_tokens speculative_num_steps speculative_num_draft_tokens speculative_tokens k gamma"
    ),
    "drafter=NAME (`specsim list drafters`)": (
        "speculative_config speculative_algorithm speculative_model speculative_draft_model_path draft_model"
    ),
    "slo.ttft_s=0.2 and slo.classes.chat.tpot_s=0.05, in seconds (docs/slo.md)": (
        "goodput slos ttft tpot ttft_ms tpot_ms itl"
    ),
    "trace=./FILE, with a request a row (docs/trace-formats.md)": (
        "dataset dataset_name dataset_path data input_file custom_dataset_path trace_file workload"
    ),
    LENGTHS.format("prompt"): "input_len random_input_len isl synthetic_input_tokens_mean prompt_tokens input_tokens",
    LENGTHS.format("output"): "output_len random_output_len osl output_tokens_mean output_tokens",
    "trace=gamma trace.cv=X, where burstiness is 1 / X^2": "burstiness arrival_smoothness",
    "trace=./FILE 'trace.columns={prompt_tokens: YOURS}'": "columns",
    "block_tokens=N": "block_size page_size",
    "prefix_caching=true": "enable_prefix_caching enable_radix_cache",
    "profile.target.max_model_len=N": "max_model_len context_length max_seq_len",
    "scheduler=NAME (`specsim list schedulers`)": "policy schedule_policy scheduling_policy",
    "engine=NAME (`specsim list engines`)": "backend endpoint_type framework",
    "out=DIR": "result_dir output_dir output_path output_file result_filename save_result artifact_dir",
    "seed=S": "random_seed",
}
"""Keys that mean the words of vLLM, SGLang, aiperf and GuideLLM, as keys or with dashes."""
TRACES = {
    "burstgpt": "BurstGPT_1.csv of github.com/HPMLL/BurstGPT",
    "bailian": "a file of github.com/alibaba-edu/qwen-bailian-usagetraces-anon",
    "sharegpt": "conversations hold texts: a file with prompt_tokens and output_tokens of each",
    "azure_2024": "AzureLLMInferenceTrace_conv_1week.csv of github.com/Azure/AzurePublicDataset",
}
"""Public traces that do not ship and are read by path."""
OTHER_KEYS = "Hydra reads values and runs nothing here; its own settings change nothing"


def for_word(word: str) -> str:
    """Return what means a word of other tools, ``; expected rps=R``; empty where no table has it."""
    plain = word.lstrip("-").partition("=")[0].replace("-", "_").replace(".", "_").lower()
    return next((f"; expected {key}" for key, words in WORDS.items() if plain in words.split()), "")


def for_trace(name: str) -> str:
    """Return where the file of a public trace is, ``; expected trace=./FILE``; empty where no table has it."""
    plain = name.lower().replace("-", "_")
    found = next((where for known, where in TRACES.items() if plain.startswith(known)), None)
    return f"; it does not ship; expected trace=./FILE: {found}" if found else ""


def for_flag(words: Sequence[str]) -> str:
    """Return a line about the first of the words that is a flag of Hydra's, empty where none is."""
    for word in words:
        flag = word.partition("=")[0]
        for flags, instead in FLAGS.items():
            if flag in flags:
                return f"{flag}: {instead}"
    return ""


def refuse_key(word: str) -> None:
    """Refuse a key that has another name here, and what only Hydra knows: ~key, key@package=, hydra.key=, hydra/group=.

    Raises
    ------
    SpecsimError
        One line that tells what to do instead.
    """
    key, equals, _ = word.partition("=")
    key = key.strip().lstrip("+")
    if key.startswith("~"):
        raise SpecsimError(f"{word}: nothing can be taken away; expected {key[1:]}=null, or another choice")
    if "@" in key[1:] and equals:
        raise SpecsimError(f"{word}: a group has one place; expected {key.partition('@')[0]}=NAME")
    if key in GUESSED:
        raise SpecsimError(f"{key}: unknown key; expected {GUESSED[key]}")
    head = key.replace("/", ".").split(".")[:2]
    if head[0] == "hydra":
        raise SpecsimError(f"{key}: {KEYS.get('.'.join(head), OTHER_KEYS)}")
