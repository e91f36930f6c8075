"""Drafters and what their passes cost: a separate model, a lookup, layers skipped, heads on the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from numbers import Real
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

import numpy as np

from specsim.files.checked_mapping import CheckedMapping, shown
from specsim.latency.forms import Linear
from specsim.latency.heads import DECODER_HEADS, DecoderHead, Heads, LayersSkipped
from specsim.latency.model import ModelLatency, Profile
from specsim.pass_shape import PassShape
from specsim.registry.build import Kinds, Maker, asked

SIZES = {"kv_bytes_per_token": 0, "weights_bytes": 0, "max_depth": 1}
"""Whole numbers of a model, and the least of each."""
NUMBERS = ("overhead_s", "least_s", "request_s")
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
    stated = profile.stated_usable_kv_bytes
    draft: ModelLatency = asked(source, drafter.of, ModelLatency, profile)
    if draft is profile.draft:
        return profile
    check_model(draft, source)
    _check_time(draft, source)
    if stated is not None:
        stated += profile.draft.weights_bytes - draft.weights_bytes
    return replace(profile, draft=draft, stated_usable_kv_bytes=stated)


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
