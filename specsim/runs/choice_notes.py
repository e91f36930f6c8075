"""Lines about what a run's configuration chose: hardware, engine, scheduler and drafter, one by one and together."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from specsim.latency.peaks import peak_notes
from specsim.runs.chosen import source, suggestion_note
from specsim.runs.hardware import Fleet
from specsim.runs.matching import batching_notes, budget_note, eagle_notes, spelling_note


def choice_notes(config: Mapping[str, Any], served_on: Fleet, fit_notes: Sequence[str | None]) -> Iterator[str | None]:
    """Yield the lines, or None; `fit_notes` are those of profiles and engines that are not fit for use."""
    scheduler, named_scheduler = config["scheduler"], source("scheduler", config)
    for named, each in served_on.each():
        yield from peak_notes(each.truth, named)
    yield from fit_notes
    yield suggestion_note(config)
    yield from eagle_notes(config["choices"], config["acceptance"], served_on.first.truth)
    yield spelling_note(config["choices"]["scheduler"], scheduler)
    yield from batching_notes(config["engine"], source("engine", config), scheduler, named_scheduler)
    for named, each in served_on.each():
        yield budget_note(scheduler, each.truth, named)
