"""The two seams: a scheduler decides passes, a backend runs them; neither knows the other."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Generator, Mapping, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from specsim.core.passes import Decodes, Drafted, DraftPass, Emitted, Pass, Rounds, TargetPass
from specsim.core.request import Bools, Facts, Floats, Ids, Ints, Observed
from specsim.core.trees import Forest
from specsim.pass_shape import PassShape, PassShapes


class PassCosts(Protocol):
    """Seconds of one model's forward pass.

    `bend_tokens` are the batched tokens from which on compute is the slower side; None if it never is.
    """

    @property
    def bend_tokens(self) -> float | None: ...  # noqa: D102

    def seconds(self, shape: PassShape) -> float:
        """Return the seconds of one pass, overhead of the step included."""

    def seconds_array(self, shapes: PassShapes) -> Floats:
        """Return the seconds of many passes, of the shape that theirs broadcast to."""

    def extrapolates(self, shape: PassShape) -> bool:
        """Return whether a pass lies outside the range that the model was fitted on."""


class DraftCosts(PassCosts, Protocol):
    """Seconds of a drafter's pass.

    `one_pass` says whether one pass proposes all depths of a step, so that later ones cost nothing (prompt lookup,
    Medusa's heads); `cached` whether the drafter keeps a cache of its own, which has to be fed; `max_depth` how many
    tokens ahead it ever proposes; `expands` whether its engine makes a sequence of each token (batch expansion).
    """

    @property
    def one_pass(self) -> bool: ...  # noqa: D102
    @property
    def cached(self) -> bool: ...  # noqa: D102
    @property
    def max_depth(self) -> int: ...  # noqa: D102
    @property
    def expands(self) -> bool: ...  # noqa: D102


class CostModel(Protocol):
    """Seconds of passes of both models: the truth of a run, and the `cost_model` that its scheduler plans with."""

    @property
    def target(self) -> PassCosts:
        """The target model."""

    @property
    def draft(self) -> DraftCosts:
        """The drafter."""

    @property
    def baseline_s(self) -> float:
        """Seconds of one target decode pass at batch 1, context 512."""


class View(Facts, Observed, ABC):
    """The knowledge of a scheduler: facts told at arrival and counts seen since; read-only, indexed by request id.

    Nothing of the future is in here: no output length, no token of the target, no later arrival.

    Attributes
    ----------
    now_s : the event clock. cost_model : latency model. free_bytes : bytes of cache that are not held.
    drafter_bytes : of the drafter's weights, part of `capacity_bytes` while `drafter_away`; see `TargetPass`.
    forward_s : seconds of all forward passes so far, as a server times its kernels: neither the caches that were moved
        nor the scheduler's own work count.
    waiting : arrived requests without cache in the pool, in order of arrival here; some may have theirs on
        the host.
    running : requests that hold cache, in order of admission.
    arrival_s, prompt_tokens, max_tokens, slo_class, tpot_slo_s, ttft_slo_s : (N,) as in `Facts`; a row is empty until
        its request has arrived. Replicas share rows: a scheduler's own requests are those of `waiting` and `running`.
    emitted_tokens, target_cached, draft_cached, first_token_s, first_decode_s : (N,) as in `Observed`.
    """

    now_s: float
    forward_s: float
    cost_model: CostModel
    waiting: Sequence[int]

    @property
    @abstractmethod
    def running(self) -> Ids: ...  # noqa: D102
    @property
    @abstractmethod
    def free_bytes(self) -> int: ...  # noqa: D102
    @property
    @abstractmethod
    def capacity_bytes(self) -> int: ...  # noqa: D102
    @property
    @abstractmethod
    def drafter_bytes(self) -> int: ...  # noqa: D102
    @property
    @abstractmethod
    def drafter_away(self) -> bool: ...  # noqa: D102

    @abstractmethod
    def waits(self, ids: Ids | slice) -> Bools:
        """Return whether each request is among the waiting ones, (n,)."""

    @abstractmethod
    def pending(self, ids: Ids) -> Ints:
        """Return the tokens that the target's cache still lacks, (n,): 1 when decoding."""

    @abstractmethod
    def draft_pending(self, ids: Ids) -> Ints:
        """Return the tokens that the drafter's cache still lacks, (n,)."""

    @abstractmethod
    def growth_bytes(self, ids: Ids, target_cached: Ints, draft_cached: Ints) -> Ints:
        """Return the further bytes each request needs to cache so many tokens in all of each model, (n,)."""

    @abstractmethod
    def surely_fits(self, requests: int, target_cached: int, draft_cached: int) -> bool:
        """Return True only if so many more tokens of so many requests fit, whatever blocks they fall into: quick."""

    @abstractmethod
    def held_bytes(self, ids: Ids) -> Ints:
        """Return the bytes of cache that each request holds, (n,)."""


Step = Generator[Pass, Any, None]
"""One turn of the conversation: yields passes, is sent a Forest for a draft pass and an Emitted for a target pass."""


class Scheduler(Protocol):
    """A policy: which requests run, and how far it speculates."""

    def step(self, view: View) -> Step:
        """Yield the passes until the next scheduling point; a request not named in a pass does not run in it."""


class Oracle(Protocol):
    """The future of a run (an oracle), handed to a `UsesOracle` alone."""

    def output_tokens(self, ids: Ids) -> Ints:
        """Return how many tokens each request will emit in all, (n,)."""

    def right(self, forest: Forest) -> Bools:
        """Return which nodes of a forest drafted in this step are the target's own, roots included, (nodes,)."""

    def right_ahead(self, ids: Ids, most: int) -> Ints:
        """Return how many tokens of the drafter's likeliest chain would be right if drafted now, up to `most`, (n,)."""

    def rounds_left(self, ids: Ids, most: int) -> Ints:
        """Return how many verifications of the drafter's likeliest chain of `most` each request still needs, (n,).

        A prompt's pass is none of them.
        """

    def agreement(self, ids: Ids) -> Floats:
        """Return how often the drafter's likeliest token is right in the text of each request, in the mean, (n,)."""

    def target_probability(self, forest: Forest) -> Floats:
        """Return the target's own probability of each node drafted in this step given its path, 1 at roots, (nodes,).

        Off the target's path, where no target was asked, it is the drafter's confidence.
        """


@runtime_checkable
class Wide(Protocol):
    """A scheduler that says how many children of one node it ever asks for; any other scheduler asks for one."""

    @property
    def max_width(self) -> int: ...  # noqa: D102


@runtime_checkable
class Drafting(Protocol):
    """A scheduler that says whether it ever drafts; without drafts it never pays for speculation that is off."""

    @property
    def drafts(self) -> bool: ...  # noqa: D102


@runtime_checkable
class UsesOracle(Protocol):
    """A scheduler, or a part of one, that is told the future; its YAML says ``oracle: true``."""

    def use_oracle(self, oracle: Oracle) -> None:
        """Take what only the future knows, before the first step."""


@runtime_checkable
class Beginning(Protocol):
    """A scheduler, or a part of one, that keeps state a request."""

    def begin(self, requests: int) -> None:
        """Make the state of so many requests, which have the ids 0 to requests - 1; called once, before the first step.

        A `UsesOracle` has its oracle by then.
        """


@runtime_checkable
class Noting(Protocol):
    """A scheduler, or a part of one, that notes numbers of each request for ``requests.parquet``."""

    def noted(self, requests: int) -> Mapping[str, Floats]:
        """Return by name a number of each request, (requests,), NaN where there is none; asked at the end of a run."""


class PassEvent(NamedTuple):
    """One pass of a run, when it has ended.

    Attributes
    ----------
    replica : its index. start_s : when the scheduler asked for the pass; it ends at `view.now_s`.
    view : of the replica, the pass included: a request that has just ended still has its counts.
    work : the pass. answer : the grown forest of a draft pass, or what each row of a target pass emitted.
    oracle : what only the future knows, of this replica's requests.
    """

    replica: int
    start_s: float
    view: View
    work: Pass
    answer: Forest | Emitted
    oracle: Oracle


class Observer(Protocol):
    """Sees every pass of every replica of a run, and decides nothing.

    An observer with state a request is `Beginning`; a `Noting` one adds columns to ``requests.parquet``, as a scheduler
    does.
    """

    def on_pass(self, event: PassEvent) -> None:
        """Take a pass that has ended; passes of one replica come in order."""


class Backend(Protocol):
    """Runs passes and knows how long they took."""

    def move(self, work: Pass, shape: PassShape) -> float:
        """Move the caches that leave for the host or come back, and return the seconds it took.

        It is asked before the pass itself, only where some move.
        """

    def draft(self, work: DraftPass, shape: PassShape) -> Drafted:
        """Return the grown forest and what each pass took; `shape` is the first one's."""

    def verify(self, work: TargetPass, shape: PassShape) -> tuple[Emitted, float]:
        """Return what each row emitted and the seconds of the pass."""


def is_stationary(decider: object) -> bool:
    """Return whether the class of a scheduler, or of a part of one, says of itself that it is ``stationary``.

    Only then is a `stationary_until_s` of its passes or rows its own. No class inherits the promise, and none is bound
    by that of what it wraps: both may decide otherwise from one step to the next, or count their calls.
    """
    return bool(vars(type(decider)).get("stationary", False))


@runtime_checkable
class MultiStepBackend(Protocol):
    """A backend that can tell several passes at once; a backend with real models has to run each."""

    def decodes(self, work: TargetPass, most: int, past_finishes: bool) -> Decodes:
        """Return at most `most` passes of these decoding rows, up to the first end, or `past_finishes` to the last."""

    def rounds(self, work: DraftPass, least: int, most: int, within_s: float, further: int) -> Rounds | None:
        """Return rounds of chains for these decoding rows, the first of which begins with this pass.

        There are `least` to `most`, and about as many as end `within_s` and `further` ones; else the answer is None. No
        round begins where a chain of `depth` tokens is longer than what a row may emit beside the bonus token.
        """
