"""A profile composed of the library's kernels: `compose_profile`."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from profiler.compose.fit import composed, fitted_forms
from profiler.compose.library import (
    ENGINES,
    HARDWARE,
    LICENCE,
    OF_EXPERTS,
    OWN,
    PACKAGE,
    PRECISIONS,
    ComposedPlacement,
    NoKernels,
    check_placement,
    gpu_names,
    version,
)
from profiler.compose.memory import GIB, left_bytes
from profiler.compose.models import Model, head_config, head_of, model_of, of_own, of_v4
from profiler.compose.operators import LONG, Operators
from profiler.compose.passes import Alike, ComposedPass
from specsim.acceptance.loading import ANY, same_model
from specsim.errors import SpecsimError
from specsim.files.yaml_file import peek_yaml, read_yaml, shipped
from specsim.latency.drafter import DECODER_HEADS, DecoderHead, drafter_from_mapping
from specsim.latency.model import MEMORY_SHARE, PROFILE_VERSION
from specsim.latency.profile import profile_from_mapping

ENGINE_FILES = {"vllm": "vllm_0_18", "sglang": "sglang_0_5", "trtllm": "trtllm_1_2"}
"""The engine file that goes with the kernels of each engine: the newest that was held to measurements (engines.md)."""
OLDER = {("trtllm", "1.0"): "trtllm_1_0", ("vllm", "0.14"): "vllm_0_15"}
"""Engine files of older kernels, those of A100s, by the engine and the beginning of its version."""
ENGINE_NAMES = {"vllm": "vLLM", "sglang": "SGLang", "trtllm": "TRT-LLM"}
MTP_MODULES = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
"""Fields of a configuration that count its MTP modules."""
OF_SPARSE = ("mtp", "dspark")
"""Heads that sparse attention has: those of its checkpoints."""
SLOWER = 1.5
"""Times another engine's decode of the same model, GPU and precision from which it is said."""
NEAR = {("Qwen3-8B", "Qwen3-0.6B"): "qwen32b_05b"}
"""Of pairs that shipped profiles have and no acceptance is of, that of a pair near them."""
LEAST_CACHED = 1024
"""Tokens of cache that a request, and a grid of passes, need at least."""
OTHER_VOCABULARY = 0.01
"""Share by which a draft model's vocabulary may differ from its target's: they are padded to round numbers."""


def compose_profile(
    target: str,
    *,
    gpu: str,
    tp: int = 1,
    ep: int = 1,
    pp: int = 1,
    draft: str | None = None,
    drafter: str | None = None,
    precision: str | None = None,
    kv_cache_dtype: str = "auto",
    engine: str = "vllm",
    name: str | None = None,
) -> dict[str, Any]:
    """Return the keys of a profile, in the order of its file, composed of an engine's measured kernels; no GPU needed.

    Parameters
    ----------
    target, draft : names of models, or paths of their ``config.json``; `draft` also of a head on the target.
    drafter : kind of a head on the target instead of a draft model, as in ``drafter=``; without either an MTP module
        where the target's configuration has one, else an EAGLE-3 head.
    gpu, tp, ep, pp : the library's name of the GPU, and the tensor, expert and pipeline parallelism: `tp` x `pp` GPUs.
    precision : of the weights, the configuration's own where None. kv_cache_dtype : "auto", "bf16" or "fp8".
    engine : whose kernels: "vllm", "sglang" or "trtllm".

    Raises
    ------
    SpecsimError
        One line: something unknown, a model that does not fit, kernels without measurements.
    """
    place, model = ComposedPlacement(gpu, engine, tp, ep, precision, kv_cache_dtype, pp), model_of(target)
    check_placement(place)
    _check_split(model, place)
    second, head = _second(model, draft, drafter)
    those = _operators(model, place), _operators(second, _placed(second, head, place))
    usable, alone = _usable_bytes(those)
    file = _engine_file(those[0])
    overhead_s = float(read_yaml(shipped("conf") / "engine" / f"{file}.yaml")["overhead_s"])
    fits = [fitted_forms(each, overhead_s, _most_context(those)) for each in those]
    held_out = fits[0][1]
    sections = [
        _section(each, {**more, "overhead_s": overhead_s, **forms})
        for each, more, (forms, _) in zip(those, (_target(model), _drafting(head, those[1])), fits, strict=True)
    ]
    suggested, borrowed = _suggested(model, second, head, file)
    mapping = {
        "name": name or f"{model.name} {second.name} {place.gpus} x {gpu}".lower().replace(" ", "_"),
        "profile_version": PROFILE_VERSION,
        "description": f"{model.name}{_laid_out(place)} + {second.name} on {place.gpus} x {HARDWARE[gpu]}",
        "suggests": suggested,
        **_hardware(those[0], usable, alone),
        "form": min(held_out, key=lambda form: held_out[form]),
        "target": sections[0],
        "draft": sections[1],
        "provenance": [_provenance(each) for each in those],
        "assumptions": [*_assumptions(those, file), *borrowed],
    }
    profile_from_mapping(mapping, str(mapping["name"]))
    return mapping


def slower_note(target: str, place: ComposedPlacement) -> str | None:
    """Return a line where a pass of a mixture of experts takes `SLOWER` times that of other kernels; None if not."""
    model = model_of(target)
    if not model.experts[0]:
        return None
    own, others = Operators(model, place), {}
    ways = {f"--engine {engine}": place._replace(engine=engine) for engine in ENGINES if engine != place.engine}
    blocks = {"--precision fp8_block": place._replace(precision="fp8_block")} if place.precision == "fp8" else {}
    for way, each in (blocks | ways).items():
        with suppress(NoKernels):
            others[way] = Operators(model, each)
    bits = {way: re.sub("_static|_block", "", each.precision) for way, each in {"": own, **others}.items()}
    for said, one in {
        "a decode of 8 requests": Alike(8, 1024, 1),
        "a decode of 64 requests": Alike(64, 1024, 1),
        "the end of a prompt of 32,768 tokens, 8,192 of them,": Alike(1, 24576, 8192),
    }.items():
        work = ComposedPass("", (one,))
        mine, *theirs = (1e3 * composed(each, work) for each in (own, *others.values()))
        found = {
            way: ms for way, ms in zip(others, theirs, strict=True) if bits[way] == bits[""] and mine > SLOWER * ms
        }
        if found:
            return (
                f"{said} takes {mine:.1f} ms, "
                + " and ".join(f"{ms:.1f} ms with {way}" for way, ms in found.items())
                + ": these are of the library's tables, and no measurement backs the difference"
            )
    return None


def _operators(model: Model, place: ComposedPlacement) -> Operators:
    try:
        return Operators(model, place)
    except NoKernels as error:
        raise SpecsimError(f"{error}; {_instead(model, place)}") from None


def _engine_file(operators: Operators) -> str:
    name, version = operators.place.engine, operators.version
    older = (file for (of, begins), file in OLDER.items() if of == name and version.startswith(begins))
    return next(older, ENGINE_FILES[name])


def _hardware(target: Operators, usable: int, alone: int | None) -> dict[str, Any]:
    place = target.place
    stages = {"pipeline_parallel_size": place.pp} if place.pp > 1 else {}
    return {
        "hardware": HARDWARE[place.gpu],
        "gpus": place.gpus,
        **stages,
        "memory_bytes": place.gpus * target.memory_bytes,
        "usable_kv_bytes": usable,
        **({} if alone is None else {"usable_kv_bytes_alone": alone}),
    }


def _target(model: Model) -> dict[str, Any]:
    sizes = {key: model.whole(key) for key in ("num_hidden_layers", "hidden_size", "vocab_size")}
    return {"max_model_len": model.whole("max_position_embeddings"), **sizes}


def _drafting(head: DecoderHead | None, operators: Operators) -> dict[str, Any]:
    """Return how a head drafts: its depth or its block, and what it pays once a step or for a token that it is fed."""
    if head is None:
        return {}
    if not head.one_pass:
        once = {"step_s": operators.joined_s} if operators.model.joined_once else {}
        return {"max_depth": head.depth, **once}
    made = head.queries and not operators.model.sparse
    return {"block_tokens": head.depth, **({"block_queries": head.queries, "fed_s": operators.fed_s} if made else {})}


def _section(operators: Operators, further: dict[str, Any]) -> dict[str, Any]:
    """Return the keys of a model's section; `further` stand behind its sizes."""
    return {
        "name": operators.model.name,
        "kv_bytes_per_token": operators.cache_bytes,
        "weights_bytes": _weights_bytes(operators),
        "nonembedding_bytes": round(operators.active_bytes),
        **further,
    }


def _instead(model: Model, place: ComposedPlacement) -> str:
    """Return the nearest that has kernels: another split of experts, other engines and precisions, or other GPUs."""
    experts, tp = model.experts[0], place.tp
    splits = [n for n in range(1, tp + 1) if experts and experts % n == tp % n == 0 and n != place.ep]
    splits = [n for n in splits if _has_kernels(model, place._replace(ep=n))]
    if splits:
        return f"{place.gpu} has them with --ep {', '.join(map(str, splits))}"
    offers = []
    for engine in ENGINES:
        known = [each for each in PRECISIONS if model.experts[0] or each not in OF_EXPERTS]
        places = {each or OWN: place._replace(engine=engine, precision=each) for each in (None, *known)}
        found = [precision for precision, each in places.items() if _has_kernels(model, each)]
        offers += [f"{engine} in {', '.join(found)}"] if found else []
    if offers:
        return f"{place.gpu} has those of {'; '.join(offers)}"
    gpus = [gpu for gpu in gpu_names() if _has_kernels(model, place._replace(gpu=gpu))]
    return f"{place.engine} has them on {', '.join(gpus)}" if gpus else "no other engine, precision or GPU has them"


def _has_kernels(model: Model, place: ComposedPlacement) -> bool:
    try:
        Operators(model, place)
    except NoKernels:
        return False
    return True


def _laid_out(place: ComposedPlacement) -> str:
    more = "".join(f", {name}{n}" for name, n in (("EP", place.ep), ("PP", place.pp)) if n > 1)
    return (f" in {place.precision}" if place.precision else "") + f" (TP{place.tp}{more})"


def _second(model: Model, draft: str | None, drafter: str | None) -> tuple[Model, DecoderHead | None]:
    """Return the model that drafts, and the kind of head that it is."""
    own = None
    if draft is not None:
        if drafter is not None:
            raise SpecsimError("--draft and --drafter are both given; expected one of them")
        if (found := head_config(draft, model)) is None:
            return _of_one_vocabulary(model, model_of(draft)), None
        drafter, own = found
    kind = drafter if drafter is not None else ("mtp" if model.config.get("num_nextn_predict_layers") else "eagle3")
    if kind not in DECODER_HEADS:
        raise SpecsimError(f"--drafter {kind}: is no head; expected one of {', '.join(DECODER_HEADS)}")
    if kind == "mtp" and not any(model.config.get(key) for key in MTP_MODULES):
        others = ", ".join(each for each in DECODER_HEADS if each != "mtp")
        raise SpecsimError(
            f"--drafter mtp: the configuration of {model.name} has no MTP module; expected one of {others}"
        )
    head = drafter_from_mapping(_drafter(kind), f"drafter={kind}")
    assert isinstance(head, DecoderHead)
    if model.sparse and kind not in OF_SPARSE:
        raise SpecsimError(f"--drafter {kind}: is not composed on {model.name}; expected one of {', '.join(OF_SPARSE)}")
    head = of_v4(model, head) if model.sparse and kind == "dspark" else head
    head = head if own is None else of_own(head, own)
    return head_of(model, head, own), head


def _of_one_vocabulary(model: Model, second: Model) -> Model:
    """Return the draft model; refuse one of another vocabulary, whose tokens the target cannot verify."""
    size, own = (each.whole("vocab_size") for each in (model, second))
    if abs(own - size) > OTHER_VOCABULARY * size:
        raise SpecsimError(
            f"--draft {second.name}: a vocabulary of {own:,} tokens, and {model.name} has {size:,}; "
            "expected a model of the same vocabulary"
        )
    return second


def _placed(second: Model, head: DecoderHead | None, place: ComposedPlacement) -> ComposedPlacement:
    """Return where the draft runs: as a stage of its target where its heads can be split so, else on one GPU.

    An MTP module has its target's precision. NVFP4 checkpoints leave it in 16 bits (vLLM's pull request 25987), and the
    library has no experts of DeepSeek in these: its own precision is the nearest. Other drafters have their own.
    """
    heads, kv_heads, _ = second.heads
    splits = heads % place.tp == 0 and max(kv_heads, place.tp) % min(kv_heads, place.tp) == 0
    return place._replace(
        tp=place.tp if splits else 1,
        pp=1,
        ep=place.ep if second.experts[0] else 1,
        precision=place.precision if head and head.kind == "mtp" and place.precision != "nvfp4" else None,
    )


def _check_split(model: Model, place: ComposedPlacement) -> None:
    if min(place.tp, place.ep, place.pp) < 1:
        raise SpecsimError(f"--tp {place.tp} --ep {place.ep} --pp {place.pp}: expected whole numbers of at least 1")
    layers = model.whole("num_hidden_layers")
    if place.pp > layers:
        raise SpecsimError(f"--pp {place.pp}: more stages than the {layers} layers of {model.name}")
    heads, kv_heads, _ = model.heads
    if heads % place.tp or (not model.latent and max(kv_heads, place.tp) % min(kv_heads, place.tp)):
        splits = [n for n in (1, 2, 4, 8, 16, 32) if heads % n == 0 and max(kv_heads, n) % min(kv_heads, n) == 0]
        raise SpecsimError(
            f"--tp {place.tp}: does not divide the {heads} heads and {kv_heads} KV heads of {model.name}; "
            f"expected one of {', '.join(map(str, splits))}"
        )
    experts = model.experts[0]
    if place.precision in OF_EXPERTS and not experts:
        raise SpecsimError(f"--precision {place.precision}: is of experts alone, and {model.name} has none")
    if place.ep > 1 and (not experts or experts % place.ep or place.tp % place.ep):
        said = f"its {experts} experts and --tp {place.tp}" if experts else "a dense model"
        raise SpecsimError(f"--ep {place.ep}: does not divide {said} ({model.name})")
    if model.width % (place.tp // place.ep):
        raise SpecsimError(f"--tp {place.tp}: does not divide the intermediate size {model.width} of {model.name}")


def _weights_bytes(operators: Operators) -> int:
    """Return the bytes of all weights; a head shares the target's embedding, and its vocabulary where it has no own."""
    model = operators.model
    rows = model.vocabularies * model.whole("vocab_size")
    markov = 2 * model.markov_rank * model.whole("vocab_size")
    return round(operators.layer_bytes + 2 * (rows * model.whole("hidden_size") + markov))


def _most_context(those: tuple[Operators, Operators]) -> int:
    """Return the cached tokens of the largest pass that forms are fitted to: as many as any engine has room for."""
    room = int(MEMORY_SHARE * those[0].place.gpus * those[0].memory_bytes) - sum(map(_weights_bytes, those))
    return room // sum(each.cache_bytes for each in those)


def _usable_bytes(those: tuple[Operators, Operators]) -> tuple[int, int | None]:
    """Return the bytes left for caches, over all GPUs; refuse models that leave too little.

    Where the draft model is on some GPUs alone, or more than its weights is kept for it, also return those that are
    left without it.
    """
    target, second = those
    place, head = target.place, second.model.joined > 0
    loaded = [(_weights_bytes(one) + one.padding_bytes) / one.place.gpus for one in those]
    left, token = left_bytes(target, sum(loaded), head), sum(one.cache_bytes / one.place.gpus for one in those)
    lacking, where = LEAST_CACHED * token - left, ""
    usable, alone = int(place.gpus * left), None
    if second.place.gpus < place.gpus:  # The cache is what fits on a GPU that holds its share of both.
        usable, where = int(left / token * sum(one.cache_bytes for one in those)), " on the draft's GPU"
    if second.place.gpus < place.gpus or place.engine == "sglang":
        alone = int(place.gpus * left_bytes(target, loaded[0], None))
    if lacking > 0:
        names = target.model.name if second.model.joined else f"{target.model.name} with {second.model.name}"
        raise SpecsimError(
            f"{names} does not fit on {place.gpus} x {place.gpu}: weights of {sum(loaded) / GIB:.1f} GiB a GPU and "
            f"what {ENGINE_NAMES[place.engine]} keeps beside them leave {lacking / GIB:.1f} GiB too little for a cache "
            f"of {LEAST_CACHED:,} tokens{where}"
        )
    return usable, alone


def _suggested(model: Model, second: Model, head: DecoderHead | None, engine: str) -> tuple[dict[str, str], list[str]]:
    """Return what goes with the profile, and a line where its acceptance is not of this pair.

    That is an engine, and the shipped acceptance of this pair, of one near it or of the head's kind.
    """
    files = sorted((shipped("conf") / "acceptance").glob("*.yaml"))
    pairs = [(peek_yaml(path).get("pair", {}), path.stem) for path in files]
    of_draft = [(each["target"], stem) for each, stem in pairs if each.get("draft") == second.name]
    found = [stem for target, stem in of_draft if target != ANY and same_model(target, model.name)]
    if len(found) == 1:
        return {"engine": engine, "acceptance": found[0]}, []
    near = [name for (target, draft), name in NEAR.items() if draft == second.name and same_model(target, model.name)]
    of_family = [each for each in of_draft if head is not None and _family(each[0]) == _family(model.name)]
    alike = [(_apart(target, model.name), stem) for target, stem in of_family]
    if near or alike:
        said = "no acceptance of this pair ships: that of a pair near it is suggested"
        return {"engine": engine, "acceptance": near[0] if near else min(alike)[1]}, [said]
    if head is None:
        return {"engine": engine}, []
    said = "no acceptance of this pair ships: that of a head of this kind on another target is suggested"
    return {"engine": engine, **_drafter(head.kind)["suggests"]}, [said]


def _family(model: str) -> str:
    """Return the part of a model's name that its relatives share: DeepSeek, Llama, Qwen3."""
    return model.partition("-")[0].casefold()


def _apart(one: str, other: str) -> float:
    """Return how far the numbers of parameters that two names state are apart, as a logarithm."""
    stated = (re.search(r"(\d+(?:\.\d+)?)B", name, re.IGNORECASE) for name in (one, other))
    first, second = (float(each[1]) if each else 1.0 for each in stated)
    return abs(math.log(first / second))


def _drafter(kind: str) -> Mapping[str, Any]:
    return read_yaml(shipped("conf") / "drafter" / f"{kind}.yaml")


def _provenance(operators: Operators) -> dict[str, str]:
    place, lender = operators.place, operators.lender
    kernels = f"{ENGINE_NAMES[place.engine]} {operators.version}"
    if lender is not None:
        kernels += f" ({operators.lent} of {ENGINE_NAMES[lender.place.engine]} {lender.version})"
    most = operators.measured_context
    longer = operators.model.whole("max_position_embeddings") > most
    contexts = {"contexts": f"decodes measured up to {most:,} a request, extrapolated beyond"} if longer else {}
    return {
        "model": f"{operators.model.name}: {operators.model.source}",
        "origin": f"PyPI {PACKAGE} {version()} (NVIDIA)",
        "licence": LICENCE,
        "versions": f"{kernels} on {place.gpu}",
        "tables": ", ".join(operators.kinds),
        **contexts,
        "precision": operators.precision,
    }


def _assumptions(those: tuple[Operators, Operators], file: str) -> list[str]:
    target, draft = those
    lines = [
        "GPU time is the sum of measured kernels: CUDA graphs, no gaps between kernels, overlaps as the library says",
        f"priced by the library's formulas, not measured: {target.formulas()}",
        "kernels of this engine and version alone; the library's low-fidelity fallback rows are turned off",
        "between measured sizes and beyond them the library interpolates; no product takes longer than a padded pass's",
        "tree attention, not measured: max(reading the cache once, all pairs at a 4,096-token prompt's rate)",
        f"overhead_s: of engine={file}, which replaces it",
        "memory: what the engine leaves beside weights, by its own rule and logged constants (docs/composing.md)",
        f"the draft runs on {draft.place.tp} of the target's GPUs"
        + (", which hold most" if draft.place.gpus < target.place.gpus else ""),
    ]
    if target.lender is not None:
        lines.append(
            f"{target.lent}: from another engine's table, which has the kernel; this one's takes longer or has none"
        )
    if target.place.pp > 1:
        lines.append(
            f"pipeline of {target.place.pp} stages that are alike: requests split into as many micro-batches, a step "
            "takes one of them through all stages; the draft runs on the last, for each micro-batch in its turn"
        )
    if target.unblocked:
        lines.append(
            "products in FP8 blocks are priced as FP8 with one scale: vLLM's table of blocks is of its launches"
        )
    if target.model.experts[0]:
        lines.append(
            f"tokens fall on experts by the library's power law ({target.exponent}); "
            "nonembedding_bytes are of a token's experts"
        )
    if target.model.latent:
        lines.append(
            "latent attention: further queries of a verification pay their projections, measured at 128 cached tokens"
        )
    if target.model.sparse:
        lines.append(
            "sparse attention: a verification reads each context once, its further queries cost what decodes of the "
            "entries do that CSA chooses; a layer with a window alone is priced as HCA"
        )
    if target.windowed:
        lines.append(f"cache bytes a token: of a request of {LONG:,} tokens, sliding windows counted")
    elif target.model.config.get("sliding_window") and target.model.config.get("use_sliding_window", True):
        lines.append("sliding windows are left out: the library takes every layer of this model to read all")
    if draft.model.joined and not draft.model.experts[0]:
        lines.append("the head's layers are dense, of the target's hidden_size and intermediate_size, in 16 bits")
    return lines
