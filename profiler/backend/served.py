"""A simulation whose passes are real: its backend replaced by one that runs models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from profiler.attention.packing import Ints
from profiler.backend.backend import TorchBackend
from profiler.backend.drafting import LookupDrafter, ModelDrafter
from profiler.backend.future import ModelFuture, OracleText, oracle_text
from profiler.backend.known import Known, checked_prompts, random_tokens
from profiler.backend.rows import CachedSequences
from profiler.backend.stopwatch import DeviceStopwatch, Stopwatch, WallClock
from profiler.backend.text import ModelText, TraceText
from profiler.backend.verifying import Verifier
from profiler.passes.forward import PackedForward
from specsim.core.protocols import Backend, UsesOracle, View
from specsim.errors import SpecsimError
from specsim.simulated_backend import SimulatedBackend
from specsim.simulation import Simulation


@dataclass(frozen=True, slots=True)
class LookupMatch:
    """A prompt lookup in place of a draft model.

    Attributes
    ----------
    fewest, most : tokens of a match. confidence : probability of a proposal, whatever the length of its match.
    """

    fewest: int = 1
    most: int = 3
    confidence: float = 0.5


@dataclass(slots=True)
class Models:
    """A pair that serves, of one replica.

    Attributes
    ----------
    target : over a cache of `profiler.backend.rows.pages_for` pages. draft : a model likewise, or a lookup.
    vocabulary : token ids that both have.
    """

    target: PackedForward
    draft: PackedForward | LookupMatch
    vocabulary: int


def served(
    simulation: Simulation,
    models: Models,
    prompts: Sequence[Ints] | None = None,
    *,
    seed: int = 0,
    stopwatch: Stopwatch | None = None,
    emitted: Callable[[Known], None] | None = None,
    texts: Sequence[OracleText] | None = None,
    wall: bool = False,
) -> Simulation:
    """Return the simulation with real passes in place of simulated ones; the rest of it stays as it is.

    The clock is the engine's own, moved on by measured seconds: time without work is skipped. The scheduler's
    cost model, the memory that it may use and the host time of its own work are those of `simulation`. On the `wall`
    clock time goes by, see `profiler.backend.stopwatch.WallClock`, and the scheduler's own work takes what it takes.

    Parameters
    ----------
    prompts : token ids of each request: the text is then what the target says to them, decoded greedily to the lengths
        of the trace. None: the text is that of the acceptance trace, and the models read random tokens.
    seed : of the random tokens.
    stopwatch : tells the seconds of each pass; None: what they take on the target's device.
    wall : whether the run's clock goes with the wall's.
    emitted : is given the tokens of all requests, before the first pass.
    texts : of `texts_of` these prompts, where they are known; None: they are found out if the scheduler has an oracle.

    Raises
    ------
    SpecsimError
        When there are several replicas or shared prefixes, prompts are not those of the requests, or the drafter is not
        of the kind that the simulation's latency model prices.
    """
    _check(simulation, models)
    if prompts is not None:
        prompts = checked_prompts(prompts, simulation.requests, models.vocabulary)
    clock = stopwatch or DeviceStopwatch(models.target.device)
    if wall:
        # A wait for the next arrival is no step that takes too long.
        simulation = replace(simulation, selection_s=0.0, selection_token_s=0.0, step_limit_s=None)
    serving = _Serving(simulation, models, prompts, seed, clock, emitted, texts, wall=wall)
    return replace(simulation, backend=serving)


def _check(simulation: Simulation, models: Models) -> None:
    priced, looks_up = simulation.truth.draft, isinstance(models.draft, LookupMatch)
    if simulation.replicas != 1:
        raise SpecsimError(f"{simulation.replicas} replicas; expected 1: these models have one cache")
    if simulation.prefixes is not None:
        raise SpecsimError("prefix_caching: real passes share no blocks; expected false")
    if priced.cached == looks_up or priced.one_pass != looks_up or priced.expands:
        raise SpecsimError(
            "the latency model prices another kind of drafter; expected one with a cache and a pass per depth for a "
            "draft model, one without for a lookup, and no batch expansion"
        )


@dataclass(frozen=True, slots=True)
class _Serving:
    """Makes the backend of a run from its view; attributes are the arguments of `served`."""

    simulation: Simulation
    models: Models
    prompts: Sequence[Ints] | None
    seed: int
    clock: Stopwatch
    emitted: Callable[[Known], None] | None
    texts: Sequence[OracleText] | None
    wall: bool

    def __call__(self, view: View) -> Backend:
        models, simulation = self.models, self.simulation
        lengths, requests = simulation.ground_truth.output_tokens, len(simulation.requests)
        clock = WallClock(self.clock, lambda: view.now_s) if self.wall else self.clock
        prompts = self.prompts
        if prompts is None:
            counts = enumerate(simulation.requests.prompt_tokens.tolist())
            prompts = [random_tokens(self.seed, request, count, models.vocabulary) for request, count in counts]
        known = Known(prompts, lengths)
        if self.emitted is not None:
            self.emitted(known)
        draft = models.draft
        drafter: ModelDrafter | LookupDrafter
        if isinstance(draft, LookupMatch):
            drafter = LookupDrafter(known, clock, draft.fewest, draft.most, draft.confidence)
        else:
            drafter = ModelDrafter(draft, CachedSequences(draft, requests), known, view, clock, models.vocabulary)
        target = CachedSequences(models.target, requests)
        verifier = Verifier(models.target, target, known, view, drafter, clock, models.vocabulary)
        if self.prompts is None:
            acceptance_trace = SimulatedBackend(simulation.ground_truth, simulation.truth, view)
            text = TraceText(acceptance_trace, known, self.seed, models.vocabulary)
            return TorchBackend(verifier, drafter, text, acceptance_trace, view, clock)
        texts = self.texts or []
        if self.texts is None and isinstance(simulation.scheduler(), UsesOracle):
            texts = texts_of(models, prompts, lengths)
        return TorchBackend(
            verifier, drafter, ModelText(known, lengths, view), ModelFuture(texts, lengths, view), view, clock
        )


def texts_of(models: Models, prompts: Sequence[Ints], output_tokens: Ints) -> list[OracleText]:
    """Return what the target says to each prompt alone, in so many tokens, and where its drafter is right.

    The caches of both models must be free.
    """
    draft = models.draft
    by = (draft.fewest, draft.most) if isinstance(draft, LookupMatch) else draft
    return [
        oracle_text(models.target, by, prompt, count, models.vocabulary)
        for prompt, count in zip(prompts, output_tokens.tolist(), strict=True)
    ]
