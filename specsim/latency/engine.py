"""Inference engines, beside their kernels: host time, padding, how it verifies trees, how it batches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple

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
SPECULATION = ("draft_launch_s", "layer_launch_s", "undrafted_s", "undrafted_request_s")
"""Keys of an engine that speculates; an older file of somebody's own lacks them."""
BATCHING = ("batching", "max_num_batched_tokens", "max_num_seqs", "lookahead")
"""Keys that say how the engine batches; without `batching` it mixes."""
LABELS = ("description", "source", "misfit")
"""Beside the keys; `misfit` says why a calibration is not fit for use."""
VERIFICATIONS = ("tree_attention", "batch_expansion")
ORDERS = ("prompts_first", "mixed")
GPU_SIZES = ("large_gpu", "other")
LARGE_GPU_BYTES = 70 * 2**30
"""Memory from which vLLM takes a GPU as large, an A100 excepted (`EngineArgs.get_batch_defaults`)."""
MOST_GRAPH_TOKENS = 1 << 16
MOST_STEPS = 8


class Batches(NamedTuple):
    """How an engine batches.

    Attributes
    ----------
    order : "prompts_first" reads whole prompts in passes of their own, "mixed" reads chunks of them beside the decodes.
    max_num_seqs : most requests that hold cache.
    max_num_batched_tokens : most tokens of a mixed pass, draft tokens included; most prompt tokens of a prompt pass.
    lookahead : whether a mixed batch keeps cache for drafts: see `specsim.schedulers.sarathi.TokenBudget`.
    """

    order: str = "mixed"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    lookahead: bool = False


V1 = Batches()


@dataclass(frozen=True, slots=True)
class Engine:
    """An engine, beside its kernels.

    Attributes
    ----------
    overhead_s : host seconds of a pass that do not hide behind its kernels; None: those that the profile states.
    request_s : further host seconds for each request in a pass.
    sequence_s : further host seconds for each sequence beyond the first that `expands` makes of a request; None: as
        many as for a request.
    speculation_s : further host seconds of a verification of drafted tokens, however many.
    draft_launch_s : least seconds of a pass of the drafter, which pays no other host time: it runs within a step. None:
        each pays the host time of a pass, as if it was a step.
    layer_launch_s : least seconds for each layer of the target in a pass that no captured graph holds.
    undrafted_s, undrafted_request_s : further host seconds of a pass without drafts, and of each request in it, where
        speculation is configured.
    graph_tokens : sizes, rising, that the batched tokens of a pass are padded to; a larger pass is not padded.
    expands : whether a verification is a batch of sequences, one for each tree node, that read their context again.
    pipeline_steps : steps that are decided before a step ends. An arrival waits for so many more.
    frontend_s : seconds from a request's arrival to its place in the engine's queue.
    batches, large_batches : how it batches, and on a large GPU.
    """

    overhead_s: float | None = None
    request_s: float = 0.0
    sequence_s: float | None = None
    speculation_s: float = 0.0
    draft_launch_s: float | None = None
    layer_launch_s: float = 0.0
    undrafted_s: float = 0.0
    undrafted_request_s: float = 0.0
    graph_tokens: tuple[int, ...] = ()
    expands: bool = False
    pipeline_steps: int = 0
    frontend_s: float = 0.0
    batches: Batches = V1
    large_batches: Batches = V1

    def batches_on(self, profile: Profile) -> Batches:
        """Return how it batches on a profile's GPUs: large ones have 70 GiB each and are no A100."""
        large = profile.memory_bytes >= LARGE_GPU_BYTES * profile.gpus and "a100" not in profile.hardware.lower()
        return self.large_batches if large else self.batches

    def running(self, profile: Profile) -> Profile:
        """Return a profile whose passes this engine runs."""
        layers = profile.target.shape.num_hidden_layers if profile.target.shape else 0
        eager_s = layers * self.layer_launch_s
        target = replace(self._running(profile.target), speculation_s=self.speculation_s, eager_s=eager_s)
        draft = self._running(profile.draft)
        if self.draft_launch_s is not None:
            least_s = max(draft.least_s, self.draft_launch_s)
            draft = replace(draft, overhead_s=0.0, request_s=0.0, sequence_s=None, least_s=least_s)
        return replace(profile, target=target, draft=draft)

    def speculating(self, profile: Profile) -> Profile:
        """Return a profile that this engine runs, where its server is configured to speculate; the baseline stays."""
        more_s, request_s = self.undrafted_s, self.undrafted_request_s
        target = replace(profile.target, undrafted_s=more_s, undrafted_request_s=request_s)
        return replace(profile, target=target, stated_baseline_s=profile.baseline_s)

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
    node.only(KEYS, (*LABELS, *BATCHING, *SPECULATION))
    return Engine(
        overhead_s=node.number("overhead_s") if node.given("overhead_s") else None,
        request_s=node.number("request_s"),
        sequence_s=node.number("sequence_s") if node.given("sequence_s") else None,
        speculation_s=node.number("speculation_s"),
        draft_launch_s=node.number("draft_launch_s") if node.given("draft_launch_s") else None,
        **{key: node.number(key) for key in SPECULATION[1:] if key in node.values},
        graph_tokens=_graph_tokens(node),
        expands=node.choice("verification", VERIFICATIONS) == "batch_expansion",
        pipeline_steps=node.whole("pipeline_steps", 0, MOST_STEPS),
        frontend_s=node.number("frontend_s"),
        batches=_batches(node, "other"),
        large_batches=_batches(node, "large_gpu"),
    )


def _batches(node: CheckedMapping, gpu: str) -> Batches:
    """Return how an engine batches on a GPU of this size; a limit is a number, or a mapping of one for each size."""
    order = node.choice("batching", ORDERS) if node.given("batching") else V1.order
    limits: dict[str, int] = {}
    for name in filter(node.given, BATCHING[1:3]):
        by_size = node.child(name) if isinstance(node.values[name], Mapping) else None
        if by_size is not None:
            by_size.only(GPU_SIZES)
        limits[name] = node.whole(name) if by_size is None else by_size.whole(gpu)
    return Batches(order, **limits, lookahead=_lookahead(node, order))


def _lookahead(node: CheckedMapping, order: str) -> bool:
    lookahead = node.given("lookahead") and node.flag("lookahead")
    if lookahead and order != "mixed":
        node.fail("lookahead", "false where prompts are read first")
    return lookahead


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
