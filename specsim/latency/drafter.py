"""Drafters and what their passes cost: a separate model, a lookup, layers skipped, heads on the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import ceil, inf
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple, NoReturn, Protocol

import numpy as np

from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.latency.forms import Block, Form, Linear, Staged, delayed, dense, scaled
from specsim.latency.model import ModelLatency, ModelShape, Profile
from specsim.pass_shape import PassShape
from specsim.registry import Kinds, Maker, asked

ELEMENT_BYTES = 2
"""Of a weight of an embedding, of a head and of the cache: 16 bits."""


@dataclass(frozen=True, slots=True)
class LayersSkipped:
    """The target without `skipped` of its `layers`: it saves their share of time and cache, and adds no weights.

    It has a cache of its own, since the layers behind a skipped one get other inputs than in the target. Its host time
    is that of a draft pass, which chooses tokens without the round trip of a verification.
    """

    layers: int
    skipped: int

    def of(self, profile: Profile) -> ModelLatency:
        """Return the target's passes, shorter in proportion to the layers kept."""
        kept = 1 - self.skipped / self.layers
        return _of_target(profile, f"{profile.target.name} less {self.skipped} layers", kept, kept, 0.0)


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads on the target's last layer.

    Parameters
    ----------
    one_pass : all depths in one pass, or a pass per depth.
    depth : the most tokens ahead that they propose.
    pass_share, weights_share, cache_share : shares of the target's time for its weights, of its weights, and of its
        cache and the time to read it. A head without cache reads the target's last state and has no prefill.
    """

    one_pass: bool
    depth: int
    pass_share: float
    weights_share: float
    cache_share: float

    def of(self, profile: Profile) -> ModelLatency:
        """Return the target's passes, scaled by the shares."""
        heads = _of_target(profile, "heads", self.pass_share, self.cache_share, self.weights_share)
        return replace(heads, one_pass=self.one_pass, cached=self.cache_share > 0, max_depth=self.depth)


@dataclass(frozen=True, slots=True)
class DecoderHead:
    """A head of decoder layers of the target's own shape; its pass reads its weights and a projection to a vocabulary.

    Parameters
    ----------
    kind : of drafter. states : vectors that a projection joins to its input. wide : whether the first attention reads
        the token's embedding beside that, so that its products are twice as wide. one_pass : whether one pass proposes
        all depths; it has a block of `depth` tokens for each request.
    layers : decoder layers, each with a cache. depth : the most tokens ahead that it proposes.
    draft_vocab_size : tokens of a vocabulary of its own; None: the target's, shared.
    markov_rank : of a Markov head, two matrices between the vocabulary and so many numbers, one of which is read again
        for each token of the block; 0: there is none.
    """

    kind: str
    states: int
    wide: bool
    one_pass: bool
    layers: int
    depth: int
    draft_vocab_size: int | None = None
    markov_rank: int = 0

    @property
    def queries(self) -> int:
        """Query tokens of a block, of a drafter that only makes keys and values of what it is fed; 0 of others."""
        return self.depth + BLOCKS[self.kind] if self.kind in BLOCKS else 0

    def of(self, profile: Profile) -> ModelLatency:
        """Return the target's passes, scaled by the bytes that a pass of the head reads.

        Beside a mixture of experts only the layers of an MTP module are, which have experts; other weights are read as
        fast as a pass reads all experts.
        """
        (layers, hidden, size), active = _shape_of(profile, self.kind)
        target = profile.target
        vocabulary, joint = _square(size, hidden), _square(self.states * hidden, hidden)
        part, rate, experts = self.layers / layers, _Rates.of(target, vocabulary), target.sparse and self.kind == "mtp"
        keys = target.kv_bytes_per_token / layers / 2 / ELEMENT_BYTES
        own = 0 if self.draft_vocab_size is None else _square(self.draft_vocab_size, hidden)
        markov = _square(self.draft_vocab_size or size, self.markov_rank)
        read = part * active + (_square(hidden, hidden + 2 * keys) if self.wide else 0)
        held = part * (target.weights_bytes - 2 * vocabulary) if experts else read
        once = joint if self.kind in JOINED_ONCE else 0.0
        beside = joint - once + (own or vocabulary) + markov
        if max((read + once + beside) / rate.read, (held + joint + own) / target.weights_bytes, part) > 1:
            _refuse(f"{self.kind} of {self.layers} layers is larger than {target.name}")

        def priced(form: Form) -> Form:
            """Return a form of the target's as the head's."""
            if experts:
                form = delayed(scaled(form, part, part), beside * rate.byte_s)
            elif target.sparse:
                token_s, logit_s = (read + joint - once) * rate.product_s, (own or vocabulary) * rate.product_s
                form = dense(form, (read + beside) * rate.byte_s, token_s, logit_s, part)
            else:
                form = scaled(form, (read + beside) / rate.read, part)
            if not self.one_pass:
                return form
            fed_s = (joint + self.layers * _square(hidden, 2 * keys)) * rate.product_s if self.queries else 0.0
            return delayed(Block(form, self.depth, self.queries, fed_s), (self.depth - 1) * markov * rate.byte_s)

        share = (held + joint + own + 2 * markov) / target.weights_bytes
        return replace(
            Heads(self.one_pass, self.depth, (read + beside) / rate.read, share, part).of(profile),
            name=f"{self.kind} head",
            forms={name: priced(each) for name, each in target.forms.items()},
            step_s=once * rate.byte_s,
            nonembedding_bytes=round(read),
        )


@dataclass(frozen=True, slots=True)
class MedusaHeads:
    """Medusa's heads (arXiv 2401.10774), `depth` of them: a residual block each, and a vocabulary's matrix of its own.

    One pass proposes all depths from the target's last state, without attention or a cache.
    """

    depth: int

    def of(self, profile: Profile) -> ModelLatency:
        """Return the target's passes, scaled by the bytes that a pass of the heads reads; beside experts dense ones."""
        (_, hidden, size), _ = _shape_of(profile, "medusa")
        target = profile.target
        block, vocabulary = (_square(rows, hidden) for rows in (hidden, size))
        rate, read = _Rates.of(target, vocabulary), self.depth * (block + vocabulary)
        heads = Heads(True, self.depth, read / rate.read, read / target.weights_bytes, 0.0).of(profile)
        times = read * rate.byte_s, self.depth * block * rate.product_s, self.depth * vocabulary * rate.product_s, 0.0
        forms = {name: dense(each, *times) for name, each in target.forms.items()} if target.sparse else heads.forms
        return replace(heads, forms=forms, nonembedding_bytes=round(self.depth * block))


class _Rates(NamedTuple):
    """How fast a target's passes read weights and multiply with them.

    Attributes
    ----------
    read : bytes that one token reads. byte_s : seconds to read one, where all weights are read. product_s : seconds
        that a further token takes for each byte that it is multiplied with, in large passes.
    """

    read: float
    byte_s: float
    product_s: float

    @classmethod
    def of(cls, target: ModelLatency, vocabulary: float) -> _Rates:
        """Return those of a target whose vocabulary's matrix has so many bytes."""
        active = target.nonembedding_bytes or 0
        form = target.chosen.form if isinstance(target.chosen, Staged) else target.chosen
        read = all_read = active + vocabulary
        rows = 1
        if target.sparse:  # A pass of these many tokens misses 2% of the experts.
            rows, all_read = ceil(MISSED * target.weights_bytes / active), target.weights_bytes - vocabulary
        byte_s = form.seconds(PassShape.decode(0, rows)) / all_read
        half, whole = (form.seconds(PassShape(0, tokens, 0, tokens, 1, 1)) for tokens in LARGE)
        return cls(read, byte_s, (whole - half) / (LARGE[1] - LARGE[0]) / active)


def _shape_of(profile: Profile, kind: str) -> tuple[ModelShape, int]:
    """Return the target's sizes, and the bytes of its layers that a token is multiplied with; refuse without them."""
    shape, active = profile.target.shape, profile.target.nonembedding_bytes
    if shape is None or active is None:
        sizes = "num_hidden_layers, hidden_size, vocab_size and nonembedding_bytes (docs/your-profile.md)"
        _refuse(f"{kind} is composed from the target; expected in {profile.name} its {sizes}, or kind: heads")
    return shape, active


def _refuse(said: str) -> NoReturn:
    CheckedMapping("drafter", "", {}).refuse("", said)


def _square(rows: float, columns: float) -> float:
    """Return the bytes of a matrix of 16-bit weights."""
    return ELEMENT_BYTES * rows * columns


DECODER_HEADS: dict[str, tuple[int, bool, bool]] = {
    "eagle": (2, False, False),
    "eagle3": (3, True, False),
    "mtp": (2, False, False),
    "p_eagle": (3, True, True),
    "dflash": (5, False, True),
    "dspark": (5, False, True),
}
"""By kind: states joined, whether attention is wide, whether one pass proposes all depths.

EAGLE (arXiv 2401.15077) and multi-token prediction (DeepSeek-V3, arXiv 2412.19437, section 2.2) join the target's state
and the token's embedding; EAGLE-3 (arXiv 2503.01840) three of the target's states, as P-EAGLE (arXiv 2602.01469) does,
which drafts in parallel; DFlash (arXiv 2602.06036) drafts a block from the states of five of the target's layers, and
DSpark (arXiv 2607.05147) corrects DFlash's block token by token with a Markov head.
"""
JOINED_ONCE = ("eagle3",)
"""Kinds whose first pass of a step alone joins the target's states: later ones read their own (vLLM's `propose`)."""
BLOCKS = {"dflash": 1, "dspark": 0}
"""By kind, query tokens of a block beyond its proposals; of what they are fed these drafters only make keys and values.

DFlash's are the last token and a mask a proposal (vLLM's `set_inputs_first_pass`), DSpark's the proposals alone.
"""
LARGE = (4096, 8192)
"""Tokens of passes that are bound by compute."""
MISSED = 4
"""Times its share of the weights that a token reads, from which on a pass reads nearly all experts: e ** -4 is 2%."""


def _of_target(profile: Profile, name: str, time: float, cache: float, weights: float) -> ModelLatency:
    target = profile.target
    return ModelLatency(
        name=name,
        forms={each: scaled(form, time, cache) for each, form in target.forms.items()},
        form=target.form,
        kv_bytes_per_token=round(cache * target.kv_bytes_per_token),
        weights_bytes=round(weights * target.weights_bytes),
        overhead_s=profile.draft.overhead_s,
        request_s=profile.draft.request_s,
        least_s=profile.draft.least_s,
        graph_tokens=profile.draft.graph_tokens,
        graph_requests=profile.draft.graph_requests,
        context_range=target.context_range,
        batched_range=target.batched_range,
    )


SIZES = {"kv_bytes_per_token": 0, "weights_bytes": 0, "max_depth": 1}
"""Whole numbers of a model, and the least of each."""
NUMBERS = ("overhead_s", "least_s", "request_s", "step_s")
FLAGS = ("one_pass", "cached")
MOST_BYTES = 1 << 62


class Drafter(Protocol):
    """Proposes tokens for a target."""

    def of(self, profile: Profile) -> ModelLatency:
        """Return the pass time and the sizes of this drafter for the profile's target."""
        ...


@dataclass(frozen=True, slots=True)
class Separate:
    """The draft model of the profile.

    Parameters
    ----------
    graphs : whether its passes are captured in CUDA graphs. If not, no pass is faster than its launch.
    launch_s : host seconds to launch a pass kernel by kernel, if the profile has no measurement.
    """

    graphs: bool
    launch_s: float

    def of(self, profile: Profile) -> ModelLatency:
        """Return the profile's own draft model; without graphs no pass takes less than its launch."""
        if self.graphs:
            return profile.draft
        measured = profile.draft.launch_s
        launch_s = self.launch_s if measured is None else measured
        return replace(profile.draft, least_s=max(launch_s, profile.draft.least_s))


@dataclass(frozen=True, slots=True)
class Lookup:
    """Proposes what followed a match of the text's end: in the text (prompt lookup), or in earlier answers (suffix).

    A batch takes `pass_s` seconds, and `request_s` more for each of its requests. Suffix decoding (arXiv 2411.04975)
    chooses a length by its match; here each chain is as long as the scheduler asks, as in vLLM's Model Runner V2.
    """

    name: str
    pass_s: float
    request_s: float = 0.0

    def of(self, profile: Profile) -> ModelLatency:
        """Return a drafter without weights or cache; one search proposes a whole chain."""
        constant = {"linear": Linear(0.0, 0.0, self.pass_s)}
        return ModelLatency(
            self.name, constant, "linear", 0, 0, 0.0, request_s=self.request_s, one_pass=True, cached=False
        )


def equipped(profile: Profile, drafter: Drafter, source: str = "drafter") -> Profile:
    """Return the profile with this drafter in place of its draft model, and with the memory that this leaves."""
    draft: ModelLatency = asked(source, drafter.of, ModelLatency, profile)
    if draft is profile.draft:
        return profile
    check_model(draft, source)
    _check_time(draft, source)
    return _beside(profile, draft)


def without_drafter(profile: Profile) -> Profile:
    """Return the profile where the drafter is not loaded: neither its weights nor its cache take memory."""
    return _beside(profile, replace(profile.draft, weights_bytes=0, kv_bytes_per_token=0))


def _beside(profile: Profile, draft: ModelLatency) -> Profile:
    stated, alone = profile.stated_usable_kv_bytes, profile.stated_alone_kv_bytes
    if stated is not None and alone is None:
        alone = stated + profile.draft.weights_bytes
    stated = None if alone is None else alone - draft.weights_bytes
    further_s = draft.paid_step_s - profile.draft.paid_step_s
    target = replace(profile.target, speculation_s=profile.target.speculation_s + further_s)
    return replace(profile, target=target, draft=draft, stated_usable_kv_bytes=stated, stated_alone_kv_bytes=alone)


def check_model(model: ModelLatency, source: str) -> None:
    """Refuse a model of somebody's own whose sizes no memory has: a run would end somewhere, or count nonsense.

    Raises
    ------
    SpecsimError
        One line that begins with `source` and names the size.
    """
    held = {name: getattr(model, name) for name in (*SIZES, *NUMBERS, *FLAGS)}
    node = CheckedMapping(
        f"{source}: {model.name}",
        "",
        {name: each.item() if isinstance(each, np.generic) else each for name, each in held.items()},
    )
    for name, least in SIZES.items():
        node.whole(name, least, MOST_BYTES)
    for name in NUMBERS:
        node.number(name, above=-inf)
    for name in FLAGS:
        node.flag(name)


def _check_time(draft: ModelLatency, source: str) -> None:
    """Refuse a drafter whose shortest pass takes a time that no clock can wait for."""
    seconds = asked(source, draft.seconds, Real, PassShape.decode(1))
    if not 0 <= seconds < inf:
        said = f"a pass of {shown(draft.name)} takes {seconds:g} s"
        CheckedMapping(source, "", {}).refuse("", f"{said}; expected a finite number of seconds, at least 0")


def drafter_from_mapping(
    mapping: Mapping[str, Any],
    source: str,
    folder: Path = Path(),
    plugins: Mapping[str, ModuleType] | None = None,
) -> Drafter:
    """Return the drafter that the keys of a YAML in `folder` describe; `_target_` may name a class of `plugins`.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    return KINDS.made(CheckedMapping(source, "", mapping), folder, plugins or {})


def _checked(kind: Callable[..., Drafter], keys: tuple[str, ...], optional: tuple[str, ...] = ()) -> Maker[Drafter]:
    """Return a function that makes a drafter of checked keys."""

    def made(node: CheckedMapping, _: Path) -> Drafter:
        node.only(("kind", *keys), (*optional, *LABELS))
        return kind(**{key: _value(node, key) for key in (*keys, *filter(node.given, optional))})

    return made


def _layers_skipped(node: CheckedMapping, folder: Path) -> Drafter:
    drafter = _checked(LayersSkipped, ("layers", "skipped"))(node, folder)
    if node.values["skipped"] >= node.values["layers"]:
        node.fail("skipped", "below layers: at least one has to be left")
    return drafter


def _decoder_head(kind: str) -> Maker[Drafter]:
    """Return a function that makes a head of decoder layers of the target's own shape."""
    needed = ("layers", "depth", "markov_rank") if kind == "dspark" else ("layers", "depth")
    return _checked(partial(DecoderHead, kind, *DECODER_HEADS[kind]), needed, ("draft_vocab_size",))


LABELS = ("description", "suggests")
KINDS: Kinds[Drafter] = Kinds(
    "drafter",
    {
        "separate": _checked(Separate, ("graphs", "launch_s")),
        "lookup": _checked(partial(Lookup, "prompt lookup"), ("pass_s",), ("request_s",)),
        "suffix": _checked(partial(Lookup, "suffix decoding"), ("pass_s",), ("request_s",)),
        "layers_skipped": _layers_skipped,
        "heads": _checked(Heads, ("one_pass", "depth", "pass_share", "weights_share", "cache_share")),
        "medusa": _checked(MedusaHeads, ("depth",)),
        **{kind: _decoder_head(kind) for kind in DECODER_HEADS},
    },
    Drafter,
    frozenset(LABELS),
    "docs/drafters.md",
)


def _value(node: CheckedMapping, key: str) -> Any:
    if key in ("graphs", "one_pass"):
        return node.flag(key)
    if key in ("layers", "skipped", "depth", "draft_vocab_size", "markov_rank"):
        return node.whole(key)
    # A pass of a drafter always takes time.
    above = 0 if key in ("pass_s", "pass_share") else -inf
    return node.number(key, above=above, most=1 if key.endswith("_share") else inf)
