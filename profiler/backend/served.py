"""A simulation whose passes are real: its backend replaced by one that runs models."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from profiler.backend.backend import TorchBackend
from profiler.backend.drafting import Drafter, ModelDrafter
from profiler.backend.future import ModelFuture, told
from profiler.backend.known import Known, checked_prompts, random_tokens
from profiler.backend.lookup import LookupDrafter
from profiler.backend.rows import Rows
from profiler.backend.stopwatch import DeviceStopwatch, Stopwatch
from profiler.backend.text import ModelText, TapeText
from profiler.backend.verifying import Verifier
from profiler.passes.forward import PackedForward
from profiler.passes.packing import Ints
from specsim.errors import SpecsimError
from specsim.replica.protocols import Backend, Clairvoyant, Foresight, View
from specsim.replica.request import Floats
from specsim.simulation import Simulation
from specsim.world.backend import SimulatedBackend


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

    def by_length(self) -> Floats:
        """Return the confidence of a match of each length from 0, (most + 1,)."""
        return np.full(self.most + 1, self.confidence)


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
) -> Simulation:
    """Return the simulation with real passes in place of simulated ones; the rest of it stays as it is.

    The clock is the engine's own, moved on by measured seconds: no time goes by while nobody has work. What a scheduler
    believes, the memory that it may use and the host time of its own work are those of `simulation`.

    Parameters
    ----------
    prompts : token ids of each request: the text is then what the target says to them, decoded greedily to the lengths
        of the trace. None: the text is that of the tape, and the models read random tokens.
    seed : of the random tokens.
    stopwatch : tells the seconds of each pass; None: what they take on the target's device.
    emitted : is given the tokens of all requests, before the first pass.

    Raises
    ------
    SpecsimError
        When there are several replicas or shared prefixes, prompts are not those of the requests, or the drafter is not
        of the kind that the simulation's latency model prices.
    """
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
    requests, lengths = simulation.requests, simulation.world.output_tokens
    if prompts is not None:
        prompts = checked_prompts(prompts, requests, models.vocabulary)
    clock = stopwatch or DeviceStopwatch(models.target.device)

    def backend(view: View) -> Backend:
        random = [
            random_tokens(seed, request, count, models.vocabulary)
            for request, count in enumerate(requests.prompt_tokens.tolist())
        ]
        known = Known(random if prompts is None else prompts, lengths)
        if emitted is not None:
            emitted(known)
        drafter = _drafter(models, known, view, clock, len(requests))
        target = Rows(models.target, len(requests))
        verifier = Verifier(models.target, target, known, view, drafter, clock, models.vocabulary)
        if prompts is None:
            tape = SimulatedBackend(simulation.world, simulation.truth, view)
            text = TapeText(tape, known, seed, models.vocabulary)
            return TorchBackend(verifier, drafter, text, tape, view, clock)
        future = _future(simulation, models, prompts, view)
        return TorchBackend(verifier, drafter, ModelText(known, lengths, view), future, view, clock)

    return replace(simulation, backend=backend)


def _drafter(models: Models, known: Known, view: View, clock: Stopwatch, requests: int) -> Drafter:
    draft = models.draft
    if isinstance(draft, LookupMatch):
        return LookupDrafter(known, clock, draft.fewest, draft.most, draft.by_length())
    return ModelDrafter(draft, Rows(draft, requests), known, view, clock, models.vocabulary)


def _future(simulation: Simulation, models: Models, prompts: Sequence[Ints], view: View) -> Foresight:
    """Return what a clairvoyant scheduler is told; of others nobody asks, so nothing is found out."""
    lengths, draft = simulation.world.output_tokens, models.draft
    if not isinstance(simulation.scheduler(), Clairvoyant):
        return ModelFuture([], lengths, view)
    by = (draft.fewest, draft.most) if isinstance(draft, LookupMatch) else draft
    texts = [
        told(models.target, by, prompt, count, models.vocabulary)
        for prompt, count in zip(prompts, lengths.tolist(), strict=True)
    ]
    return ModelFuture(texts, lengths, view)
