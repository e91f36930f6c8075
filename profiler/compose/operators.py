"""The seconds that a model's operators take on a GPU with an engine's kernels, of aiconfigurator-core's tables.

Only an engine's own tables are read, but for operators whose kernel is in another's (`LENT`). The library can fill gaps
from other engines and versions ("low-fidelity fallback rows"). The fallback is off: an unmeasured kernel is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from math import ceil, prod
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from profiler.compose.completed import BLACKWELL, JOINT, MARKOV, SAID, completed, lender_of, lending, name_of
from profiler.compose.library import PRECISIONS, ComposedPlacement, NoKernels, described, quiet, sdk
from profiler.latency.fit import Floats
from specsim.errors import one_line

if TYPE_CHECKING:
    from profiler.compose.models import Model

USUAL = {("trtllm", "fp8"): ("fp8_static", "fp8")}
"""Where an engine runs a precision by another mode: TensorRT-LLM's FP8 files state the scales of activations."""
POWER_LAW, BALANCED = r"power_law_([\d.]+)", "power_law_1.01"
"""How tokens fall on experts if the router has a bias that balances them: as the library takes it for DeepSeek-V3."""
FLASHINFER = "w4a8_mxfp4_mxfp8_trtllm"
"""SGLang's mode of DeepSeek-V4's experts on Blackwell (`--moe-runner-backend flashinfer_mxfp4`)."""
MEASURED, SPARSE_MEASURED = 131072, {"sglang": 1048576, "vllm": 65536, "trtllm": 65536}
"""Cached tokens of a request at which the tables of decodes end, on every GPU; of DeepSeek-V4's by engine."""
MS = 1e-3
CAPTURED = (8, 16, 32, 64, 128, 256, 512)
"""Tokens that a smaller pass could be padded to, as engines pad those in CUDA graphs."""
LONG = 4096
"""Tokens of the request that stands for long ones."""
MANY = 64
"""Tokens of a step that stands for those of a batch."""
Value = TypeVar("Value")


class Operators:
    """A model's operators on a placement, each priced from the engine's measured kernels.

    Seconds are of all layers, all GPUs at once. `memory_bytes` is one GPU's, of the catalogue, `bytes_per_s` its peak.
    `lender` has the operators of another engine's table (`lent`), None of one that `lends` itself. `unblocked`:
    products in FP8 blocks are priced with one scale found at run time, as vLLM's table of the former holds a host's
    time to launch (58 us for one token on an H200, 8 in other engines').
    """

    def __init__(self, model: Model, place: ComposedPlacement, lends: bool = False) -> None:
        self.model, self.place = model, place
        self._known: dict[tuple[int, bool], Floats] = {}
        databases = sdk().databases
        with quiet(), TemporaryDirectory() as folder:
            (Path(folder) / "config.json").write_text(json.dumps(model.config), encoding="utf-8")
            self._built = self._told(lambda: self._build(folder))
            slot = self._told(lambda: databases.resolve_query_version(place.gpu, place.engine, "current"))
            self.version = str(slot)
            self._database = self._told(
                lambda: databases.get_database(place.gpu, place.engine, self.version, shared_layer=False)
            )
            if self._database is None:
                raise NoKernels(f"{model.name} on {described(place)}: no kernels")
            spec = self._spec()
        system = self._database.system_spec
        self.bytes_per_s = float(system["gpu"]["mem_bw"])
        self.memory_bytes = int(system["gpu"]["mem_capacity"])
        self._listed = spec["generation_ops"], spec["context_ops"]
        self._logits = [i for i, each in enumerate(self._listed[0]) if name_of(each).endswith("logits_gemm")]
        self._lent = [[] if lends or model.sparse else self._lent_of(each) for each in self._listed]
        self._norms = [self._fused(phase) for phase in (0, 1)]
        self._attention = self._told(self._attention_of_generation), self._told(self._attention_of_context)
        self._rest = [self._others(phase) for phase in (0, 1)]
        self.lender = self._lender()
        self._of_lender = [self._named(phase) for phase in (0, 1)]

    def _spec(self) -> dict[str, Any]:
        place = self.place
        text = sdk().engine.build_engine_spec_json(
            self._built,
            model_path=self.model.name,
            system=place.gpu,
            backend=place.engine,
            backend_version=self.version,
            kv_block_size=None,
            systems_path=None,
            nextn=0,
            database=self._database,
        )
        if self.model.config.get("use_routing_bias"):
            text = re.sub(POWER_LAW, BALANCED, text)
        spec = completed(json.loads(text), self.model, place)
        packed = sdk().core.engine_spec_bincode_from_json(json.dumps(spec))
        self._engine = self._told(lambda: sdk().engine.EngineHandle(packed))
        return spec

    def _lent_of(self, operators: Sequence[Any]) -> list[int]:
        dense = not self.model.experts[0]
        return [i for i, each in enumerate(operators) if lender_of(each, self.place, dense) is not None]

    def _fused(self, phase: int) -> list[int]:
        """Return the norms that run within the all-reduces before them: TensorRT-LLM's own, or those that it lends."""
        operators = self._listed[phase]
        lent = any("CustomAllReduce" in operators[i] for i in self._lent[phase])
        fuses = lent or (self.place.engine == "trtllm" and self.place.tp > 1)
        return [i for i, each in enumerate(operators) if fuses and "_add_norm_" in name_of(each)]

    def _lender(self) -> Operators | None:
        """Return the same model with the kernels of the engine that lends, if one does."""
        if not self._lent[0]:
            return None
        first = self._listed[0][self._lent[0][0]]
        engine = lender_of(first, self.place, not self.model.experts[0])
        return Operators(self.model, lending(self.place, next(iter(first)), str(engine)), lends=True)

    def _named(self, phase: int) -> list[int]:
        """Return where the lender has the operators that it prices."""
        if self.lender is None:
            return []
        own, lenders = (each._listed[phase] for each in (self, self.lender))
        places = {name_of(each): i for i, each in enumerate(lenders)}
        return [places[name_of(own[i])] for i in self._lent[phase]]

    def _build(self, folder: str) -> Any:
        place = self.place
        precision = place.precision
        if self.model.config.get("quant_algo") == "mxfp4" and place.engine == "trtllm" and place.gpu in BLACKWELL:
            precision = precision or "mxfp4_mxfp8"  # TensorRT-LLM's choice there.
        modes: tuple[str | None, str | None] = PRECISIONS[precision] if precision else (None, None)
        products, experts = USUAL.get((place.engine, precision or ""), modes)
        built = self._in_modes(folder, products, experts)
        if self.model.sparse and place.engine == "sglang" and built.config.moe_quant_mode.name == "w4a8_mxfp4_mxfp8":
            built = self._in_modes(folder, built.config.gemm_quant_mode.name, FLASHINFER)
        chosen = built.config
        self.unblocked = place.engine == "vllm" and chosen.gemm_quant_mode.name == "fp8_block"
        return self._in_modes(folder, "fp8", chosen.moe_quant_mode.name) if self.unblocked else built

    def _in_modes(self, folder: str, products: str | None, experts: str | None) -> Any:
        place = self.place
        config = sdk().model_config(
            place.tp,
            place.pp,
            1,
            place.tp // place.ep,
            place.ep,
            gemm_quant_mode=products,
            moe_quant_mode=experts,
            kvcache_quant_mode="fp8" if self.fp8_cache else "bfloat16",
            fmha_quant_mode=None if self.fp8_cache else "bfloat16",
        )
        return sdk().models.get_model(folder, config, place.engine)

    @property
    def lent(self) -> str:
        """The operators that another engine's table prices; "" if there are none."""
        kinds = {next(iter(self._listed[0][i])) for i in self._lent[0]}
        return ", ".join(sorted({SAID[kind] for kind in kinds}))

    @property
    def exponent(self) -> str:
        """The exponent of the power law by which tokens are taken to fall on experts; "" of a dense model."""
        found = re.search(POWER_LAW, json.dumps(self._listed[0]))
        return "" if found is None else found[1]

    @property
    def fp8_cache(self) -> bool:
        """Whether the cache holds 8 bits a value."""
        own = "fp8" if self.model.sparse else self.model.config.get("kv_cache_quant_algo")
        return (own if self.place.cache == "auto" else self.place.cache) == "fp8"

    @property
    def precision(self) -> str:
        """The library's modes of products, experts' products and cache."""
        modes = self._built.config
        experts = f", experts {modes.moe_quant_mode.name}" if self.model.experts[0] else ""
        return f"products {modes.gemm_quant_mode.name}{experts}, cache {modes.kvcache_quant_mode.name}"

    @property
    def layer_bytes(self) -> float:
        """Bytes of all layers' weights, over all GPUs, with the weights that a head joins and widens."""
        model, tp = self.model, self.place.tp
        held = [each for each in self._built.context_ops if not each._name.endswith(("_embedding", "_logits_gemm"))]
        hidden = model.whole("hidden_size")
        further = model.joined * hidden * hidden
        if model.wide:
            heads, kv_heads, width = model.heads
            further += hidden * width * (heads + 2 * kv_heads)
        return tp * sum(map(self._bytes_of, held)) + 2.0 * further - self._experts_too_many

    def _bytes_of(self, operator: Any) -> float:
        """Return the bytes of an operator's weights on one GPU, with the scales that the library leaves out."""
        mode = getattr(operator, "_quant_mode", None)
        weights = float(operator.get_weights())
        return weights * self._stored(mode) / float(mode.value.memory) if weights and mode is not None else weights

    def _stored(self, mode: Any) -> float:
        """Return the bytes of a weight: MXFP4 has an 8-bit scale each 32, INT4 one of 16 bits each group.

        Those of NVFP4 (8 bits each 16) are the library's own count.
        """
        scale = 1 / 32 if "mxfp4" in mode.name else 2 / self.model.int4_group if mode.name == "int4_wo" else 0.0
        return float(mode.value.memory) + scale

    @property
    def _experts_too_many(self) -> float:
        """Bytes of the experts that the library takes the first layers to have, less those of their dense products."""
        model = self.model
        dense = int(model.config.get("first_k_dense_replace") or 0) if model.experts[0] else 0
        if not dense:
            return 0.0
        hidden, wide = model.whole("hidden_size"), model.whole("intermediate_size")
        modes, shared = self._built.config, int(model.config.get("n_shared_experts") or 0)
        stored, product = map(self._stored, (modes.moe_quant_mode, modes.gemm_quant_mode))
        narrow = model.whole("moe_intermediate_size")
        each = stored * model.experts[0] * narrow + product * (shared * narrow - wide)
        return 3.0 * dense * hidden * each

    @property
    def active_bytes(self) -> float:
        """Bytes of the layers' weights that one token is multiplied with."""
        count, sent = self.model.experts
        if not count:
            return self.layer_bytes
        stored = self._stored(self._built.config.moe_quant_mode) * self.model.expert_weights
        return self.layer_bytes - stored * (1 - sent / count)

    @property
    def padding_bytes(self) -> float:
        """Bytes, over all GPUs, by which gpt-oss's MXFP4 experts are larger as loaded than in their file.

        vLLM and SGLang pad the hidden size to a multiple of 256, and a GPU's part of the intermediate size to one of
        64, on Blackwell of 256 (their mxfp4.py).
        """
        model, place, mode = self.model, self.place, self._built.config.moe_quant_mode
        if not model.experts[0] or model.sparse or "mxfp4" not in mode.name:
            return 0.0
        step = 256 if place.gpu in BLACKWELL else 64
        sizes = (model.whole("hidden_size"), 256), (model.width * place.ep / place.tp, step)
        return self._stored(mode) * model.expert_weights * (prod(ceil(n / to) * to / n for n, to in sizes) - 1)

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

    def products(self, tokens: int, prompt: bool) -> float:
        """Return the seconds of all but attention and logits, of `tokens`; `prompt`: by the operators of prompts.

        No product takes longer than that of a larger captured pass, which an engine could pad to.
        """
        larger = [size for size in CAPTURED if size > tokens]
        each = [self._products(size, prompt) for size in (tokens, *larger)]
        return float(np.min(each, axis=0).sum()) * MS

    def _products(self, tokens: int, prompt: bool) -> Floats:
        """Return the milliseconds of each of them, unpadded."""
        if (tokens, prompt) not in self._known:
            each = self._priced(self._rest[prompt], tokens, prompt)
            if self.lender is not None:
                each += self._borrowed(self.lender, tokens, prompt)
            self._known[tokens, prompt] = np.array(each)
        return self._known[tokens, prompt]

    def _borrowed(self, lender: Operators, tokens: int, prompt: bool) -> list[float]:
        """Return the milliseconds of the operators that are lent; fused norms while that is not slower than apart."""
        theirs = lender._priced(self._of_lender[prompt], tokens, prompt)
        if not self._norms[prompt] or self.place.engine == "trtllm":
            return theirs
        apart = self._priced([*self._lent[prompt], *self._norms[prompt]], tokens, prompt)
        return [min(sum(theirs), sum(apart))]

    def _priced(self, those: Sequence[int], tokens: int, prompt: bool) -> list[float]:
        """Return the milliseconds of some operators other than attention."""
        sizes = {"batch_size": 1, "s": tokens} if prompt else {"batch_size": tokens, "s": 2}
        return self._told(lambda: self._asked(prompt, those, x=tokens, **sizes))

    def _asked(self, prompt: bool, those: Sequence[int], **sizes: int) -> list[float]:
        """Return the milliseconds of some operators, as the library tells them."""
        ask = self._engine.evaluate_context_ops if prompt else self._engine.evaluate_generation_ops
        return [float(row[1]) for row in ask(those, **sizes)]

    def named(self, name: str, tokens: int) -> float:
        """Return the seconds of the operator of that name in a decode of `tokens` requests, over all layers."""
        those = [i for i, each in enumerate(self._listed[0]) if name_of(each) == f"generation_{name}"]
        return sum(self._priced(those, tokens, prompt=False)) * MS

    @property
    def joined_s(self) -> float:
        """Seconds in which a head joins the target's states of a step's tokens, apart from its further passes."""
        return self.named(JOINT, MANY)

    @property
    def fed_s(self) -> float:
        """Seconds of a token of which only keys and values are made: the joined states, and their part of a product."""
        heads, kv_heads, _ = self.model.heads
        cached = 2 * kv_heads / (heads + 2 * kv_heads)
        return (self.named(JOINT, LONG) + cached * self.named("qkv_gemm", LONG)) / LONG

    def logits(self, rows: int) -> float:
        """Return the seconds of the logits of `rows` tokens."""
        return sum(self._priced(self._logits, rows, prompt=False)) * MS

    def markov(self, requests: int) -> float:
        """Return the seconds of a head's Markov products: one a token of the block, of all requests at once."""
        those = [i for i, each in enumerate(self._listed[0]) if name_of(each).endswith(MARKOV)]
        return sum(self._priced(those, requests, prompt=False)) * MS if those else 0.0

    def served(self, clients: int, isl: int, osl: int) -> tuple[float, float]:
        """Return the library's own estimate of a closed loop: seconds to the first token and per further one.

        A pass of prompts and decodes holds one prompt, the library's default.
        """
        load = sdk().config.RuntimeConfig(batch_size=clients, isl=isl, osl=osl)
        backend = sdk().get_backend(self.place.engine)
        found = self._told(lambda: backend.run_agg(self._built, self._database, load, ctx_tokens=isl))
        row = found.get_summary_df().iloc[0]
        return float(row["ttft"]) * MS, float(row["tpot"]) * MS

    def decode(self, requests: int, context: int) -> float:
        """Return the seconds of attention of one token a request behind `context` cached ones."""
        sizes = {"batch_size": requests, "s": context + 1, "x": requests}
        return sum(self._told(lambda: self._asked(False, self._attention[0], **sizes))) * MS

    def chunk(self, queries: int, behind: int) -> float:
        """Return the seconds of attention of a prompt's chunk of `queries` tokens behind `behind` cached ones."""
        sizes = {"batch_size": 1, "s": queries, "prefix": behind, "x": queries}
        return sum(self._told(lambda: self._asked(True, self._attention[1], **sizes))) * MS

    @property
    def kinds(self) -> list[str]:
        """The kinds of the operators, by the library's names."""
        return sorted({kind for operators in self._listed for each in operators for kind in each})

    @property
    def measured_context(self) -> int:
        """Cached tokens of a request at which the engine's tables of decodes end."""
        return SPARSE_MEASURED[self.place.engine] if self.model.sparse else MEASURED

    def formulas(self) -> str:
        """Return the operators that the library prices by a formula, and those that it prices so in part."""
        own = [i for i in range(len(self._listed[0])) if i not in self._lent[0]]
        rows = self._engine.evaluate_generation_ops(own, batch_size=8, s=LONG, x=8)
        found = {name.removeprefix("generation_"): source for name, ms, _, source in rows if ms > 0}
        wholly, partly = ([name for name in found if found[name] == source] for source in ("empirical", "mixed"))
        return ", ".join(wholly) + (f"; in part: {', '.join(partly)}" if partly else "")

    def _told(self, ask: Callable[[], Value]) -> Value:
        """Return what the library answers; its refusals become one line."""
        try:
            return ask()
        except Exception as error:
            said = re.split(r" at /| \(first: /|, which", one_line(str(error)))[0][:200]
            raise NoKernels(f"{self.model.name} on {described(self.place)}: no kernels ({said})") from None

    def _attention_of_generation(self) -> list[int]:
        def ask(i: int, requests: int, context: int) -> float:
            return self._asked(False, [i], batch_size=requests, s=context, x=8)[0]

        own = (i for i in range(len(self._listed[0])) if i not in self._lent[0])
        return [i for i in own if not ask(i, 1, 2) == ask(i, 1, LONG) == ask(i, 8, 2)]

    def _attention_of_context(self) -> list[int]:
        def ask(i: int, behind: int) -> float:
            return self._asked(True, [i], batch_size=1, s=64, prefix=behind, x=64)[0]

        return [i for i in range(len(self._listed[1])) if i not in self._lent[1] and ask(i, 0) != ask(i, LONG)]

    def _others(self, phase: int) -> list[int]:
        operators = self._listed[phase]
        names = ("logits_gemm", MARKOV, JOINT) if self.model.joined_once else ("logits_gemm", MARKOV)
        apart = {i for i, each in enumerate(operators) if name_of(each).endswith(names)}
        apart |= {*self._lent[phase], *self._norms[phase], *self._attention[phase]}
        return [i for i in range(len(operators)) if i not in apart]
