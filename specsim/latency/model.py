"""A profile: pass times of both models on a piece of hardware, and the memory left for KV cache."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from specsim.latency.forms import Form, Seconds
from specsim.pass_shape import Ints, PassShape, PassShapes

PROFILE_VERSION = 1
MEMORY_SHARE = 0.9
BASELINE_CONTEXT_TOKENS = 512
MOST_DEPTH = 1 << 20
MOST_MEDIAN = 0.10
"""The largest median of held-out relative errors of a kind of pass that is fit for use."""


class ModelShape(NamedTuple):
    """Sizes of a model by the names of its configuration on the Hugging Face hub."""

    num_hidden_layers: int
    hidden_size: int
    vocab_size: int


@dataclass(frozen=True, slots=True)
class ModelLatency:
    """One model's pass time and sizes; bytes are of the whole model, summed over its GPUs.

    - ``forms`` holds the fitted forms by name, ``form`` the name of the one in use.
    - ``overhead_s`` is the CPU and sampling time added to every pass.
    - ``context_range`` and ``batched_range`` are those of the samples behind the forms.
    - ``fit_error`` is the held-out relative error of the form in use, by kind of pass: median, p95 and worst.
    - ``misfit`` says why the fit is not fit for use; None: it is, or has no errors.
    - ``launch_s`` is the host time to launch a pass kernel by kernel; None: not measured.
    - ``least_s`` is the least time of a pass; 0 under CUDA graphs.
    - Of a drafter: ``one_pass`` says whether one pass proposes all depths of a step, ``cached`` whether it has a cache,
      ``max_depth`` the most tokens ahead that it proposes, ``step_s`` the seconds of its first pass of a step beyond
      those of a later one, which the engine books with the verification.
    - ``nonembedding_bytes`` are those of the weights that every batched token multiplies, all but the embedding and the
      head; None where the file does not state them.
    - ``max_model_len`` is the most tokens of a prompt and its output; None: no limit is stated.
    - ``shape`` is what heads are composed from; None: not stated.
    - ``request_s``, ``sequence_s``, ``speculation_s``, ``graph_tokens``, ``graph_requests`` and ``expands`` are the
      engine's (`specsim.latency.engine.Engine`). So are ``eager_s``, the least time of a pass beyond the captured
      sizes, ``drafted_token_s``, ``piecewise_factor`` on the kernels of a captured pass of decodes, ``eager_factor`` on
      those of larger ones, and ``undrafted_s`` and ``undrafted_request_s``, 0 unless the run's scheduler speculates.
    """

    name: str
    forms: Mapping[str, Form]
    form: str
    kv_bytes_per_token: int
    weights_bytes: int
    overhead_s: float
    context_range: tuple[float, float] = (0.0, float("inf"))
    batched_range: tuple[float, float] = (0.0, float("inf"))
    fit_error: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    launch_s: float | None = None
    least_s: float = 0.0
    one_pass: bool = False
    cached: bool = True
    max_depth: int = MOST_DEPTH
    step_s: float = 0.0
    request_s: float = 0.0
    sequence_s: float | None = None
    speculation_s: float = 0.0
    graph_tokens: tuple[int, ...] = ()
    graph_requests: tuple[int, ...] = ()
    expands: bool = False
    eager_s: float = 0.0
    undrafted_s: float = 0.0
    undrafted_request_s: float = 0.0
    drafted_token_s: float = 0.0
    piecewise_factor: float = 1.0
    eager_factor: float = 1.0
    nonembedding_bytes: int | None = None
    max_model_len: int | None = None
    shape: ModelShape | None = None
    misfit: str | None = None
    chosen: Form = field(init=False, repr=False, compare=False)
    _sizes: tuple[Ints, Ints] = field(init=False, repr=False, compare=False)
    _captured: int = field(init=False, repr=False, compare=False)
    _factored: bool = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "chosen", self.forms[self.form])
        object.__setattr__(self, "_captured", self.graph_tokens[-1] if self.graph_tokens else 0)
        sizes = np.array(self.graph_tokens, dtype=np.int64), np.array(self.graph_requests, dtype=np.int64)
        object.__setattr__(self, "_sizes", sizes)
        object.__setattr__(self, "_factored", self.eager_factor != 1 or self.piecewise_factor != 1)

    @property
    def bend_tokens(self) -> float | None:
        """Batched tokens from which on compute is the slower side; of a table without a bend those of its roofline.

        None for a line, and where the first tokens cost most (mixtures of experts).
        """
        bend, roofline = self.chosen.bend_tokens, self.forms.get("roofline")
        return roofline.bend_tokens if bend is None and roofline and self.form == "table" else bend

    @property
    def sparse(self) -> bool:
        """Whether most weights are of experts that a token does not use; False where the file does not state it."""
        return self.nonembedding_bytes is not None and self.nonembedding_bytes < self.weights_bytes / 2

    @property
    def paid_step_s(self) -> float:
        """The part of `step_s` that does not hide behind the launch of the step's first pass."""
        first_s = self.chosen.seconds(PassShape.decode(BASELINE_CONTEXT_TOKENS)) + self.step_s
        return max(0.0, min(self.step_s, first_s - self.least_s))

    @property
    def eager_above(self) -> float:
        """Batched tokens above which a pass of decodes takes `eager_factor` times as long; infinite if 1."""
        return self._captured if self.eager_factor != 1 else float("inf")

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass, overhead included."""
        run = self._run(shape) if self.graph_tokens or self.expands else shape
        seconds = self.chosen.seconds(run)
        if self._factored and not shape.prefill_tokens:
            seconds *= self.eager_factor if shape.batched_tokens > self._captured else self.piecewise_factor
        if self.eager_s and seconds < self.eager_s and shape.batched_tokens > self._captured:
            seconds = self.eager_s
        seconds += self.overhead_s + self._host_s(shape)
        if shape.logit_tokens > shape.requests:
            seconds += self.speculation_s + self.drafted_token_s * (shape.logit_tokens - shape.requests)
        elif shape.prefill_tokens < shape.batched_tokens:
            seconds += self.undrafted_s + self.undrafted_request_s * shape.requests
        return seconds if seconds > self.least_s or not self.least_s else self.least_s

    def seconds_array(self, shapes: PassShapes) -> Seconds:
        """Return the seconds of many passes."""
        run = self._runs(shapes) if self.graph_tokens or self.expands else shapes
        seconds = self.chosen.seconds_array(run)
        beyond = np.asarray(shapes.batched_tokens) > self._captured if self.eager_s or self._factored else False
        if self._factored:
            factor = np.where(beyond, self.eager_factor, self.piecewise_factor)
            seconds = seconds * np.where(np.asarray(shapes.prefill_tokens) > 0, 1.0, factor)
        if self.eager_s and np.any(beyond):
            seconds = np.maximum(seconds, self.eager_s * np.asarray(beyond))
        seconds = seconds + self.overhead_s
        if self.request_s or self.sequence_s:
            seconds = seconds + np.asarray(self._host_s(shapes))
        if self.speculation_s or self.undrafted_s or self.undrafted_request_s or self.drafted_token_s:
            requests = np.asarray(shapes.requests)
            drafted = np.asarray(shapes.logit_tokens) - requests
            undrafted_s = self.undrafted_s + self.undrafted_request_s * requests
            drafted_s = self.speculation_s + self.drafted_token_s * drafted
            decodes = np.asarray(shapes.prefill_tokens) < np.asarray(shapes.batched_tokens)
            seconds = seconds + np.where(drafted > 0, drafted_s, undrafted_s * decodes)
        return np.maximum(seconds, self.least_s) if self.least_s else seconds

    def _host_s(self, shape: PassShape | PassShapes) -> Any:
        """Return the host seconds of the requests of a pass, and of the further sequences that they expand to."""
        if not self.expands:
            return self.request_s * shape.requests
        if self.sequence_s is None:
            return self.request_s * shape.logit_tokens
        return self.request_s * shape.requests + self.sequence_s * (shape.logit_tokens - shape.requests)

    def _run(self, shape: PassShape) -> PassShape:
        """Return the shape as the engine runs it: padded to a captured size, contexts read again by tree nodes."""
        batched = shape.batched_tokens
        if self.graph_requests and batched == shape.logit_tokens > shape.requests > 0:
            place = bisect_left(self.graph_requests, shape.requests)
            if place < len(self.graph_requests):
                batched = -(-batched * self.graph_requests[place] // shape.requests)
        else:
            place = bisect_left(self.graph_tokens, batched)
            batched = self.graph_tokens[place] if place < len(self.graph_tokens) else batched
        again = shape.repeated_tokens if self.expands else 0
        return PassShape(shape.context_tokens + again, batched, *shape[2:])  # A third of the time of _replace.

    def _runs(self, shapes: PassShapes) -> PassShapes:
        """Return `_run` of each."""
        batched = shapes.batched_tokens
        if self.graph_tokens:
            batched = _padded(np.asarray(batched), self._sizes[0])
            if self.graph_requests:
                tokens, requests = np.asarray(shapes.batched_tokens), np.asarray(shapes.requests)
                by_request = -(-tokens * _padded(requests, self._sizes[1]) // np.maximum(requests, 1))
                wide = (tokens > requests) & (tokens == shapes.logit_tokens) & (requests > 0)
                batched = np.where(wide, by_request, batched)
        if not self.expands:
            return shapes._replace(batched_tokens=batched)
        return shapes._replace(batched_tokens=batched, context_tokens=shapes.context_tokens + shapes.repeated_tokens)

    def extrapolates(self, shape: PassShape) -> bool:
        """Return whether a pass lies outside the range of the samples behind the forms."""
        least, most = self.context_range
        fewest, largest = self.batched_range
        return not (least <= shape.context_tokens <= most and fewest <= shape.batched_tokens <= largest)


def _padded(counts: Ints, sizes: Ints) -> Ints:
    """Return counts padded to the next of the sizes; those beyond the last are not padded."""
    return np.where(counts > sizes[-1], counts, sizes.take(sizes.searchsorted(counts), mode="clip"))


@dataclass(frozen=True, slots=True)
class Profile:
    """A target and a draft model on one piece of hardware; weights and caches of both share the memory.

    ``memory_bytes`` is the memory of all GPUs together, ``pipeline_parallel_size`` the stages that they make up.
    ``stated_alone_kv_bytes`` are those of the cache without a draft model, where they are more than its weights more.
    ``provenance`` names the datasets behind the numbers.
    """

    name: str
    version: int
    description: str
    hardware: str
    gpus: int
    memory_bytes: int
    target: ModelLatency
    draft: ModelLatency
    pipeline_parallel_size: int = 1
    stated_baseline_s: float | None = None
    stated_usable_kv_bytes: int | None = None
    stated_alone_kv_bytes: int | None = None
    provenance: tuple[Mapping[str, str], ...] = ()
    assumptions: tuple[str, ...] = ()

    @property
    def baseline_s(self) -> float:
        """Seconds of one target decode pass at batch 1 and context 512, overhead included, or as stated in the file."""
        if self.stated_baseline_s is not None:
            return self.stated_baseline_s
        return self.target.seconds(PassShape.decode(BASELINE_CONTEXT_TOKENS))

    @property
    def usable_kv_bytes(self) -> int:
        """Bytes of the KV pool of both models: 0.9 x memory - weights of both models, or as stated in the file."""
        if self.stated_usable_kv_bytes is not None:
            return self.stated_usable_kv_bytes
        weights = self.target.weights_bytes + self.draft.weights_bytes
        return int(MEMORY_SHARE * self.memory_bytes) - weights

    @property
    def unfit(self) -> str | None:
        """Why the fit of the target or of the draft, whichever is worse, is not fit for use, None where both are."""
        found = [
            (max((error.get("median", 0.0) for error in model.fit_error.values()), default=0.0), role, model.misfit)
            for role, model in (("target", self.target), ("draft", self.draft))
            if model.misfit is not None
        ]
        if not found:
            return None
        _, role, misfit = max(found)
        return f"not fit for use: {misfit} ({role}), above {100 * MOST_MEDIAN:.0f}%"

    @property
    def usable_kv_tokens(self) -> int:
        """Tokens that fit the pool if both models cache each."""
        return self.usable_kv_bytes // (self.target.kv_bytes_per_token + self.draft.kv_bytes_per_token)
