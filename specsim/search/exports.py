"""A tuned policy in the settings of a serving engine, and back.

Sources: vLLM's config/speculative.py and docs/features/speculative_decoding/dynamic_speculative_decoding.md; SGLang's
arg_groups/speculative_hook.py and speculative/adaptive_spec_params.py; TensorRT-LLM's llmapi `DecodingBaseConfig` (PR
10860). GPUs: vLLM's docs/serving/expert_parallel_deployment.md; SGLang's `check_server_args`; `BaseLlmArgs`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

from specsim.errors import SpecsimError
from specsim.files.yaml_file import yaml_text
from specsim.latency.model import Profile
from specsim.schedulers.loading import MAKERS
from specsim.schedulers.sglang_adaptive import DEFAULT, checked_slots
from specsim.schedulers.trtllm_schedule import checked_schedule
from specsim.schedulers.vllm_dynamic import checked_ranges
from specsim.search.tuned import Candidate, Export

Ranges = list[list[int]]
"""[first, last, k] from batch size 1 on without a gap; the last one holds beyond its end, too."""
MODEL, DRAFT = "TARGET_MODEL", "DRAFT_MODEL"
SEQS, TOKENS = "max_num_seqs", "max_num_batched_tokens"
MOST_SEQS = 2048
"""The end of the last range where the policy states no limit: no engine's default is larger."""
PARTS = "specsim.schedulers."
DRAFTERS = {
    "separate": ("draft_model", "STANDALONE", "Draft_Target"),
    "eagle": ("eagle", "EAGLE", None),
    "eagle3": ("eagle3", "EAGLE3", "Eagle3"),
    "mtp": ("mtp", "NEXTN", "MTP"),
    "p_eagle": ("p_eagle", None, None),
    "dflash": ("dflash", "DFLASH", "DFlash"),
    "dspark": ("dspark", "DSPARK", "DSpark"),
    "lookup": ("ngram", None, "NGram"),
    "medusa": ("medusa", None, None),
    "suffix": ("suffix", None, None),
}
"""The engines' names of each drafter, in the order of `ENGINES`; None: not with settings of a chain."""
PARALLEL_EAGLE = {"method": "eagle3", "parallel_drafting": True}
"""vLLM's settings of P-EAGLE, in the place of a method of its own."""
ADAPTIVE = ("EAGLE", "EAGLE3", "NEXTN")
"""The algorithms whose steps SGLang changes: it starts any other with fixed ones, and warns in its log alone."""
BLOCKS = {"DFLASH": ("num-draft-tokens", 1), "DSPARK": ("dspark-block-size", 0)}
"""SGLang's flag of the algorithms that draft in one pass, and the tokens that it counts beside the drafts."""
ENDS = ("acceptance_rate_window_size", "acceptance_rate_threshold")
AFTER_1_2 = ("draft_len_schedule", *ENDS[1:])
"""Keys that TensorRT-LLM 1.2 reads by the first batch size of a length, or has under another name."""
HEAD = "head"
WITHOUT_MODEL = ("mtp", "lookup", "suffix")
ENGINES = tuple(MAKERS)


class Policy(NamedTuple):
    """A scheduler in the engines' terms: draft tokens by batch size, until they are right too seldom.

    Attributes
    ----------
    ranges : draft tokens by batch size, the most of them where they adapt. adaptive : SGLang's candidate steps.
    steps : the candidate at the beginning. ends : the window and the acceptance rate below which speculation ends.
    limits : those of a batch that it states.
    """

    ranges: Ranges
    adaptive: Mapping[str, Any] | None
    steps: int
    ends: tuple[int, float] | None
    limits: Mapping[str, int]

    @property
    def most(self) -> int:
        """The most draft tokens of a request."""
        return max(k for _, _, k in self.ranges)


class Deployment(NamedTuple):
    """The server that a profile is of.

    Attributes
    ----------
    model, draft : names on the Hugging Face hub, or what stands for them. tp, pp, ep : GPUs that share each tensor,
        stages, and groups of experts. fp8_cache : whether its KV cache is in FP8. stated :
        limits of a batch where a policy states none.
    """

    model: str = MODEL
    draft: str = DRAFT
    tp: int = 1
    pp: int = 1
    ep: int = 1
    fp8_cache: bool = False
    stated: Mapping[str, int] = {}

    def split(self, *names: str) -> dict[str, int]:
        """Return `tp`, `pp` and `ep` by an engine's names, those above 1."""
        return {name: size for name, size in zip(names, self[2:5], strict=False) if size > 1}

    def limits(self, policy: Policy, tokens: str, seqs: str) -> dict[str, int]:
        """Return a policy's limits by an engine's names; a step is as many batches of tokens as there are stages."""
        known = {**self.stated, **policy.limits}
        of = {tokens: known.get(TOKENS, 0) // self.pp, seqs: known.get(SEQS, 0)}
        return {name: value for name, value in of.items() if value}


UNKNOWN = Deployment()


class Inexpressible(Exception):
    """An engine has no settings for a policy; the message says why."""


def check_engine(engine: str | None) -> str | None:
    """Return the name of an engine; SpecsimError where it is none."""
    if engine is not None and engine not in ENGINES:
        raise SpecsimError(f"export {engine}: expected {', '.join(ENGINES)}")
    return engine


def kind_of(drafter: str, draft: str) -> str:
    """Return the kind of a drafter: a composed profile, whose `draft` is a "KIND head", is priced as `separate`."""
    kind, _, rest = draft.partition(" ")
    return kind if drafter == "separate" and rest == HEAD and kind in DRAFTERS else drafter


def server_of(profile: Profile) -> Deployment:
    """Return the server of a profile; a composed one states its experts' split and, in their own precision, models."""
    experts = re.search(r"\(TP\d+, EP(\d+)", profile.description)
    known = profile.provenance if profile.description.startswith(f"{profile.target.name} (TP") else ()
    names = []
    for model, instead in ((profile.target, MODEL), (profile.draft, DRAFT)):
        sources = (each.get("model", "").removeprefix(f"{model.name}: ") for each in known)
        names.append(next((each for each in sources if each.endswith(f"/{model.name}")), instead))
    stages = profile.pipeline_parallel_size
    fp8_cache = any("cache fp8" in each.get("precision", "") for each in profile.provenance[:1])
    return Deployment(names[0], names[1], profile.gpus // stages, stages, int(experts[1]) if experts else 1, fp8_cache)


def exported(candidate: Candidate, drafter: str, engine: str, server: Deployment = UNKNOWN) -> Export:
    """Return a candidate in the settings of an engine, with the scheduler of specsim that reads these.

    `drafter` is its kind, as of `kind_of`.

    Raises
    ------
    Inexpressible
        When the engine has no settings for it.
    """
    policy = policy_of(candidate.keys)
    method = DRAFTERS.get(drafter, (None,) * len(ENGINES))[ENGINES.index(engine)]
    if method is None and policy.most:
        raise Inexpressible(f"{engine} has no settings for drafter={drafter}")
    writers: Mapping[str, Callable[[Policy, str, bool, Deployment], Export]]
    writers = {"vllm": _vllm, "sglang": _sglang, "trtllm": _trtllm}
    return writers[engine](policy, str(method), drafter not in WITHOUT_MODEL, server)


def policy_of(keys: Mapping[str, Any]) -> Policy:
    """Return what the keys of a scheduler say; `Inexpressible` where it is no policy of an engine."""
    part = keys.get("speculation") or {}
    target = str(part.get("_target_", "")).removeprefix(PARTS)
    if keys.get("_target_") != f"{PARTS}composed.Composed" or keys.get("batching") != "engine":
        raise Inexpressible("it batches as no engine does")
    seqs = keys.get(SEQS) or MOST_SEQS
    most = keys.get("num_speculative_tokens", 0)
    ranges, adaptive, steps, ends = [[1, seqs, 0]], None, 0, None
    if target == "vllm_spec.FixedChains":
        ranges = [[1, seqs, most]]
    elif target == "vllm_dynamic.ByBatchSize":
        ranges = _whole(checked_ranges(part["num_speculative_tokens_per_batch_size"]), most, seqs)
    elif target == "trtllm_schedule.DraftLenSchedule":
        ranges, ends = _scheduled(part, most, seqs)
    elif target == "sglang_adaptive.AdaptiveSteps":
        given = part["speculative_adaptive_config"]
        adaptive, steps = DEFAULT if given is None else given, int(keys["speculative_num_steps"])
        slots = checked_slots(dict(adaptive))
        candidates = sorted({each for slot in slots.values() for each in slot.candidate_steps})
        # SGLang refuses other steps; where none are given it begins with the middle ones.
        steps = steps if steps in candidates else candidates[len(candidates) // 2]
        ranges = [[1, seqs, candidates[-1]]]
        if all(len(each.candidate_steps) == 1 for each in slots.values()):
            fixed, adaptive = [[size, size, each.candidate_steps[0]] for size, each in slots.items()], None
            ranges = _whole(fixed, candidates[-1], seqs)
    elif target:
        raise Inexpressible("it decides by more than batch size and acceptance")
    limits = {key: keys[key] for key in (TOKENS, SEQS) if keys.get(key) is not None}
    return Policy(ranges, adaptive, steps, ends, limits)


def _whole(ranges: Ranges, most: int, seqs: int) -> Ranges:
    """Return ranges without gaps, neighbours of one length joined: a gap has the length of the range before it."""
    found: Ranges = []
    for first, _, k in ranges:
        if found and found[-1][2] == min(k, most):
            continue
        if found:
            found[-1][1] = first - 1
        found.append([1 if not found else first, first, min(k, most)])
    found[-1][1] = max(seqs, found[-1][0])
    return found


def _scheduled(part: Mapping[str, Any], most: int, seqs: int) -> tuple[Ranges, tuple[int, float] | None]:
    schedule, concurrency = part["draft_len_schedule"], part["max_concurrency"]
    table = {concurrency: most} if concurrency is not None else {} if schedule is None else checked_schedule(schedule)
    firsts = [1, *(last + 1 for last in table)]
    lengths = [*table.values(), 0] if table else [most]
    window, threshold = (part[key] for key in ENDS)
    ends = (int(window), float(threshold)) if window and threshold is not None else None
    return _whole([[first, first, k] for first, k in zip(firsts, lengths, strict=True)], most, seqs), ends


def _vllm(policy: Policy, method: str, has_model: bool, server: Deployment) -> Export:
    if policy.adaptive is not None:
        raise Inexpressible("vLLM does not choose among candidate steps by acceptance")
    if policy.ends is not None:
        raise Inexpressible("vLLM does not end speculation at a low acceptance rate")
    if server.ep not in (1, server.tp):
        raise Inexpressible(f"vLLM splits experts over all {server.tp} GPUs of a stage or over none, not {server.ep}")
    policy, files = _startable(policy, method, server), {}
    flags = _flags(server.split("tensor-parallel-size", "pipeline-parallel-size"))
    flags += ["--enable-expert-parallel"] if server.ep > 1 else []
    if policy.most:
        config: dict[str, Any] = PARALLEL_EAGLE if method == "p_eagle" else {"method": method}
        config = config | ({"model": server.draft} if has_model else {})
        config["num_speculative_tokens"] = policy.most
        if len(policy.ranges) > 1:
            config["num_speculative_tokens_per_batch_size"] = policy.ranges
        flags.append(f"--speculative-config '{json.dumps(config)}'")
        files["speculative_config.json"] = json.dumps(config) + "\n"
    flags += _flags(server.limits(policy, "max-num-batched-tokens", "max-num-seqs"))
    flags += ["--kv-cache-dtype fp8"] if server.fp8_cache else []
    return Export("vllm", _command(f"vllm serve {server.model}", flags), files, *_by_table(policy))


def _startable(policy: Policy, method: str, server: Deployment) -> Policy:
    """Return a policy with no more sequences than fit into a step of tokens: vLLM refuses to start with more.

    A draft model takes a further place of each sequence, DFlash one of each draft, other drafts of one pass one less.
    Sources: vLLM's `SchedulerConfig.verify_max_model_len`, `VllmConfig._set_max_num_scheduled_tokens` and
    `SpeculativeConfig.max_num_new_slots_for_drafting`.
    """
    known = server.limits(policy, TOKENS, SEQS)
    slots = {"draft_model": 1, "dflash": policy.most, "dspark": policy.most - 1, "p_eagle": policy.most - 1}
    most = max(known.get(TOKENS, 0) // (1 + (slots.get(method, 0) if policy.most else 0)), 1)
    fits = TOKENS not in known or known.get(SEQS, 0) <= most
    return policy if fits else policy._replace(limits={**policy.limits, SEQS: most})


def _sglang(policy: Policy, algorithm: str, has_model: bool, server: Deployment) -> Export:
    if policy.ends is not None:
        raise Inexpressible("SGLang does not end speculation at a low acceptance rate")
    if server.pp > 1 and policy.most:
        raise Inexpressible("SGLang does not speculate in pipeline stages")
    flags = _flags(server.split("tp-size", "pp-size", "ep-size"))
    back, files = _by_table(policy), {}
    if policy.most:
        adaptive = policy.adaptive
        if adaptive is None and len(policy.ranges) > 1:
            adaptive = {str(first): {"candidate_steps": [k]} for first, _, k in policy.ranges}
        if adaptive is not None and algorithm not in ADAPTIVE:
            raise Inexpressible(f"SGLang changes the steps of {', '.join(ADAPTIVE)} alone, not of {algorithm}")
        steps = policy.steps if policy.adaptive is not None else policy.most
        chain = {"num-steps": steps, "eagle-topk": 1, "num-draft-tokens": steps + 1}
        if algorithm in BLOCKS:
            name, beside = BLOCKS[algorithm]
            chain = {name: steps + beside}
        flags.append(f"--speculative-algorithm {algorithm}")
        flags += [f"--speculative-draft-model-path {server.draft}"] if has_model else []
        flags += _flags({f"speculative-{name}": value for name, value in chain.items()})
        if adaptive is not None:
            flags += ["--speculative-adaptive", "--speculative-adaptive-config sglang.json"]
            files["sglang.json"] = json.dumps(adaptive, indent=2) + "\n"
            told = {"speculative_num_steps": max(steps, 1), "speculation.speculative_adaptive_config": dict(adaptive)}
            back = "sglang_adaptive", {**told, **policy.limits}
    flags += _flags(server.limits(policy, "chunked-prefill-size", "max-running-requests"))
    flags += ["--kv-cache-dtype fp8_e4m3"] if server.fp8_cache else []
    command = f"python -m sglang.launch_server --model-path {server.model}"
    return Export("sglang", _command(command, flags), files, *back)


def _trtllm(policy: Policy, kind: str, has_model: bool, server: Deployment) -> Export:
    if policy.adaptive is not None:
        raise Inexpressible("TensorRT-LLM does not choose among candidate steps by acceptance")
    if policy.ranges[0][2] < policy.most:
        raise Inexpressible("TensorRT-LLM's draft_len_schedule is longest for the smallest batches")
    content: dict[str, Any] = dict(server.limits(policy, "max_num_tokens", "max_batch_size"))
    # Simulated prompts are cut to fit; without chunks one above max_num_tokens is refused.
    content["enable_chunked_prefill"] = True
    content |= {"kv_cache_config": {"dtype": "fp8"}} if server.fp8_cache else {}
    back = _by_table(policy)
    if policy.most:
        own: dict[str, Any] = {"decoding_type": kind, "max_draft_len": policy.most}
        # Up to 1.2 this key sets the other one, and is 1 where it is left out; later releases take either.
        own |= {"num_nextn_predict_layers": policy.most} if kind == "MTP" else {}
        own |= {"speculative_model": server.draft} if has_model else {}
        kept = policy.ranges[:-1] if policy.ranges[-1][2] == 0 else policy.ranges
        table = [[last, k] for _, last, k in kept] if len(policy.ranges) > 1 else None
        rule = {"draft_len_schedule": table, **dict(zip(ENDS, policy.ends or (None, None), strict=True))}
        told = {f"speculation.{key}": value for key, value in rule.items()}
        own |= {key: value for key, value in rule.items() if value is not None}
        own |= {"draft_len_schedule": {last: k for last, k in table}} if table else {}
        content = {"speculative_config": own, **content}
        back = "trtllm_schedule", {"num_speculative_tokens": policy.most, **told, **policy.limits}
    split = server.split("tensor_parallel_size", "pipeline_parallel_size", "moe_expert_parallel_size")
    newer = [key for key in AFTER_1_2 if key in content.get("speculative_config", ())]
    note = f"# {', '.join(newer)}: as TensorRT-LLM reads them after 1.2\n" if newer else ""
    text = note + yaml_text({**split, **content}, sort_keys=False)
    return Export("trtllm", f"# trtllm-serve {server.model} --config trtllm.yaml\n{text}", {"trtllm.yaml": text}, *back)


def _by_table(policy: Policy) -> tuple[str, dict[str, Any]]:
    """Return the scheduler of specsim, and its settings, that has this many draft tokens by batch size."""
    if not policy.most:
        return "vllm", dict(policy.limits)
    if len(policy.ranges) == 1:
        return "vllm_spec", {"num_speculative_tokens": policy.most, **policy.limits}
    table = {"speculation.num_speculative_tokens_per_batch_size": policy.ranges}
    return "vllm_dynamic", {"num_speculative_tokens": policy.most, **table, **policy.limits}


def _flags(values: Mapping[str, int]) -> list[str]:
    return [f"--{name} {value}" for name, value in values.items()]


def _command(begin: str, flags: list[str]) -> str:
    return " \\\n  ".join([begin, *flags])
