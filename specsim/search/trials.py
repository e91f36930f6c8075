"""The trials of a scheduler's settings: few seeds for many, more for those that do well (successive halving)."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Sequence
from math import ceil
from typing import TYPE_CHECKING

import numpy as np

from specsim.config.space import Combination, Space
from specsim.search.tuned import Score

if TYPE_CHECKING:
    from optuna import Study

MOST_SEEDS = 8
"""Seeds of the last two trials."""
BATCHES = 2
"""Of the trials that follow from those before, where there are more choices than trials."""
PATIENCE = 20
"""Proposals for each trial: a sampler may propose what was tried."""

RunChoices = Callable[[Sequence[tuple[int, Combination]], Sequence[int]], Sequence[Sequence[Score]]]
"""Runs choices, each with the place of its search, with some seeds; returns for each choice the score of each seed."""


class Search:
    """The trials of one scheduler.

    All choices are tried if they are no more than `trials`. Otherwise half of the trials are drawn, and the others are
    proposed by a tree-structured Parzen estimator (Bergstra et al., NIPS 2011; Optuna's), which sees what came of those
    before. It draws the same for the same scores, so a search that was stopped goes on where it was.
    """

    def __init__(self, space: Space, trials: int) -> None:
        self.space, self.trials = space, min(trials, len(space))
        self.scores: dict[Combination, list[Score]] = {}
        self._study = _study(self.trials // 2) if self.trials < len(space) else None

    def ask(self) -> list[Combination]:
        """Return the choices to try next; none once there were as many as asked for."""
        left = self.trials - len(self.scores)
        if self._study is None or not left:
            return list(self.space.choices()) if left else []
        most = self.trials // 2 if not self.scores else ceil((self.trials - self.trials // 2) / BATCHES)
        return self._proposed(self._study, min(left, max(most, 1)))

    def mean(self, choice: Combination) -> Score:
        """Return the mean score of a choice over its seeds."""
        return Score(*np.mean(self.scores[choice], axis=0).tolist())

    def ranked(self, among: Sequence[Combination] = ()) -> list[Combination]:
        """Return choices, those tried with the most seeds first, and of these the best."""
        return sorted(among or self.scores, key=lambda each: (-len(self.scores[each]), *(-x for x in self.mean(each))))

    def _proposed(self, study: Study, count: int) -> list[Combination]:
        from optuna.distributions import IntDistribution
        from optuna.trial import TrialState, create_trial

        places = {
            str(each): IntDistribution(0, len(values) - 1) for each, values in enumerate(self.space.values.values())
        }
        for choice in list(self.scores)[len(study.get_trials(states=(TrialState.COMPLETE,))) :]:
            params = {str(each): place for each, place in enumerate(choice)}
            value = self.scores[choice][0].measure
            study.add_trial(create_trial(params=params, distributions=dict(places), value=value))
        found: dict[Combination, None] = {}
        for _ in range(PATIENCE * count):
            if len(found) == count:
                break
            trial = study.ask(dict(places))
            choice = tuple(trial.params[name] for name in places)
            study.tell(trial, state=TrialState.FAIL)
            if choice not in self.scores:
                found[choice] = None
        fill = (each for each in self.space.choices() if each not in self.scores and each not in found)
        return [*found, *(next(fill) for _ in range(count - len(found)))]


def _study(drawn: int) -> Study:
    with warnings.catch_warnings():
        # In Jupyter without ipywidgets its import warns of a bar that it then draws as text.
        warnings.simplefilter("ignore")
        import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    return optuna.create_study(
        direction="maximize", sampler=optuna.samplers.TPESampler(seed=0, n_startup_trials=max(drawn, 1))
    )


def halved(searches: Sequence[Search], seeds: Sequence[int], run: RunChoices, say: Callable[[str], None]) -> None:
    """Try what each search asks for with the first of `seeds`, then its better half with twice as many, down to two.

    Every trial with so many seeds meets the same requests and texts (common random numbers).
    """
    while asked := [(place, each) for place, search in enumerate(searches) for each in search.ask()]:
        say(f"tuning: {len(asked)} trials with one seed")
        _hear(searches, asked, run(asked, seeds[:1]))
    alive, count = [search.ranked() for search in searches], 1
    while count < len(seeds) and any(len(each) > 2 for each in alive):
        alive = [
            search.ranked(each)[: max(2, ceil(len(each) / 2))] if len(each) > 2 else []
            for search, each in zip(searches, alive, strict=True)
        ]
        asked = [(place, each) for place, those in enumerate(alive) for each in those]
        say(f"tuning: {len(asked)} trials with {2 * count} seeds")
        _hear(searches, asked, run(asked, seeds[count : 2 * count]))
        count *= 2


def _hear(
    searches: Sequence[Search], asked: Sequence[tuple[int, Combination]], scores: Sequence[Sequence[Score]]
) -> None:
    for (place, choice), each in zip(asked, scores, strict=True):
        searches[place].scores.setdefault(choice, []).extend(each)
