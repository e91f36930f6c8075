"""Iterations of a run, which is made again: an observer keeps their token trees."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import copy
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, cast

import numpy as np

from specsim.config.points import HANDED
from specsim.core.passes import DraftPass, Emitted
from specsim.core.protocols import PassEvent, Scheduler, View
from specsim.core.request import Bools, Ints
from specsim.core.trees import Forest
from specsim.errors import SpecsimError
from specsim.figures.shown import Iteration
from specsim.files.checked_mapping import shown
from specsim.kernels.growth import MOST_PROPOSALS
from specsim.metrics.tables import STAND_IN
from specsim.runs.execute import Run
from specsim.runs.prepare import prepare
from specsim.schedulers.adaserve import SloTrees
from specsim.schedulers.composed import Composed
from specsim.schedulers.parts.protocols import Sequences
from specsim.simulation import run as run_simulation
from specsim.store.runs import StoredRun

if TYPE_CHECKING:
    from pandas import DataFrame


@dataclass(slots=True)
class ForSlo:
    """AdaServe's first selection among the candidates of this step, (nodes,); None before any."""

    forest: Forest | None = None
    chosen: Bools | None = None

    def of(self, forest: Forest) -> Bools | None:
        """Return it for these candidates, None where they were not selected from."""
        return self.chosen if self.forest is forest else None


class Iterations:
    """An observer that keeps some verifications of a run, by number, in `found`.

    `firsts` are what AdaServe's first selection took, a replica each; None where the scheduler has none.
    """

    def __init__(self, wanted: Iterable[int], class_names: Sequence[str], firsts: Sequence[ForSlo | None]) -> None:
        self._wanted, self._class_names, self._firsts = frozenset(wanted), class_names, firsts
        self._drafted: dict[int, PassEvent] = {}
        self._seen = 0
        self.found: dict[int, Iteration] = {}

    def on_pass(self, event: PassEvent) -> None:
        """Keep a verification that is wanted, with the trees that were drafted for it."""
        if isinstance(event.work, DraftPass):
            self._drafted[event.replica] = event
            return
        drafted, number = self._drafted.pop(event.replica, None), self._seen
        self._seen += 1
        if number in self._wanted:
            requests, nodes = _requests(event, self._class_names), self._nodes(event, drafted)
            self.found[number] = Iteration(number, event.start_s, requests, nodes)

    def _nodes(self, event: PassEvent, drafted: PassEvent | None) -> DataFrame:
        """Return the rows of `Iteration.nodes`: of what was drafted for these rows, else of what was verified."""
        from pandas import NA, DataFrame

        read = forest = event.work.forest
        if drafted is not None and np.array_equal(drafted.work.requests, event.work.requests):
            forest = cast(Forest, drafted.answer)
        verified = np.isin(_names(forest), _names(read))
        verified[: forest.rows] = True
        assert np.count_nonzero(verified) == len(read), "what is verified was not drafted last"
        selected = self._firsts[event.replica]
        right, first = event.oracle.right(forest), None if selected is None else selected.of(forest)
        drawn = np.arange(len(forest)) >= forest.rows
        accepted = drawn & right & verified & (forest.depth <= cast(Emitted, event.answer).accepted[forest.row])
        columns = {
            "request": event.work.requests[forest.row],
            "parent": forest.parent,
            "depth": forest.depth,
            "rank": forest.token,
            "probability": forest.probability,
            "path_probability": forest.path_probability,
            "verified": verified,
            "for_slo": NA if first is None else first & verified & drawn,
            "right": right,
            "accepted": accepted,
        }
        return DataFrame(columns).astype({"for_slo": "boolean"})


def _listened_to(scheduler: Scheduler) -> tuple[Scheduler, ForSlo | None]:
    """Return a scheduler, and where AdaServe's first selection of it will be noted: that without the second one."""
    if not (isinstance(scheduler, Composed) and isinstance(scheduler.speculation, SloTrees)):
        return scheduler, None
    part, noted = scheduler.speculation, ForSlo()
    kind, values = type(part), {each.name: getattr(part, each.name) for each in fields(part) if each.init}

    def chosen(trees: SloTrees, view: View, sequences: Sequences, forest: Forest) -> Bools:
        first = copy(trees)
        object.__setattr__(first, "fill", False)
        noted.forest, noted.chosen = forest, kind.chosen(first, view, sequences, forest)
        return kind.chosen(trees, view, sequences, forest)

    listened = type(kind.__name__, (kind,), {"chosen": chosen})
    return replace(scheduler, speculation=listened(**values)), noted


def _names(forest: Forest) -> Ints:
    """Return a number for each node, (nodes,), equal for equal nodes of the forests of one step."""
    names: Ints = forest.slot * MOST_PROPOSALS + forest.token
    return names


def _requests(event: PassEvent, class_names: Sequence[str]) -> DataFrame:
    """Return the rows of `Iteration.requests`."""
    from pandas import DataFrame

    ids, view, answer = event.work.requests, event.view, cast(Emitted, event.answer)
    emitted_before = view.emitted_tokens[ids] - answer.tokens
    return DataFrame(
        {
            "request": ids,
            "slo_class": [class_names[code] for code in view.slo_class[ids]],
            "tpot_slo_s": view.tpot_slo_s[ids],
            "decoding": emitted_before > 0,
            "decoded_tokens": np.maximum(emitted_before - 1, 0),
            "decoding_s": np.nan_to_num(event.start_s - view.first_decode_s[ids]),
            "accepted_tokens": answer.accepted,
            "emitted_tokens": answer.tokens,
        }
    )


def iterations(run: Run | StoredRun, numbers: Iterable[int], *, plugins: Sequence[str] = ()) -> list[Iteration]:
    """Return some iterations of a run, by number from 0, in that order; docs/python.md shows one.

    The run is made again in memory, with the same settings, and its scheduler listened to. Nothing is written.

    Parameters
    ----------
    plugins : those of a stored run, by the names that it was given: its files admit no code.

    Raises
    ------
    SpecsimError
        When a number is none of the run's, an object was handed in, or the run comes out differently: specsim, a
        plug-in or a file that it read has changed since.

    Examples
    --------
    >>> run = simulate("adaserve", "poisson", requests=20)
    >>> (step,) = iterations(run, [100])
    >>> bool(step.nodes["accepted"].sum() == step.requests["accepted_tokens"].sum())
    True
    """
    wanted = _checked(numbers, int(run.metrics["specsim"]["iterations"]))
    made_of = run.made_of
    for group in HANDED:
        if getattr(made_of.chosen, group).takes("object"):
            raise SpecsimError(f"iterations: {group} was given as an object; expected a run by names, to make it again")
    if isinstance(run, StoredRun):
        _check_admitted(run, [*made_of.settings.plugins], plugins)
    made = prepare(made_of).simulation
    firsts: list[ForSlo | None] = []
    seen = Iterations(wanted, made.requests.class_names, firsts)

    def scheduler() -> Scheduler:
        listened, noted = _listened_to(made.scheduler())
        firsts.append(noted)
        return listened

    record = run_simulation(
        replace(made, scheduler=scheduler, keep_passes=False, step_limit_s=None, observers=[lambda: seen])
    )
    if not np.array_equal(record.progress.finish_s, run.requests["finish_s"], equal_nan=True):
        raise SpecsimError(
            "iterations: the run comes out differently: specsim, a plug-in, the trace or the recording has changed; "
            "expected a run of today: make it again"
        )
    said = run.metrics["specsim"].get(STAND_IN)
    return [replace(seen.found[number], stand_in=said) for number in wanted]


def _check_admitted(run: StoredRun, named: list[str], plugins: Sequence[str]) -> None:
    """Refuse to load code for no other reason than that the files of a run, maybe somebody else's, name it."""
    admitted = [plugins] if isinstance(plugins, str) else list(plugins)
    if not all(each in admitted for each in named):
        raise SpecsimError(f"iterations: {run.folder}: its plugins are {shown(named)}; expected them in plugins=, too")


def _checked(numbers: Iterable[int], there: int) -> list[int]:
    """Return the numbers as a list; refuse what is no iteration of a run that has so many."""
    if isinstance(numbers, str) or not isinstance(numbers, Iterable):
        raise SpecsimError(f"iterations: {numbers!r:.60}: expected a list of numbers")
    wanted = list(numbers)
    if not there:
        raise SpecsimError("iterations: no request was served: the run has none")
    for each in wanted:
        if isinstance(each, bool) or not isinstance(each, int | np.integer) or not 0 <= each < there:
            raise SpecsimError(f"iterations: {each!r:.60}: the run has those from 0 to {there - 1}")
    return [int(each) for each in wanted]
