"""Lines about what a run's configuration chose: hardware, engine, scheduler and drafter, one by one and together."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from specsim.config.choices import Choices
from specsim.latency.peaks import peak_notes
from specsim.runs.hardware import Fleet
from specsim.runs.matching import batching_notes, budget_note, eagle_notes, spelling_note


def choice_notes(chosen: Choices, served_on: Fleet, fit_notes: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the lines, or None; `fit_notes` are those of profiles and engines that are not fit for use."""
    for named, each in served_on.each():
        yield from peak_notes(each.truth, named)
    yield from fit_notes
    yield chosen.suggestion_note
    yield from eagle_notes(chosen, served_on.first.truth)
    yield spelling_note(chosen.scheduler)
    yield from batching_notes(chosen.engine, chosen.scheduler)
    for named, each in served_on.each():
        yield budget_note(chosen.scheduler, each.truth, named)
