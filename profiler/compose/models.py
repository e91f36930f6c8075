"""Models to compose: by a name whose configuration the library or specsim ships, or by a ``config.json``."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from copy import deepcopy
from dataclasses import dataclass, replace
from difflib import get_close_matches
from pathlib import Path
from shutil import copyfile
from tempfile import TemporaryDirectory
from typing import Any

from profiler.compose.library import check_architecture, config_files, config_in, family_of
from profiler.models.shapes import BY_NAME, TransformerShape
from specsim.errors import SpecsimError
from specsim.latency.drafter import BLOCKS, JOINED_ONCE, DecoderHead

FIELDS = (
    *("num_hidden_layers", "hidden_size", "num_attention_heads"),
    *("vocab_size", "max_position_embeddings"),
)
WRAPPED = "KimiK25ForConditionalGeneration"
"""An architecture whose `text_config` is a model of its own, of DeepSeek-V3's; its images' tower is left out."""
LATENT = {"kv_lora_rank": 512, "q_lora_rank": 1536, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64, "v_head_dim": 128}
"""Sizes of the latent attention that the library measured: DeepSeek-V3's, and Kimi-K2's with fewer heads."""
ALIASES = {
    "llama-3.3-70b": "llama-3.1-70b",
    "llama-3-8b": "llama-3.1-8b",
    "mixtral-8x7b": "mixtral-8x7b-v0.1",
    "mixtral-8x22b": "mixtral-8x22b-v0.1",
    "deepseek-v3-0324": "deepseek-v3",
    "deepseek-v3.1": "deepseek-v3",
    "deepseek-r1-0528": "deepseek-r1",
    "qwen3-30b-a3b-2507": "qwen3-30b-a3b",
    "qwen3-30b-a3b-thinking-2507": "qwen3-30b-a3b",
    "qwen3-235b-a22b-2507": "qwen3-235b-a22b",
    "qwen3-235b-a22b-thinking-2507": "qwen3-235b-a22b",
}
"""Models whose weights have the same sizes as another's."""
CONTEXTS = {"llama-3-8b": 8192} | dict.fromkeys((each for each in ALIASES if each.endswith("-2507")), 262144)
"""Of those, `max_position_embeddings` where the other has another."""
HEADS_BESIDE_LATENT = {"num_attention_heads": 64, "num_key_value_heads": 64, "head_dim": 128}
"""Attention of a head on a target with latent attention: that of Kimi-K2.5's EAGLE-3 (torchspec-project/TorchSpec)."""
MARKOV_RANKS = {7168: 512, 4096: 256}
"""Of DSpark's Markov head in DeepSeek-V4's checkpoints, by the hidden size: V4-Pro's and V4-Flash's."""
HEADS = {
    **dict.fromkeys(("LlamaForCausalLMEagle", "EagleLlamaForCausalLM", "EagleSpeculator"), "eagle"),
    **dict.fromkeys(("LlamaForCausalLMEagle3", "Eagle3LlamaForCausalLM"), "eagle3"),
    **dict.fromkeys(("Eagle3DraftModel", "Eagle3Speculator"), "eagle3"),
    "PEagleDraftModel": "p_eagle",
    "DFlashDraftModel": "dflash",
    "DSparkDraftModel": "dspark",
}
"""Kind of a head by the architecture in its configuration: of EAGLE's, SpecForge's and speculators' checkpoints."""
SHORT = 128
"""Cached tokens at which the projections of latent attention are measured."""
DROPPED = ("meta-", "-instruct", "-chat", "-hf", "-base")
"""Parts of a name that say nothing about sizes."""


@dataclass(frozen=True, slots=True)
class Model:
    """A model by its Hugging Face configuration; `source` says where that comes from.

    `joined` is the width of the vectors that a head's projection joins, in hidden sizes, and `wide` whether its
    attention reads the token's embedding beside the state; `own_vocabulary`: that of a head; `markov_rank`: of its
    Markov head, which each of the `block` tokens of a request reads; `joined_once`: whether a step's first pass alone
    joins the vectors. 0 and False of a model.
    """

    name: str
    config: dict[str, Any]
    source: str
    joined: int = 0
    wide: bool = False
    own_vocabulary: bool = False
    markov_rank: int = 0
    block: int = 0
    joined_once: bool = False

    def whole(self, key: str, otherwise: int | None = None) -> int:
        """Return a whole number of the configuration."""
        value = self.config.get(key)
        if value is None and otherwise is not None:
            return otherwise
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            said = "has no" if value is None else f"{value!r} is no whole number of at least 1 in"
            raise SpecsimError(f"{self.source}: {said} {key}; expected a Hugging Face config.json")
        return value

    @property
    def heads(self) -> tuple[int, int, int]:
        """Query heads, KV heads, and the width of each."""
        heads = self.whole("num_attention_heads")
        width = self.whole("head_dim", self.whole("hidden_size") // heads or 1)
        return heads, self.whole("num_key_value_heads", heads), width

    @property
    def experts(self) -> tuple[int, int]:
        """Experts of a layer, and those that a token is sent to; (0, 0) of a dense model."""
        keys = ("num_local_experts", "n_routed_experts", "num_experts")
        count = next((self.whole(key) for key in keys if self.config.get(key)), 0)
        return (count, self.whole("num_experts_per_tok")) if count else (0, 0)

    @property
    def width(self) -> int:
        """The intermediate size of its experts, or of its layers where it has none."""
        own = self.experts[0] and self.config.get("moe_intermediate_size")
        return self.whole("moe_intermediate_size" if own else "intermediate_size")

    @property
    def int4_group(self) -> int:
        """Weights that share a 16-bit scale in INT4: as the configuration says, else the default of AWQ and GPTQ."""
        stated = self.config.get("quantization_config")
        groups = stated.get("config_groups") if isinstance(stated, dict) else None
        said = (each["weights"] for each in (groups or {}).values() if each.get("weights"))
        return next((each["group_size"] for each in said if each.get("type") == "int" and each.get("group_size")), 128)

    @property
    def expert_weights(self) -> int:
        """Weights of all routed experts."""
        layers = self.whole("num_hidden_layers") - int(self.config.get("first_k_dense_replace") or 0)
        return 3 * self.experts[0] * self.width * self.whole("hidden_size") * layers

    @property
    def latent(self) -> bool:
        """Whether attention is multi-head latent attention: one cached vector for all heads."""
        return bool(self.config.get("kv_lora_rank"))

    @property
    def sparse(self) -> bool:
        """Whether attention reads a compressed cache, as DeepSeek-V4's does: CSA, HCA or a window by the layer."""
        return bool(self.config.get("compress_ratios"))

    def read_by_each(self, context: int) -> int | None:
        """Return the cached tokens that each query of a verification reads for itself; None where none are.

        CSA's are the `index_topk` entries that it chooses, of 4 tokens each.
        """
        if self.sparse:
            return min(context, 4 * self.whole("index_topk"))
        return SHORT if self.latent else None

    @property
    def vocabularies(self) -> int:
        """Matrices of the vocabulary that it holds: embedding and head, and of a head on a target its own at most."""
        if self.joined:
            return int(self.own_vocabulary)
        return 1 if self.config.get("tie_word_embeddings") else 2


def model_of(given: str) -> Model:
    """Return the model of that name, or of the configuration in that file or folder.

    Raises
    ------
    SpecsimError
        When there is none, or a field is missing.
    """
    if (file := _file_of(given)) is not None:
        return _read(file, file.with_name("hf_quant_config.json"), str(file))
    found = _named(given)
    context = CONTEXTS.get(_key(given))
    return found if context is None else replace(found, config=found.config | {"max_position_embeddings": context})


def head_config(given: str, target: Model) -> tuple[str, Model] | None:
    """Return the kind of the head whose configuration is in that file or folder, and its sizes; None if it is no head.

    Raises
    ------
    SpecsimError
        When the file cannot be read, or the head is quantised or of another hidden size than its target.
    """
    if (file := _file_of(given)) is None:
        return None
    config = _parsed(file, str(file))
    # EAGLE's own release calls an EAGLE-3 head LlamaForCausalLM.
    kinds = HEADS | ({"LlamaForCausalLM": "eagle3"} if config.get("draft_vocab_size") else {})
    kind = next((kind for each, kind in kinds.items() if config.get("architectures") == [each]), None)
    if kind is None:
        return None
    # Checkpoints of speculators have the sizes of their layers one level down.
    layers = config.get("transformer_layer_config")
    found = Model(file.parent.name, config | layers if isinstance(layers, dict) else config, str(file))
    size, own = (each.whole("hidden_size") for each in (target, found))
    if own != size:
        raise SpecsimError(f"{file}: a head of hidden_size {own:,}, and {target.name} has {size:,}; expected its head")
    if config.get("quantization_config"):
        raise SpecsimError(f"{file}: quantization_config: quantised heads are not composed; expected one in 16 bits")
    return kind, found


def of_own(head: DecoderHead, own: Model) -> DecoderHead:
    """Return a head with the layers, vocabulary, block and Markov rank of its `own` configuration."""
    named, beside = own.config.get("draft_vocab_size"), BLOCKS.get(head.kind)
    vocabulary = own.whole("draft_vocab_size", own.whole("vocab_size")) if head.wide or named else None
    depth = head.depth if beside is None else own.whole("block_size", head.depth + beside) - beside
    rank = head.markov_rank and own.whole("markov_rank", head.markov_rank)
    layers = own.whole("num_hidden_layers")
    return replace(head, layers=layers, draft_vocab_size=vocabulary, depth=depth, markov_rank=rank)


def _file_of(given: str) -> Path | None:
    """Return the configuration that a path names; None of a model's name."""
    path = Path(given).expanduser()
    try:
        folder = path.is_dir()
    except OSError:  # A name that is too long for a file.
        folder = False
    return path / "config.json" if folder else path if path.suffix == ".json" else None


def _named(given: str) -> Model:
    key = ALIASES.get(_key(given), _key(given))
    alias = _short(Path(given).name) if key != _key(given) else None
    if key in BY_NAME:
        return Model(alias or BY_NAME[key].name, _config(BY_NAME[key]), "specsim's own configuration")
    files = config_files()
    known = {_key(name): name for name in files}
    if key not in known:
        names = known | {each: shape.name for each, shape in BY_NAME.items()}
        raise SpecsimError(
            f"{given}: no configuration of this model ships{_near(key, names)}; expected another (specsim profile "
            "compose --list), or the path of its config.json"
        )
    name, file = known[key], files[known[key]]
    quantised = file.with_name(file.name.replace("_config.json", "_hf_quant_config.json"))
    return replace(_read(file, quantised, name), name=alias or _short(Path(name).name))


def _near(key: str, names: Mapping[str, str]) -> str:
    """Return the hint at the nearest name: of the same family and generation, or almost equal; else an empty one."""
    family = re.match(r"\D*[\d.]*", key)
    alike = [each for each in names if family and family[0] and each.startswith(family[0])]
    close = get_close_matches(key, alike, n=1, cutoff=0.0) or get_close_matches(key, names, n=1, cutoff=0.8)
    return f"; did you mean {names[close[0]]!r}?" if close else ""


def composable() -> list[str]:
    """Return the names of the models that are composed: those of files, specsim's own, and those of the same sizes."""
    names = [*config_files(), *(shape.name for shape in BY_NAME.values()), *ALIASES]
    found = []
    for name in names:
        with suppress(SpecsimError):
            _named(name)
            found.append(name)
    return found


def head_of(target: Model, head: DecoderHead, own: Model | None = None) -> Model:
    """Return a head of decoder layers on `target`, of the sizes of its `own` configuration where that is given.

    They are of the target's own kind in an MTP module and on DeepSeek-V4, where they have a window alone; else dense.
    """
    config = deepcopy(target.config) | {"num_hidden_layers": head.layers, "first_k_dense_replace": 0}
    if target.sparse:
        config["compress_ratios"] = [0] * head.layers
    elif head.kind != "mtp":
        heads, kv_heads, width = (own or target).heads
        config = _llama(head.layers, target.whole("hidden_size"), heads, kv_heads, width)
        if target.latent and own is None:
            config |= HEADS_BESIDE_LATENT
        config["intermediate_size"] = (own or target).whole("intermediate_size")
    config["max_position_embeddings"] = target.whole("max_position_embeddings")
    config["vocab_size"] = head.draft_vocab_size or target.whole("vocab_size")
    return Model(
        f"{head.kind} head",
        config,
        target.source if own is None else own.source,
        joined=head.states,
        wide=head.wide,
        own_vocabulary=head.draft_vocab_size is not None,
        markov_rank=head.markov_rank,
        block=head.depth,
        joined_once=head.kind in JOINED_ONCE,
    )


def of_v4(target: Model, head: DecoderHead) -> DecoderHead:
    """Return the DSpark drafter of DeepSeek-V4's checkpoints: three layers, a block of 5 (sgl-project/sglang#29538)."""
    rank = MARKOV_RANKS.get(target.whole("hidden_size"), head.markov_rank)
    return replace(head, states=3, layers=3, depth=5, markov_rank=rank)


def _key(name: str) -> str:
    """Return a name without its owner and without what says nothing about sizes."""
    key = Path(name).name.lower()
    for part in DROPPED:
        key = key.replace(part, "")
    return key


def _short(name: str) -> str:
    """Return a model's name as profiles and acceptances have it."""
    return name.removeprefix("Meta-").replace("-Instruct", "")


def _read(file: Path, quantised: Path, source: str) -> Model:
    """Return the model of a file, and of the file beside it that says how its weights are quantised."""
    config = _parsed(file, source)
    if config.get("architectures") == [WRAPPED]:
        if not isinstance(config.get("text_config"), dict):
            raise SpecsimError(f"{source}: has no text_config; expected a Hugging Face config.json")
        config = config["text_config"] | {key: config[key] for key in ("quantization_config",) if key in config}
    parent = file.resolve().parent.name
    named = config.get("_name_or_path") or (parent if file.stem == "config" else file.stem)
    model = _checked(Model(_short(Path(str(named)).name), config, source))
    config["num_key_value_heads"] = model.heads[1]
    with TemporaryDirectory() as folder:
        (Path(folder) / "config.json").write_text(json.dumps(config), encoding="utf-8")
        if quantised.is_file():
            copyfile(quantised, Path(folder) / "hf_quant_config.json")
        return replace(model, config=config_in(folder))


def _parsed(file: Path, source: str) -> dict[str, Any]:
    try:
        config = json.loads(file.read_text(encoding="utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        said = error.strerror if isinstance(error, OSError) else error
        raise SpecsimError(f"{source}: cannot be read: {said}") from None
    if not isinstance(config, dict):
        raise SpecsimError(f"{source}: is no mapping; expected a Hugging Face config.json")
    return config


def _checked(model: Model) -> Model:
    named = model.config.get("architectures")
    if not isinstance(named, list) or not named or not isinstance(named[0], str):
        raise SpecsimError(f"{model.source}: has no architectures; expected a Hugging Face config.json")
    check_architecture(model)
    for key in (*FIELDS, "moe_intermediate_size" if model.sparse else "intermediate_size"):
        model.whole(key)
    family = family_of(named[0])
    if (family != "LLAMA") != bool(model.experts[0]):
        said = "has experts" if model.experts[0] else "has no number of experts"
        raise SpecsimError(f"{model.source}: {said}; expected a config.json of {named[0]}")
    if model.experts[0]:
        _check_experts(model, named[0])
    for key, measured in LATENT.items() if family == "DEEPSEEK" else ():
        if model.whole(key) != measured:
            raise SpecsimError(
                f"{model.source}: {key} {model.config[key]} has no kernels; expected {measured}, DeepSeek-V3's"
            )
    return model


def _check_experts(model: Model, architecture: str) -> None:
    """Refuse experts of no stated width, and layers without experts that are not told apart here."""
    if architecture.startswith(("Qwen", "Deep")) or model.config.get("moe_intermediate_size"):
        model.whole("moe_intermediate_size")
    dense = model.config.get("first_k_dense_replace") or 0
    if isinstance(dense, bool) or not isinstance(dense, int) or not 0 <= dense < model.whole("num_hidden_layers"):
        raise SpecsimError(f"{model.source}: first_k_dense_replace {dense!r}: expected fewer than its layers")
    if model.config.get("mlp_only_layers") or (model.config.get("decoder_sparse_step") or 1) != 1:
        raise SpecsimError(
            f"{model.source}: layers without experts between those with (mlp_only_layers, decoder_sparse_step) are not "
            "composed; expected experts in every layer"
        )


def _config(shape: TransformerShape) -> dict[str, Any]:
    """Return specsim's own sizes of a model as its configuration."""
    config = _llama(shape.layers, shape.hidden, shape.heads, shape.kv_heads, shape.head_dim)
    return config | {
        "intermediate_size": shape.ffn,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied,
        "max_position_embeddings": shape.max_model_len or 2048,
    }


def _llama(layers: int, hidden: int, heads: int, kv_heads: int, width: int) -> dict[str, Any]:
    return {
        "architectures": ["LlamaForCausalLM"],
        "num_hidden_layers": layers,
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": kv_heads,
        "head_dim": width,
    }
