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
SPECULATION = ("draft_launch_s", "layer_launch_s", "undrafted_s", "undrafted_request_s", "drafted_token_s")
LATER = (*SPECULATION, "piecewise_factor", "eager_factor", "trailing_steps", "graph_requests", "graph_multiples")
"""Keys that an older file of somebody's own lacks."""
LIMITS = ("max_num_batched_tokens", "max_num_seqs")
BATCHING = ("batching", *LIMITS, "large_a100", "reserves", "lookahead", "chunked_prefill")
"""Keys that say how the engine batches; without `batching` it mixes."""
LABELS = ("description", "source", "misfit")
"""Beside the keys; `misfit` says why a calibration is not fit for use."""
VERIFICATIONS = ("tree_attention", "batch_expansion")
ORDERS = ("prompts_first", "mixed")
RESERVES = ("prompt", "max_tokens", "estimate")
GPU_SIZES = ("large_gpu", "other")
FURTHER = {"max_num_batched_tokens": "blackwell", "max_num_seqs": "speculating", "pipeline_steps": "speculating"}
"""The case that a key may have beside the others, and which goes before them."""
GPU_GENERATIONS = ("blackwell", "other")
BLACKWELL = ("B200", "B300")
"""Parts of the names of Blackwell's data-center GPUs, GB200 and GB300 included."""
LARGE_GPU_BYTES = 70 * 2**30
"""Memory from which vLLM takes a GPU as large, an A100 excepted (`EngineArgs.get_batch_defaults`)."""
MOST_GRAPH_TOKENS = 1 << 16
MOST_STEPS = 8
MOST_FACTOR = 100


class Batches(NamedTuple):
    """How an engine batches.

    Attributes
    ----------
    order : "prompts_first" reads whole prompts in passes of their own, "mixed" reads chunks of them beside the decodes.
    max_num_seqs : most requests that hold cache.
    max_num_batched_tokens : most tokens of a mixed pass, draft tokens included; most prompt tokens of a prompt pass.
    lookahead : whether a mixed batch keeps cache for drafts: see `specsim.schedulers.sarathi.TokenBudget`.
    chunked_prefill : whether a prompt longer than a prompt pass is read in several; a mixed engine always does so.
    reserves : what has cache to come at admission: see `specsim.schedulers.parts.batching.RESERVES`.
    """

    order: str = "mixed"
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 2048
    lookahead: bool = False
    chunked_prefill: bool = False
    reserves: str = "prompt"


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
    drafted_token_s : further host seconds for each drafted token of a verification.
    piecewise_factor : on the kernels of a captured pass of decodes where a table changes the number of drafts.
    eager_factor : on the kernels of a pass of decodes that no captured graph holds, of a mixture of experts.
    trailing_steps : verifications that a request is in behind its last token: those decided before it was known.
    graph_tokens : sizes, rising, that the batched tokens of a pass are padded to; a larger pass is not padded.
    graph_requests : sizes, rising, that the requests of a draft pass or of a verification are padded to, each as wide
        as the others; empty: such passes are padded by tokens as well.
    graph_multiples : whether the sizes are rounded up to multiples of the tokens that a request verifies.
    blackwell : the `graph_tokens` and the `eager_factor` on Blackwell's data-center GPUs; None: the same.
    expands : whether a verification is a batch of sequences, one for each tree node, that read their context again.
    pipeline_steps : steps that are decided before a step ends. An arrival waits for so many more.
    speculating_steps : as many where speculation is configured; None: as many as without.
    frontend_s : seconds from a request's arrival to its place in the engine's queue.
    batches, large_batches : how it batches, and on a large GPU. large_a100 : whether an A100 of 80 GB is one.
    blackwell_tokens : most tokens of a pass on Blackwell's data-center GPUs; None: as on a large GPU.
    speculating_seqs : most requests that hold cache where speculation is configured; None: as many as without.
    batching : the order of the batches as its file states it; None: it does not say.
    misfit : why its calibration is not fit for use; None: it is, or it has none.
    """

    overhead_s: float | None = None
    request_s: float = 0.0
    sequence_s: float | None = None
    speculation_s: float = 0.0
    draft_launch_s: float | None = None
    layer_launch_s: float = 0.0
    undrafted_s: float = 0.0
    undrafted_request_s: float = 0.0
    drafted_token_s: float = 0.0
    piecewise_factor: float = 1.0
    eager_factor: float = 1.0
    trailing_steps: int = 0
    graph_tokens: tuple[int, ...] = ()
    graph_requests: tuple[int, ...] = ()
    graph_multiples: bool = False
    blackwell: tuple[tuple[int, ...], float] | None = None
    expands: bool = False
    pipeline_steps: int = 0
    speculating_steps: int | None = None
    frontend_s: float = 0.0
    batches: Batches = V1
    large_batches: Batches = V1
    large_a100: bool = False
    blackwell_tokens: int | None = None
    speculating_seqs: int | None = None
    batching: str | None = None
    misfit: str | None = None

    def steps_ahead(self, *, speculating: bool) -> int:
        """Return the steps that are decided before a step ends, where the server is configured to speculate or not."""
        steps = self.speculating_steps if speculating else None
        return self.pipeline_steps if steps is None else steps

    def batches_on(self, profile: Profile, *, speculating: bool = False) -> Batches:
        """Return how it batches on a profile's GPUs: large ones have 70 GiB each.

        An A100 is one with `large_a100` alone. `speculating` says whether the server is configured to speculate.
        The most tokens are of a pass: a step on a pipeline is as many passes as there are stages.
        """
        a100, large = "a100" in profile.hardware.lower(), profile.memory_bytes >= LARGE_GPU_BYTES * profile.gpus
        batches = self.large_batches if large and (self.large_a100 or not a100) else self.batches
        tokens = self.blackwell_tokens if _blackwell(profile) else None
        most = profile.pipeline_parallel_size * (tokens or batches.max_num_batched_tokens)
        seqs = self.speculating_seqs if speculating else None
        return batches._replace(max_num_batched_tokens=most, max_num_seqs=seqs or batches.max_num_seqs)

    def running(self, profile: Profile) -> Profile:
        """Return a profile whose passes this engine runs."""
        layers = profile.target.shape.num_hidden_layers if profile.target.shape else 0
        sizes, eager_factor = self._graphs(profile)
        draft = replace(self._running(profile.draft, self.graph_requests or sizes), graph_requests=self.graph_requests)
        if self.draft_launch_s is not None:
            least_s = max(draft.least_s, self.draft_launch_s)
            draft = replace(draft, overhead_s=0.0, request_s=0.0, sequence_s=None, least_s=least_s)
        target = replace(
            self._running(profile.target, sizes),
            graph_requests=self.graph_requests,
            speculation_s=self.speculation_s + draft.paid_step_s,
            drafted_token_s=self.drafted_token_s,
            eager_s=layers * self.layer_launch_s,
            eager_factor=eager_factor if profile.target.sparse else 1.0,
        )
        return replace(profile, target=target, draft=draft)

    def speculating(self, profile: Profile, by_table: bool = False, drafts: int = 0) -> Profile:
        """Return a profile that this engine runs, where its server is configured to speculate; the baseline stays.

        `by_table` says whether a table changes the number of drafts. `drafts` is the draft tokens that each request
        verifies, the most of a table; 0 where they vary.
        """
        sizes, width = profile.target.graph_tokens, drafts + 1 if self.graph_multiples else 1
        rounded = {-(-size // width) * width for size in sizes}
        sizes = tuple(sorted(size for size in rounded if size <= sizes[-1])) if width > 1 else sizes
        # It was fitted with the drafter's pass in it, which is one by itself where the drafter reads along.
        reading_s = (self.draft_launch_s or 0.0) if by_table else 0.0
        target = replace(
            profile.target,
            graph_tokens=sizes,
            undrafted_s=max(self.undrafted_s - reading_s, 0.0),
            undrafted_request_s=self.undrafted_request_s,
            piecewise_factor=self.piecewise_factor if by_table else 1.0,
        )
        draft = replace(profile.draft, graph_tokens=sizes) if width > 1 else profile.draft
        return replace(profile, target=target, draft=draft, stated_baseline_s=profile.baseline_s)

    def _graphs(self, profile: Profile) -> tuple[tuple[int, ...], float]:
        """Return the captured sizes on a profile's GPUs, and the factor beyond them."""
        if self.blackwell is not None and _blackwell(profile):
            return self.blackwell
        return self.graph_tokens, self.eager_factor

    def _running(self, model: ModelLatency, sizes: tuple[int, ...]) -> ModelLatency:
        overhead_s = model.overhead_s if self.overhead_s is None else self.overhead_s
        return replace(
            model,
            overhead_s=overhead_s,
            request_s=self.request_s,
            sequence_s=self.sequence_s,
            graph_tokens=sizes,
            expands=self.expands,
        )


def _blackwell(profile: Profile) -> bool:
    return any(name in profile.hardware for name in BLACKWELL)


def engine_from_mapping(mapping: Mapping[str, Any], source: str) -> Engine:
    """Return the engine that a YAML describes.

    Raises
    ------
    SpecsimError
        One line naming `source` and the key.
    """
    node = CheckedMapping(source, "", mapping)
    node.only(KEYS, (*LABELS, *BATCHING, *LATER))
    if node.values.get("graph_requests") is not None and not node.given("graph_tokens"):
        node.fail("graph_requests", "graph_tokens beside it")
    graphs, *on_blackwell = (_graphs(node, each) for each in reversed(GPU_GENERATIONS))
    return Engine(
        overhead_s=node.number("overhead_s") if node.given("overhead_s") else None,
        request_s=node.number("request_s"),
        sequence_s=node.number("sequence_s") if node.given("sequence_s") else None,
        speculation_s=node.number("speculation_s"),
        draft_launch_s=node.number("draft_launch_s") if node.given("draft_launch_s") else None,
        **{key: node.number(key) for key in SPECULATION[1:] if key in node.values},
        piecewise_factor=_factor(node, "piecewise_factor"),
        trailing_steps=node.whole("trailing_steps", 0, MOST_STEPS) if "trailing_steps" in node.values else 0,
        graph_tokens=graphs[0],
        graph_multiples="graph_multiples" in node.values and node.flag("graph_multiples"),
        graph_requests=_sizes(node, "graph_requests") if "graph_requests" in node.values else (),
        eager_factor=graphs[1],
        blackwell=None if on_blackwell == [graphs] else on_blackwell[0],
        expands=node.choice("verification", VERIFICATIONS) == "batch_expansion",
        pipeline_steps=_steps(node),
        speculating_steps=_further(node, "pipeline_steps", 0, MOST_STEPS),
        frontend_s=node.number("frontend_s"),
        batches=_batches(node, "other"),
        large_batches=_batches(node, "large_gpu"),
        large_a100="large_a100" in node.values and node.flag("large_a100"),
        blackwell_tokens=_further(node, "max_num_batched_tokens"),
        speculating_seqs=_further(node, "max_num_seqs"),
        batching=node.choice("batching", ORDERS) if node.given("batching") else None,
        misfit=node.text("misfit") if "misfit" in node.values else None,
    )


def _batches(node: CheckedMapping, gpu: str) -> Batches:
    """Return how an engine batches on a GPU of this size; a limit is a number, or a mapping of one for each size."""
    order = node.choice("batching", ORDERS) if node.given("batching") else V1.order
    limits: dict[str, int] = {}
    for name in filter(node.given, LIMITS):
        by_size = node.child(name) if isinstance(node.values[name], Mapping) else None
        if by_size is not None:
            by_size.only(GPU_SIZES, (FURTHER[name],))
        limits[name] = node.whole(name) if by_size is None else by_size.whole(gpu)
    chunked = node.given("chunked_prefill") and node.flag("chunked_prefill")
    if order == "mixed" and node.given("chunked_prefill") and not chunked:
        node.fail("chunked_prefill", "true where prompts are mixed with decodes, or batching: prompts_first")
    reserves = node.choice("reserves", RESERVES) if node.given("reserves") else V1.reserves
    return Batches(order, **limits, lookahead=_lookahead(node, order), chunked_prefill=chunked, reserves=reserves)


def _further(node: CheckedMapping, name: str, *bounds: int) -> int | None:
    """Return a key in its further case, None where it has none; `bounds` are those of a whole number."""
    case, given = FURTHER[name], node.values.get(name)
    return node.child(name).whole(case, *bounds) if isinstance(given, Mapping) and case in given else None


def _steps(node: CheckedMapping) -> int:
    """Return the steps decided ahead without speculation."""
    if not isinstance(node.values["pipeline_steps"], Mapping):
        return node.whole("pipeline_steps", 0, MOST_STEPS)
    by_case = node.child("pipeline_steps")
    by_case.only(("other", FURTHER["pipeline_steps"]))
    return by_case.whole("other", 0, MOST_STEPS)


def _lookahead(node: CheckedMapping, order: str) -> bool:
    lookahead = node.given("lookahead") and node.flag("lookahead")
    if lookahead and order != "mixed":
        node.fail("lookahead", "false where prompts are read first")
    if lookahead and node.values.get("reserves") == "max_tokens":
        node.fail("lookahead", "false where reserves is max_tokens")
    return lookahead


def _factor(node: CheckedMapping, key: str) -> float:
    return node.number(key, least=1, most=MOST_FACTOR) if key in node.values else 1.0


def _graphs(node: CheckedMapping, generation: str) -> tuple[tuple[int, ...], float]:
    """Return the captured sizes on GPUs of a generation, and the factor beyond them."""
    chosen = dict(node.values)
    for key in ("graph_most", "eager_factor"):
        if isinstance(node.values.get(key), Mapping):
            by_generation = node.child(key)
            by_generation.only(GPU_GENERATIONS)
            chosen[key] = by_generation.values[generation]
    own = CheckedMapping(node.source, node.key, chosen)
    return _sizes(own, "graph_tokens"), _factor(own, "eager_factor")


def _sizes(node: CheckedMapping, key: str) -> tuple[int, ...]:
    """Return the sizes that are named, then the multiples of the step up to the largest."""
    if not node.given(key):
        return ()
    named = node.wholes(key, 1, MOST_GRAPH_TOKENS)
    if any(after <= before for before, after in pairwise(named)):
        node.fail(key, "sizes that rise")
    step = node.whole("graph_step", 1, MOST_GRAPH_TOKENS)
    most = node.whole("graph_most", named[-1], MOST_GRAPH_TOKENS)
    return (*named, *(size for size in range(step, most + 1, step) if size > named[-1]))
