"""The choice between forms of pass time, by their errors on held-out shapes of pass."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from itertools import combinations
from operator import attrgetter
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from profiler.latency.fit import (
    EXTRA,
    FEW,
    OFFSETS,
    SOME,
    ErrorStats,
    FittedForm,
    Samples,
    errors_by_kind,
    fit_from,
    fit_linear,
)
from profiler.latency.samples import Sample
from specsim.errors import SpecsimError
from specsim.latency.forms import Roofline

FOLDS = 5
FEWEST_SHAPES = 8
TILES = (8, 16, 32, 64, 128)
TERMS = [terms for count in range(len(EXTRA) + 1) for terms in combinations(EXTRA, count)]
CHOSEN = [names for count in range(len(OFFSETS) + 1) for names in combinations(OFFSETS, count)]
Lists = tuple[tuple[str, ...], int]
"""Names of lists of offsets, and the most tokens that they go up to."""
NONE: Lists = ((), FEW)
LEAST_GAIN = 0.1
"""The share of their error that a list of offsets must take off."""
KNEES = (2, 8, 32, 96, 192, 384)
Fit = Callable[[Samples], FittedForm]
Statistic = Literal["median", "mean"]
"""The statistic of the runs of a point."""


@dataclass(frozen=True, slots=True)
class CrossValidated:
    """A form fitted to all samples, and predictions of each sample by a fit without its shape.

    `held_out_s` (n,) are these predictions in the order of the samples, `errors` their relative errors by kind of pass.
    """

    fitted: FittedForm
    held_out_s: NDArray[np.float64]
    errors: dict[str, ErrorStats]

    @property
    def score(self) -> float:
        """Median + 95th percentile of the held-out relative error, averaged over kinds of pass."""
        return float(np.mean([error.median + error.p95 for error in self.errors.values()]))


@dataclass(frozen=True, slots=True)
class FormChoice:
    """Both forms of one model, judged on the same shapes."""

    samples: Samples
    linear: CrossValidated
    roofline: CrossValidated

    @property
    def forms(self) -> dict[str, CrossValidated]:
        """The forms by their names in a profile."""
        return {"roofline": self.roofline, "linear": self.linear}


def usable(samples: list[Sample], role: str) -> list[Sample]:
    """Return the measured samples of a role; of a point with replays only these."""
    of_role = [each for each in samples if each.role == role and each.status == "ok"]
    captured = {each.key for each in of_role if each.mode == "graph"}
    return [each for each in of_role if each.mode == "graph" or each.key not in captured]


def shapes_of(samples: list[Sample], role: str) -> set[str]:
    """Return the measured shapes of pass of a role."""
    return {each.shape for each in usable(samples, role)}


def judge(samples: list[Sample], role: str, statistic: Statistic = "median") -> FormChoice:
    """Fit both forms to a role's samples, the median or the mean of each; the roofline takes what has the least error.

    Raises
    ------
    SpecsimError
        When there are too few shapes to hold any out, or no means.
    """
    kept = usable(samples, role)
    if statistic == "mean" and any(each.mean_s != each.mean_s for each in kept):
        raise SpecsimError(f"{role}: samples without the means of their runs; expected a file written since format 3")
    # Every fold has shapes of each size.
    size = attrgetter("batched_tokens", "context_tokens", "key")
    shapes = list(dict.fromkeys(each.shape for each in sorted(kept, key=size)))
    check_shapes(role, shapes, "measured shapes of pass")
    number = {shape: place % FOLDS for place, shape in enumerate(shapes)}
    fold = np.array([number[each.shape] for each in kept])
    columns = as_columns(kept, statistic)
    few, most = _chosen_offsets(columns, fold)
    by_terms = {(*terms, *few): _judged(columns, fold, _roofline(1, (*terms, *few), most)) for terms in TERMS}
    by_terms = {extra: judged for extra, judged in by_terms.items() if _takes_time(judged)}
    extra = min(by_terms, key=lambda terms: by_terms[terms].score)
    rooflines = [by_terms[extra], *(_judged(columns, fold, _roofline(tile, extra, most)) for tile in TILES)]
    rooflines = [each for each in rooflines if _takes_time(each)]
    return FormChoice(columns, _judged(columns, fold, fit_linear), min(rooflines, key=lambda judged: judged.score))


def _chosen_offsets(samples: Samples, fold: NDArray[np.int64]) -> Lists:
    """Return the lists of offsets to fit: those of the least held-out error of passes that have any.

    A list is taken if the mean relative error of these passes falls by a tenth, and a long one for a short one if it
    falls by another, since noise lets it fall a little. That of all passes must not rise.
    """
    few = (samples.batched <= SOME) | (samples.logits <= SOME)
    if not few.any():
        return NONE
    lists = [NONE, *((names, most) for most in (FEW, SOME) for names in CHOSEN if names)]
    tried = {each: _judged(samples, fold, _roofline(1, (*EXTRA, *each[0]), each[1])) for each in lists}
    errors = {
        each: np.abs(judged.held_out_s / samples.seconds - 1)
        for each, judged in tried.items()
        if each == NONE or _takes_time(judged)
    }
    sound = [each for each, error in errors.items() if each == NONE or error.mean() <= errors[NONE].mean()]
    gains = {each: len(each[0]) + (each[1] == SOME) for each in sound}
    return min(sound, key=lambda each: float(errors[each][few].mean()) / (1 - LEAST_GAIN) ** gains[each])


def _takes_time(judged: CrossValidated) -> bool:
    """Return whether every pass of few tokens takes some time: noise of tiny models may deny it."""
    form = judged.fitted.form
    return not isinstance(form, Roofline) or not (form.few_s or form.few_logits_s) or form.shortest_s > 0


def check_shapes(role: str, shapes: Collection[str], which: str) -> None:
    """Refuse fewer shapes of pass than holding some out needs.

    Raises
    ------
    SpecsimError
        Naming how many there are.
    """
    if len(shapes) < FEWEST_SHAPES:
        raise SpecsimError(f"{role}: {len(shapes)} {which}; expected {FEWEST_SHAPES} at least to fit")


def as_columns(samples: list[Sample], statistic: Statistic = "median") -> Samples:
    """Return samples as columns; the modelled all-reduce is added to the measured seconds.

    Batched tokens are those that ran, padded to the captured size, as an engine that captures graphs pads its passes.
    """
    sizes = attrgetter("kind", "context_tokens", "captured_tokens", "attention_pairs", "logit_tokens", "requests")
    seconds = attrgetter(f"{statistic}_s")
    return Samples.of((*sizes(each), seconds(each) + each.all_reduce_s) for each in samples)


def _roofline(tile: int, extra: tuple[str, ...], few: int) -> Fit:
    return lambda samples: fit_from(samples, KNEES, tile, extra, few)


def _judged(samples: Samples, fold: NDArray[np.int64], fit: Fit) -> CrossValidated:
    predicted = np.empty(len(fold))
    for held_out in np.unique(fold):
        form = fit(samples.only(fold != held_out)).form
        predicted[fold == held_out] = samples.only(fold == held_out).predicted_by(form)
    relative = np.abs(predicted - samples.seconds) / samples.seconds
    return CrossValidated(fit(samples), predicted, errors_by_kind(samples.kinds, relative))
