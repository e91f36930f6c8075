"""What an inference engine adds to its kernels: host time, padding, how it verifies trees, steps decided ahead."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from specsim.files.checked_mapping import CheckedMapping
from specsim.latency.model import ModelLatency, Profile

KEYS = (
    "overhead_s",
    "request_s",
    "sequence_s",
    "speculation_s",
    "graph_tokens",
    "graph_step",
    "graph_most",
    "verification",
    "pipeline_steps",
    "frontend_s",
)
LABELS = ("description", "source", "misfit")
"""Beside the keys; `misfit` says why a calibration is not fit for use."""
VERIFICATIONS = ("tree_attention", "batch_expansion")
MOST_GRAPH_TOKENS = 1 << 16
MOST_STEPS = 8


@dataclass(frozen=True, slots=True)
class Engine:
    """What an engine adds to its kernels.

    Attributes
    ----------
    overhead_s : host seconds of a pass that do not hide behind its kernels; None: those that the profile states.
    request_s : further host seconds for each request in a pass.
    sequence_s : further host seconds for each sequence beyond the first that `expands` makes of a request; None: as
        many as for a request.
    speculation_s : further host seconds of a verification of drafted tokens, however many.
    graph_tokens : sizes, rising, that the batched tokens of a pass are padded to; a larger pass is not padded.
    expands : whether a verification is a batch of sequences, one for each tree node, that read their context again.
    pipeline_steps : steps that are decided before a step ends. An arrival waits for so many more.
    frontend_s : seconds from a request's arrival to its place in the engine's queue.
    """

    overhead_s: float | None = None
    request_s: float = 0.0
    sequence_s: float | None = None
    speculation_s: float = 0.0
    graph_tokens: tuple[int, ...] = ()
    expands: bool = False
    pipeline_steps: int = 0
    frontend_s: float = 0.0

    def running(self, profile: Profile) -> Profile:
        """Return a profile whose passes this engine runs."""
        target = replace(self._running(profile.target), speculation_s=self.speculation_s)
        return replace(profile, target=target, draft=self._running(profile.draft))

    def _running(self, model: ModelLatency) -> ModelLatency:
        overhead_s = model.overhead_s if self.overhead_s is None else self.overhead_s
        return replace(
            model,
            overhead_s=overhead_s,
            request_s=self.request_s,
            sequence_s=self.sequence_s,
            graph_tokens=self.graph_tokens,
            expands=self.expands,
        )


def engine_from_mapping(mapping: Mapping[str, Any], source: str) -> Engine:
    """Return the engine that a YAML describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    node = CheckedMapping(source, "", mapping)
    node.only(KEYS, LABELS)
    return Engine(
        overhead_s=node.number("overhead_s") if node.given("overhead_s") else None,
        request_s=node.number("request_s"),
        sequence_s=node.number("sequence_s") if node.given("sequence_s") else None,
        speculation_s=node.number("speculation_s"),
        graph_tokens=_graph_tokens(node),
        expands=node.choice("verification", VERIFICATIONS) == "batch_expansion",
        pipeline_steps=node.whole("pipeline_steps", 0, MOST_STEPS),
        frontend_s=node.number("frontend_s"),
    )


def _graph_tokens(node: CheckedMapping) -> tuple[int, ...]:
    """Return the sizes that are named, then the multiples of the step up to the largest."""
    if not node.given("graph_tokens"):
        return ()
    named = node.wholes("graph_tokens", 1, MOST_GRAPH_TOKENS)
    if any(after <= before for before, after in pairwise(named)):
        node.fail("graph_tokens", "sizes that rise")
    step = node.whole("graph_step", 1, MOST_GRAPH_TOKENS)
    most = node.whole("graph_most", named[-1], MOST_GRAPH_TOKENS)
    return (*named, *(size for size in range(step, most + 1, step) if size > named[-1]))
