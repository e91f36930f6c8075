"""Notes on the choices of a run."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from specsim.config.groups import Choices
from specsim.config.schema import Shed
from specsim.core.request import Requests
from specsim.errors import SpecsimError
from specsim.latency.peaks import peak_notes
from specsim.pass_shape import PassShape
from specsim.runs.checks import batching_notes, budget_note, spelling_note
from specsim.runs.hardware import Fleet
from specsim.server.admission import Shedding
from specsim.simulation import Simulation


def choice_notes(chosen: Choices, served_on: Fleet, fit_notes: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the lines, or None; `fit_notes` are those of profiles and engines that are not fit for use."""
    for named, each in served_on.each():
        yield from peak_notes(each.truth, named)
    yield from fit_notes
    yield chosen.suggestion_note
    yield spelling_note(chosen.scheduler)
    yield from batching_notes(chosen.engine, chosen.scheduler)
    for named, each in served_on.each():
        yield budget_note(chosen.scheduler, each.truth, named)


RARELY = 0.1
"""Share of decoding steps below which a scheduler hardly drafts."""


def hardly_drafts(scheduler: str, rows: Mapping[str, Any], iterations: int, simulation: Simulation) -> tuple[str, ...]:
    """Return a line where few of the decoding steps of `rows`, of a run of `iterations`, had a draft token.

    It compares the strictest TPOT objective with a step of one draft a request at the mean batch and context.
    """
    steps, drafted = int(rows["verifications"].sum()), int(rows["speculations"].sum())
    if not steps or drafted >= RARELY * steps:
        return ()
    said = f"{scheduler} drafted in {drafted / steps:.0%} of its decoding steps"
    batch = max(round(steps / iterations), 1)
    context = np.average(rows["prompt_tokens"] + rows["output_tokens"] / 2, weights=rows["verifications"])
    cached, one = np.full(batch, round(context)), np.ones(batch, dtype=np.int64)
    belief, objectives_s = simulation.belief, simulation.requests.tpot_slo_s
    step_s = belief.draft.seconds(PassShape.of(cached, one)) + belief.target.seconds(PassShape.of(cached, one, one))
    strictest_s = float(np.fmin.reduce(objectives_s, initial=np.inf))
    if step_s <= strictest_s:
        return (said,)
    return (
        f"{said}: a step with one draft for each of {batch} requests, its mean batch, takes {1000 * step_s:.1f} ms, "
        f"the strictest TPOT objective is {1000 * strictest_s:.1f} ms",
    )


def shedding(shed: Shed, clients: int | None, requests: Requests) -> Shedding | None:
    """Return which requests are refused at their arrival, None for none; `clients` are those of a closed loop.

    Raises
    ------
    SpecsimError
        One line when clients of a closed loop would send at once what is refused, or no request has
        the objective.
    """
    waiting, ttft = shed.waiting, shed.ttft
    if waiting is None and not ttft:
        return None
    if clients is not None:
        said = f"shed and concurrency={clients}: a client sends its next request when one is refused"
        raise SpecsimError(f"{said}; expected one of them")
    if ttft and bool(np.isnan(requests.ttft_slo_s).all()):
        raise SpecsimError("shed.ttft=true: changes nothing: no request has a TTFT objective")
    return Shedding(waiting, ttft)
