"""What proposes tokens and what its passes cost: a separate model, a lookup, layers skipped, heads on the target."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from math import inf
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol

from specsim.files.checked_mapping import CheckedMapping
from specsim.kinds.table import Kinds, Maker, asked
from specsim.latency.forms import Linear
from specsim.latency.model import ModelLatency, Profile


class Drafter(Protocol):
    """Something that proposes tokens beside a target."""

    def of(self, profile: Profile) -> ModelLatency:
        """Return the pass time and sizes of this drafter beside the profile's target."""
        ...


@dataclass(frozen=True, slots=True)
class Separate:
    """The draft model of the profile.

    Parameters
    ----------
    graphs : whether its passes are captured in CUDA graphs. Without, none is faster than its launch.
    launch_s : seconds of the host to launch a pass kernel by kernel, where the profile did not measure it.
    """

    graphs: bool
    launch_s: float

    def of(self, profile: Profile) -> ModelLatency:
        """Return the profile's own draft model, with what launching takes as its least time."""
        if self.graphs:
            return profile.draft
        measured = profile.draft.launch_s
        return replace(profile.draft, least_s=self.launch_s if measured is None else measured)


@dataclass(frozen=True, slots=True)
class Lookup:
    """Prompt lookup: the text behind the last place where its end stood before; `pass_s` seconds for any batch."""

    pass_s: float

    def of(self, profile: Profile) -> ModelLatency:
        """Return a drafter without weights or cache whose one search proposes a whole chain."""
        return ModelLatency(
            "prompt lookup", {"linear": Linear(0.0, 0.0, self.pass_s)}, "linear", 0, 0, 0.0, one_pass=True, cached=False
        )


@dataclass(frozen=True, slots=True)
class LayersSkipped:
    """The target without `skipped` of its `layers`: their share of its time and cache is saved, weights cost nothing.

    The cache of what is drafted is its own, since the layers behind a gap see other inputs than the target's. The
    host's work is that of a draft pass: tokens are chosen without the round trip of a verification.
    """

    layers: int
    skipped: int

    def of(self, profile: Profile) -> ModelLatency:
        """Return the target's passes shortened in proportion to the layers that are left."""
        kept = 1 - self.skipped / self.layers
        return _of_target(profile, f"{profile.target.name} less {self.skipped} layers", kept, kept, 0.0)


@dataclass(frozen=True, slots=True)
class Heads:
    """Heads on the target's last layer.

    Parameters
    ----------
    one_pass : all depths in one pass (Medusa), or a pass a depth (EAGLE, MTP).
    depth : how many tokens ahead they propose, at most.
    pass_share, weights_share, cache_share : of the target's time for weights, its weights, and its cache and the time
        over it; a head without cache reads the target's last state and need not be fed.
    """

    one_pass: bool
    depth: int
    pass_share: float
    weights_share: float
    cache_share: float

    def of(self, profile: Profile) -> ModelLatency:
        """Return passes in proportion to the target's."""
        heads = _of_target(profile, "heads", self.pass_share, self.cache_share, self.weights_share)
        return replace(heads, one_pass=self.one_pass, cached=self.cache_share > 0, deepest=self.depth)


def equipped(profile: Profile, drafter: Drafter, source: str = "drafter") -> Profile:
    """Return the profile with this drafter in place of its draft model, and the memory that is left then."""
    stated = profile.stated_usable_kv_bytes
    draft: ModelLatency = asked(source, drafter.of, ModelLatency, profile)
    if draft is profile.draft:
        return profile
    if stated is not None:
        stated += profile.draft.weights_bytes - draft.weights_bytes
    return replace(profile, draft=draft, stated_usable_kv_bytes=stated)


def _of_target(profile: Profile, name: str, time: float, cache: float, weights: float) -> ModelLatency:
    target = profile.target
    return ModelLatency(
        name=name,
        forms={each: form.scaled(time, cache) for each, form in target.forms.items()},
        form=target.form,
        kv_bytes_per_token=round(cache * target.kv_bytes_per_token),
        weights_bytes=round(weights * target.weights_bytes),
        overhead_s=profile.draft.overhead_s,
        request_s=profile.draft.request_s,
        graph_tokens=profile.draft.graph_tokens,
        context_range=target.context_range,
        batched_range=target.batched_range,
    )


def drafter_from_mapping(
    mapping: Mapping[str, Any],
    source: str,
    folder: Path = Path(),
    plugins: Mapping[str, ModuleType] | None = None,
) -> Drafter:
    """Return the drafter that a YAML in `folder` describes; its `_target_` may name what is in `plugins`.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    return KINDS.made(CheckedMapping(source, "", mapping), folder, plugins or {})


def _checked(kind: Callable[..., Drafter], keys: tuple[str, ...]) -> Maker[Drafter]:
    """Return what makes a drafter of checked keys."""

    def made(node: CheckedMapping, _: Path) -> Drafter:
        node.only(("kind", *keys), LABELS)
        return kind(**{key: _value(node, key) for key in keys})

    return made


def _layers_skipped(node: CheckedMapping, folder: Path) -> Drafter:
    drafter = _checked(LayersSkipped, ("layers", "skipped"))(node, folder)
    if node.values["skipped"] >= node.values["layers"]:
        node.fail("skipped", "below layers: at least one has to be left")
    return drafter


LABELS = ("description", "suggests")
KINDS: Kinds[Drafter] = Kinds(
    "drafter",
    {
        "separate": _checked(Separate, ("graphs", "launch_s")),
        "lookup": _checked(Lookup, ("pass_s",)),
        "layers_skipped": _layers_skipped,
        "heads": _checked(Heads, ("one_pass", "depth", "pass_share", "weights_share", "cache_share")),
    },
    Drafter,
    frozenset(LABELS),
    "docs/drafters.md",
)


def _value(node: CheckedMapping, key: str) -> Any:
    if key in ("graphs", "one_pass"):
        return node.flag(key)
    if key in ("layers", "skipped", "depth"):
        return node.whole(key)
    # No drafter is free.
    above = 0 if key in ("pass_s", "pass_share") else -inf
    return node.number(key, above=above, most=1 if key.endswith("_share") else inf)
