"""aiconfigurator-core: what it ships, and the seconds that a model's operators take on a GPU with an engine's kernels.

Only an engine's own tables are read. The library can fill gaps from other engines and versions ("low-fidelity fallback
rows"). That is turned off: what was not measured is refused.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from functools import cache
from importlib import metadata
from math import ceil
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from profiler.latency.fit import Floats
from specsim.errors import SpecsimError, nearest, one_line

if TYPE_CHECKING:
    from profiler.compose.models import Model

PACKAGE = "aiconfigurator-core"
LICENCE = "Apache-2.0"
ENGINES = ("vllm", "sglang", "trtllm")
FAMILIES = ("LLAMA", "MOE", "DEEPSEEK")
"""Of the library's families of models, those whose operators are told apart here."""
PRECISIONS = {
    "bf16": ("bfloat16", "bfloat16"),
    "fp8": ("fp8", "fp8"),
    "fp8_block": ("fp8_block", "fp8_block"),
    "mxfp4": ("bfloat16", "w4a16_mxfp4"),
    "mxfp4_mxfp8": ("bfloat16", "w4a8_mxfp4_mxfp8"),
    "nvfp4": ("nvfp4", "nvfp4"),
    "int4": ("int4_wo", "int4_wo"),
}
"""The library's modes of the products and of the experts' products."""
USUAL = {("trtllm", "fp8"): ("fp8_static", "fp8")}
"""Where an engine runs a precision by another mode: TensorRT-LLM's FP8 files state the scales of activations."""
OF_EXPERTS = ("mxfp4", "mxfp4_mxfp8")
BLACKWELL = ("b200_sxm", "b300_sxm", "gb200", "gb300")
HARDWARE = {
    "a100_sxm": "NVIDIA A100-SXM4-80GB",
    "h100_sxm": "NVIDIA H100-SXM5-80GB",
    "h200_sxm": "NVIDIA H200",
    "b200_sxm": "NVIDIA B200",
    "b300_sxm": "NVIDIA B300",
    "gb200": "NVIDIA GB200",
    "gb300": "NVIDIA GB300",
    "l40s": "NVIDIA L40S",
    "rtx_pro_6000_server": "NVIDIA RTX PRO 6000 Blackwell Server Edition",
}
OWN = "its own precision"
MS = 1e-3
ELEMENT_BYTES = 2
CAPTURED = (8, 16, 32, 64, 128, 256, 512)
"""Tokens that a smaller pass could be padded to, as engines pad those in CUDA graphs."""
LONG = 4096
"""Tokens of the request that stands for long ones."""
Value = TypeVar("Value")


class Placement(NamedTuple):
    """GPUs, an engine, and how a model lies on them; `precision` None and `cache` "auto" are the checkpoint's own."""

    gpu: str
    engine: str
    tp: int
    ep: int
    precision: str | None
    cache: str


class NoKernels(SpecsimError):
    """The library has no kernels for what is asked of it."""


def described(place: Placement) -> str:
    """Return a placement in words."""
    return f"{place.tp} x {place.gpu} with {place.engine} in {place.precision or OWN}"


@contextmanager
def _quiet() -> Iterator[None]:
    """Keep the library's own lines off the terminal: what they say is refused or stands in the profile."""
    logger = logging.getLogger("aiconfigurator_core")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        yield
    finally:
        logger.setLevel(before)


@cache
def _sdk() -> Any:
    """Return the library's package; `SpecsimError` where it is not installed."""
    try:
        import aiconfigurator_core as core
        from aiconfigurator_core.sdk import common, config, config_builders, engine, models, perf_database, utils
        from aiconfigurator_core.sdk.backends import factory
    except ImportError as error:
        raise SpecsimError(
            f'specsim profile compose needs {PACKAGE} ({error}): pip install "specsim[compose]"'
        ) from None
    modules: dict[str, Any] = {
        "core": core,
        "common": common,
        "engine": engine,
        "models": models,
        "utils": utils,
        "config": config,
    }
    modules |= {"databases": perf_database, "get_backend": factory.get_backend}
    return type("Sdk", (), {**modules, "model_config": config_builders.build_model_config})


def version() -> str:
    """Return the library's version."""
    return metadata.version(PACKAGE)


def config_files() -> dict[str, Path]:
    """Return the configurations that the library ships, by the names of their models."""
    files = (Path(_sdk().core.__file__).parent / "model_configs").glob("*_config.json")
    names = ((file.name.removesuffix("_config.json").replace("--", "/"), file) for file in sorted(files))
    return {name: file for name, file in names if not name.endswith("_hf_quant")}


def served_points() -> Any:
    """Return the library's table of served points of whole engines: a pandas frame."""
    import pandas as pd

    return pd.read_csv(Path(_sdk().core.__file__).parent / "systems" / "silicon_sample.csv", low_memory=False)


def config_in(folder: str) -> dict[str, Any]:
    """Return the configuration in a folder, with what the library infers of precisions."""
    with _quiet():
        return deepcopy(dict(_sdk().utils.get_model_config_from_model_path(folder)["raw_config"]))


def gpu_names() -> tuple[str, ...]:
    """Return the names of the GPUs that the library has kernels of."""
    slots = _sdk().databases.get_version_slots
    return tuple(name for name in HARDWARE if slots(name, ENGINES[0]))


def check_architecture(model: Model) -> None:
    """Refuse a model whose operators the library does not have, or are not told apart here."""
    families = _sdk().common.ARCHITECTURE_TO_MODEL_FAMILY
    known = [each for each, family in families.items() if family in FAMILIES]
    given = model.config["architectures"][0]
    if given not in known:
        raise SpecsimError(f"{model.source}: {given} is not composed yet; expected one of {', '.join(known)}")


def check_placement(place: Placement) -> None:
    """Refuse a GPU, an engine or a precision that the library does not have."""
    for said, value, known in (
        ("--gpu", place.gpu, gpu_names()),
        ("--engine", place.engine, ENGINES),
        ("--precision", place.precision or "bf16", tuple(PRECISIONS)),
        ("--kv-cache-dtype", place.cache, ("auto", "bf16", "fp8")),
    ):
        if value not in known:
            raise SpecsimError(f"{said} {value}: unknown{nearest(value, known)}; expected one of {', '.join(known)}")


class Operators:
    """A model's operators on a placement, each priced from the engine's measured kernels.

    Seconds are of all layers, all GPUs at once. `memory_bytes` is one GPU's, `nccl_bytes` what collectives keep of it,
    `bytes_per_s` its memory's peak. `unblocked`: products in FP8 blocks are priced with one scale found at run time,
    as vLLM's table of the former holds a host's time to launch (58 us for one token on an H200, 8 in other engines').
    """

    def __init__(self, model: Model, place: Placement) -> None:
        self.model, self.place = model, place
        self._known: dict[tuple[int, bool], Floats] = {}
        sdk = _sdk()
        with _quiet(), TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
            self._built = self._told(lambda: self._build(sdk, folder))
            slot = self._told(lambda: sdk.databases.resolve_query_version(place.gpu, place.engine, "current"))
            self.version = str(slot)
            database = self._told(
                lambda: sdk.databases.get_database(place.gpu, place.engine, self.version, shared_layer=False)
            )
            if database is None:
                raise NoKernels(f"{model.name} on {described(place)}: no kernels")
            self.bytes_per_s = float(database.system_spec["gpu"]["mem_bw"])
            self.memory_bytes = int(database.system_spec["gpu"]["mem_capacity"])
            self.nccl_bytes = int(database.system_spec["misc"]["nccl_mem"].get(min(place.tp, 8), 0))
            text = sdk.engine.build_engine_spec_json(
                self._built,
                model_path=model.name,
                system=place.gpu,
                backend=place.engine,
                backend_version=self.version,
                kv_block_size=None,
                systems_path=None,
                nextn=0,
                database=database,
            )
            spec = self._completed(json.loads(text))
            packed = sdk.core.engine_spec_bincode_from_json(json.dumps(spec))
            self._engine = self._told(lambda: sdk.engine.EngineHandle(packed))
        self._database = database
        self._generation, self._context = spec["generation_ops"], spec["context_ops"]
        self._logits = [i for i, each in enumerate(self._generation) if _name(each).endswith("logits_gemm")]
        self._attention = self._told(self._attention_of_generation), self._told(self._attention_of_context)
        self._rest = self._others(self._generation, 0), self._others(self._context, 1)

    def _build(self, sdk: Any, folder: str) -> Any:
        place = self.place
        precision = place.precision
        if self.model.config.get("quant_algo") == "mxfp4" and place.engine == "trtllm" and place.gpu in BLACKWELL:
            precision = precision or "mxfp4_mxfp8"  # TensorRT-LLM's choice there.
        modes: tuple[str | None, str | None] = PRECISIONS[precision] if precision else (None, None)
        products, experts = USUAL.get((place.engine, precision or ""), modes)
        built = self._in_modes(sdk, folder, products, experts)
        chosen = built.config
        self.unblocked = place.engine == "vllm" and chosen.gemm_quant_mode.name == "fp8_block"
        return self._in_modes(sdk, folder, "fp8", chosen.moe_quant_mode.name) if self.unblocked else built

    def _in_modes(self, sdk: Any, folder: str, products: str | None, experts: str | None) -> Any:
        place = self.place
        config = sdk.model_config(
            place.tp,
            1,
            1,
            place.tp // place.ep,
            place.ep,
            gemm_quant_mode=products,
            moe_quant_mode=experts,
            kvcache_quant_mode="fp8" if self.fp8_cache else "bfloat16",
            fmha_quant_mode=None if self.fp8_cache else "bfloat16",
        )
        return sdk.models.get_model(folder, config, place.engine)

    @property
    def fp8_cache(self) -> bool:
        """Whether the cache holds 8 bits a value."""
        stated = self.model.config.get("kv_cache_quant_algo") if self.place.cache == "auto" else self.place.cache
        return stated == "fp8"

    @property
    def precision(self) -> str:
        """The library's modes of products, experts' products and cache."""
        modes = self._built.config
        experts = f", experts {modes.moe_quant_mode.name}" if self.model.experts[0] else ""
        return f"products {modes.gemm_quant_mode.name}{experts}, cache {modes.kvcache_quant_mode.name}"

    @property
    def layer_bytes(self) -> float:
        """Bytes of all layers' weights, over all GPUs; what a head joins and widens is in them."""
        model, tp = self.model, self.place.tp
        held = (each for each in self._built.context_ops if not _is_vocabulary(each._name))
        hidden = model.whole("hidden_size")
        further = model.joined * hidden * hidden
        if model.wide:
            heads, kv_heads, width = model.heads
            further += hidden * width * (heads + 2 * kv_heads)
        return tp * sum(float(each.get_weights()) for each in held) + 2.0 * further - self._experts_too_many

    @property
    def _experts_too_many(self) -> float:
        """Bytes of the experts that the library takes the first layers to have, less those of their dense products."""
        model = self.model
        dense = int(model.config.get("first_k_dense_replace") or 0)
        if not dense:
            return 0.0
        hidden, wide = model.whole("hidden_size"), model.whole("intermediate_size")
        modes, shared = self._built.config, int(model.config.get("n_shared_experts") or 0)
        stored, product = (float(each.value.memory) for each in (modes.moe_quant_mode, modes.gemm_quant_mode))
        narrow = model.whole("moe_intermediate_size")
        each = stored * model.experts[0] * narrow + product * (shared * narrow - wide)
        return 3.0 * dense * hidden * each

    @property
    def active_bytes(self) -> float:
        """Bytes of the layers' weights that one token is multiplied with."""
        count, sent = self.model.experts
        if not count:
            return self.layer_bytes
        stored = float(self._built.config.moe_quant_mode.value.memory) * self.model.expert_weights
        return self.layer_bytes - stored * (1 - sent / count)

    @property
    def cache_bytes(self) -> int:
        """Bytes that a token holds in the cache, over all GPUs, of a request of `LONG` tokens.

        Layers with a sliding window hold less of a longer request.
        """
        return ceil(self.place.tp * float(self._built.get_kvcache_bytes_per_sequence(LONG)) / LONG)

    @property
    def windowed(self) -> bool:
        """Whether the library knows of layers with a sliding window."""
        held = self._built.get_kvcache_bytes_per_sequence
        return float(held(LONG)) < LONG * float(held(1))

    def activation_bytes(self, tokens: int) -> float:
        """Return the bytes of the activations of a pass of `tokens`, on each GPU; the library's estimate."""
        heads, _, width = self.model.heads
        by_family = _sdk().get_backend(self.place.engine).ACTIVATION_COEFFICIENTS
        by_tp = by_family.get(self._built.model_family, by_family["default"])
        return 2.0 * tokens * heads * width * float(by_tp[min(self.place.tp, 8)])

    def products(self, tokens: int, prompt: bool) -> float:
        """Return the seconds of all but attention and logits, of `tokens`; `prompt`: by the operators of prompts.

        None takes longer than that of a larger captured pass, which an engine could pad to.
        """
        larger = [size for size in CAPTURED if size > tokens]
        each = [self._products(size, prompt) for size in (tokens, *larger)]
        return float(np.min(each, axis=0).sum()) * MS

    def _products(self, tokens: int, prompt: bool) -> Floats:
        """Return the milliseconds of each of them, unpadded."""
        if (tokens, prompt) not in self._known:
            ask = self._engine.evaluate_context_ops if prompt else self._engine.evaluate_generation_ops
            sizes = {"batch_size": 1, "s": tokens} if prompt else {"batch_size": tokens, "s": 2}
            rows = self._told(lambda: ask(self._rest[prompt], x=tokens, **sizes))
            self._known[tokens, prompt] = np.array([row[1] for row in rows])
        return self._known[tokens, prompt]

    def logits(self, rows: int) -> float:
        """Return the seconds of the logits of `rows` tokens."""
        return self._sum(self._engine.evaluate_generation_ops, self._logits, batch_size=rows, s=2, x=rows)

    def served(self, clients: int, isl: int, osl: int) -> tuple[float, float]:
        """Return the library's own estimate of a closed loop: seconds to the first token and per further one.

        A pass of prompts and decodes holds one prompt, the library's default.
        """
        sdk = _sdk()
        load = sdk.config.RuntimeConfig(batch_size=clients, isl=isl, osl=osl)
        backend = sdk.get_backend(self.place.engine)
        found = self._told(lambda: backend.run_agg(self._built, self._database, load, ctx_tokens=isl))
        row = found.get_summary_df().iloc[0]
        return float(row["ttft"]) * MS, float(row["tpot"]) * MS

    def decode(self, requests: int, context: int) -> float:
        """Return the seconds of attention of one token a request behind `context` cached ones."""
        those = self._attention[0]
        return self._sum(self._engine.evaluate_generation_ops, those, batch_size=requests, s=context + 1, x=requests)

    def chunk(self, queries: int, behind: int) -> float:
        """Return the seconds of attention of a prompt's chunk of `queries` tokens behind `behind` cached ones."""
        those = self._attention[1]
        return self._sum(self._engine.evaluate_context_ops, those, batch_size=1, s=queries, prefix=behind, x=queries)

    @property
    def kinds(self) -> list[str]:
        """The kinds of the operators, by the library's names."""
        return sorted({kind for each in (*self._generation, *self._context) for kind in each})

    def formulas(self) -> list[str]:
        """Return the operators that the library prices by a formula, not from a measurement."""
        rows = self._engine.evaluate_generation_ops(range(len(self._generation)), batch_size=8, s=LONG, x=8)
        found = (name.removeprefix("generation_") for name, ms, _, source in rows if source != "silicon" and ms > 0)
        return list(dict.fromkeys(found))

    def _sum(self, ask: Callable[..., Any], those: Sequence[int], **sizes: int) -> float:
        return self._told(lambda: float(sum(row[1] for row in ask(those, **sizes)))) * MS

    def _told(self, ask: Callable[[], Value]) -> Value:
        """Return what the library answers; its refusals become one line."""
        try:
            return ask()
        except Exception as error:
            said = one_line(str(error)).split(" at /")[0].split(", which")[0][:200]
            raise NoKernels(f"{self.model.name} on {described(self.place)}: no kernels ({said})") from None

    def _attention_of_generation(self) -> list[int]:
        def ask(i: int, requests: int, context: int) -> float:
            return float(self._engine.evaluate_generation_ops([i], batch_size=requests, s=context, x=8)[0][1])

        return [i for i in range(len(self._generation)) if not ask(i, 1, 2) == ask(i, 1, LONG) == ask(i, 8, 2)]

    def _attention_of_context(self) -> list[int]:
        def ask(i: int, behind: int) -> float:
            return float(self._engine.evaluate_context_ops([i], batch_size=1, s=64, prefix=behind, x=64)[0][1])

        return [i for i in range(len(self._context)) if ask(i, 0) != ask(i, LONG)]

    def _others(self, operators: Sequence[Any], phase: int) -> list[int]:
        """Return the rest. TensorRT-LLM fuses its norms into the all-reduces before them."""
        apart = {i for i, each in enumerate(operators) if _name(each).endswith("logits_gemm")}
        if self.place.engine == "trtllm" and self.place.tp > 1:
            apart |= {i for i, each in enumerate(operators) if "_add_norm_" in _name(each)}
        return [i for i in range(len(operators)) if i not in apart and i not in self._attention[phase]]

    def _completed(self, spec: dict[str, Any]) -> dict[str, Any]:
        """Return the operators with those that the library leaves out.

        Of decodes: normalising queries and keys, rotating them, writing the cache, each an element-wise kernel of its
        own. The library has these in prompts. There it takes 26 us for the norm, which is priced as in decodes instead.
        TensorRT-LLM rotates and writes within the attention that was measured.
        Of a head: a 16-bit projection of the joined states, and its wider first product.
        """
        model, hidden = self.model, self.model.whole("hidden_size")
        normed = any(each.get("use_qk_norm") for operator in spec["context_ops"] for each in operator.values())
        for phase, kind in (("generation", "GenerationAttention"), ("context", "ContextAttention")):
            operators = spec[f"{phase}_ops"]
            for attention in [each[kind] for each in operators if kind in each]:
                row = 2 * ELEMENT_BYTES * attention["head_size"]
                heads, cached = row * attention["n"], row * attention["n_kv"]
                fused = phase == "context" or self.place.engine == "trtllm"
                moved = {} if fused else {"rope": heads + cached, "cache_write": 2 * cached}
                for name, each in (moved | ({"qk_norm": heads + cached} if normed else {})).items():
                    sizes = {"bytes_per_token": float(each), "scale_factor": attention["scale_factor"]}
                    one = {"name": f"{phase}_{name}", "scale_num_tokens": 1, "seq_split": 1, **sizes}
                    operators.append({"Elementwise": one})
                if phase == "context":
                    attention["use_qk_norm"] = False
            for operator in operators if model.wide else ():
                if _name(operator) == f"{phase}_qkv_gemm":
                    operator["Gemm"]["k"] *= 2
            if model.joined:
                joint = {"name": f"{phase}_joint_gemm", "n": hidden, "k": model.joined * hidden}
                operators.append({"Gemm": _logits(spec) | joint})
        return spec


def _logits(spec: dict[str, Any]) -> dict[str, Any]:
    """Return the product of the logits."""
    found: dict[str, Any] = next(each["Gemm"] for each in spec["generation_ops"] if _name(each).endswith("logits_gemm"))
    return found


def _name(operator: dict[str, Any]) -> str:
    return str(next(iter(operator.values()))["name"])


def _is_vocabulary(name: str) -> bool:
    return name.endswith(("_embedding", "_logits_gemm"))
