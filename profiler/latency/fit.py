"""Non-negative least squares of the linear and the roofline form, on relative errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from specsim.latency.forms import Form, Linear, Roofline, Table
from specsim.pass_shape import PassShapes

Floats = NDArray[np.float64]
ROOFLINE = ("delta_s", "gamma_s", "compute_delta_s", "compute_s", "alpha_s", "beta_s")
KNEES = (48, 96, 128, 192, 256, 384, 512)
ROUNDS = 60


@dataclass(frozen=True)
class Samples:
    """Passes as columns: kind, four token counts, requests, and the seconds to be fitted, each of one length."""

    kinds: NDArray[np.str_]
    context: Floats
    batched: Floats
    pairs: Floats
    logits: Floats
    requests: Floats
    seconds: Floats

    @classmethod
    def of(cls, rows: Iterable[tuple[str, float, float, float, float, float, float]]) -> Samples:
        """Return passes that are given one by one."""
        kinds, *columns = zip(*rows, strict=True)
        return cls(np.array(kinds), *(np.array(each, dtype=np.float64) for each in columns))

    def only(self, chosen: NDArray[np.bool_]) -> Samples:
        """Return the passes that `chosen` (n,) marks."""
        return Samples(*(getattr(self, column.name)[chosen] for column in fields(self)))

    def predicted_by(self, form: Form) -> Floats:
        """Return the seconds that a form gives each pass."""
        return form.seconds_array(PassShapes(self.context, self.batched, self.pairs, self.logits, self.requests, 0))

    @cached_property
    def weights(self) -> Floats:
        """1 / seconds, so that errors are relative; scaled so that each kind of pass has the same weight."""
        _, kind, count = np.unique(self.kinds, return_inverse=True, return_counts=True)
        return np.asarray(1.0 / (self.seconds * np.sqrt(count[kind])))


EXTRA: dict[str, Callable[[Samples], Floats]] = {
    "pair_s": lambda samples: samples.pairs,
    "logit_s": lambda samples: samples.logits,
}
OFFSETS: dict[str, Callable[[Samples], Floats]] = {
    "few_s": lambda samples: samples.batched,
    "few_logits_s": lambda samples: samples.logits,
}
FEW, SOME = 4, 16
"""The most tokens of a pass that have an offset, in a short list and in a long one: up to so many rows, libraries have
kernels of their own."""
TOLD = 2.0
"""Standard errors by which an offset is told from 0: at 95%. Passes held out say whether a list of them pays."""
Error: TypeAlias = float | None


@dataclass(frozen=True, slots=True)
class FittedForm:
    """A form, and the standard error of each coefficient (None for one at zero; a list for offsets)."""

    form: Linear | Roofline | Table
    standard_errors: dict[str, Error | list[Error]]


@dataclass(frozen=True, slots=True)
class ErrorStats:
    """Relative errors |form - composed| / composed of one kind of pass."""

    median: float
    p95: float
    worst: float


def solve(columns: Floats, samples: Samples) -> tuple[Floats, list[Error]]:
    """Non-negative weighted least squares: coefficients and standard errors, both one per column.

    The errors are those of ordinary least squares on the columns whose coefficients are not zero, given that the
    relative noise of all passes is alike: a pass of a rare kind has a larger weight, not less noise. They leave out the
    uncertainty of which columns these are, and of the side of the knee of each sample.
    """
    from scipy.optimize import nnls

    design = columns * samples.weights[:, None]
    wanted = samples.seconds * samples.weights
    scale = np.maximum(np.linalg.norm(design, axis=0), 1e-300)
    coefficients = nnls(design / scale, wanted, maxiter=1000)[0] / scale
    free = np.flatnonzero(coefficients)
    noise = np.linalg.norm(1 - design @ coefficients / wanted) / np.sqrt(max(len(wanted) - len(free), 1))
    spread = noise * np.linalg.norm(np.linalg.pinv((design / scale)[:, free]) * wanted, axis=1) / scale[free]
    errors: list[Error] = [None] * columns.shape[1]
    for column, error in zip(free, spread, strict=True):
        errors[column] = float(error)
    return coefficients, errors


def fit_linear(samples: Samples) -> FittedForm:
    """Fit `Linear`."""
    columns = np.column_stack([samples.context, samples.batched, np.ones_like(samples.batched)])
    values, errors = solve(columns, samples)
    form = Linear(*map(float, values))
    names = ("alpha_s", "gamma_s", "delta_s")
    return FittedForm(form, dict(zip(names, errors, strict=True)))


def fit_roofline(samples: Samples) -> FittedForm:
    """Fit a `Roofline` without a staircase, from several starting knees."""
    return fit_from(samples, KNEES, 1)


def fit_from(
    samples: Samples, knees: Iterable[float], tile: int, extra: tuple[str, ...] = (), few: int = FEW
) -> FittedForm:
    """Alternate between choosing the slower side of each sample and solving for the coefficients, from each knee.

    `extra` names optional coefficients of `EXTRA` and `OFFSETS` to fit, these of 1 to the most sampled of at most `few`
    tokens. With given sides the form is linear, so a fixed point is a stationary point of the true cost. The best round
    is kept, since the alternation may cycle; it ends at sides that were solved for before.
    """
    names = (*ROOFLINE, *(name for name in extra if name in EXTRA))
    counts = {name: OFFSETS[name](samples) for name in extra if name in OFFSETS}
    offsets = {name: range(1, int(max(each[each <= few], default=0)) + 1) for name, each in counts.items()}
    added = [EXTRA[name](samples) for name in names if name in EXTRA]
    added += [signed for name, sizes in offsets.items() for signed in _signed(counts[name], sizes)]
    found: dict[bytes, FittedForm] = {}
    for knee in knees:
        compute, products = samples.batched > knee, samples.pairs > 16 * samples.context
        for _ in range(ROUNDS):
            if (chosen := compute.tobytes() + products.tobytes()) in found:
                break
            columns = np.column_stack([roofline_columns(samples, compute, products, tile), *added])
            values, errors = solve(columns, samples)
            plain = len(names)
            found_few, few_errors = _offsets(offsets, samples, values[plain:], errors[plain:])
            coefficients: dict[str, Any] = dict(zip(names, map(float, values[:plain]), strict=True))
            form = Roofline(**coefficients, tile_tokens=tile, **found_few)
            standard_errors = {**dict(zip(names, errors[:plain], strict=True)), **few_errors}
            found[chosen] = FittedForm(form, standard_errors)
            compute, products = sides(form, samples)
    return min(found.values(), key=lambda each: cost(each.form, samples))


def _signed(tokens: Floats, sizes: range) -> Iterator[Floats]:
    """Yield two columns (n,) of each size, for an offset of either sign; they are 0 where no sample has the size."""
    for size in sizes:
        yield (tokens == size).astype(np.float64)
        yield -(tokens == size).astype(np.float64)


def _offsets(
    offsets: dict[str, range], samples: Samples, values: Floats, errors: list[Error]
) -> tuple[dict[str, Any], dict[str, list[Error]]]:
    """Return the offsets by name, and their standard errors, of the coefficients of `_signed` columns.

    A list ends with the last size whose offset is told from 0. A size before it that no sample has is offset as a line
    between its neighbours says.
    """
    few: dict[str, Any] = {}
    few_errors: dict[str, list[Error]] = {}
    first = 0
    for name, sizes in offsets.items():
        places = range(first, first + 2 * len(sizes), 2)
        fitted = np.array([values[place] - values[place + 1] for place in places])
        each = [errors[place] if errors[place] is not None else errors[place + 1] for place in places]
        told = [error is not None and abs(offset) > TOLD * error for offset, error in zip(fitted, each, strict=True)]
        count = max((place + 1 for place, tells in enumerate(told) if tells), default=0)
        known = np.flatnonzero(np.isin(sizes[:count], OFFSETS[name](samples)))
        if count:
            few[name] = tuple(np.interp(np.arange(count), known, fitted[known]).tolist())
            few_errors[name] = each[:count]
        first = places.stop
    return few, few_errors


def roofline_columns(samples: Samples, compute: NDArray[np.bool_], products: NDArray[np.bool_], tile: int) -> Floats:
    """Return the design matrix of `Roofline` for given slower sides of each sample."""
    tiles = -(-samples.batched // tile) * tile
    return np.column_stack(
        [
            ~compute,
            np.where(compute, 0.0, samples.batched),
            compute,
            np.where(compute, tiles, 0.0),
            np.where(products, 0.0, samples.context),
            np.where(products, samples.pairs, 0.0),
        ]
    )


def sides(form: Roofline, samples: Samples) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return for each sample whether compute is slower than memory, and attention's products than reading the cache."""
    tiles = -(-samples.batched // form.tile_tokens) * form.tile_tokens
    memory = form.delta_s + form.gamma_s * samples.batched
    compute = form.compute_delta_s + form.compute_s * tiles
    return compute >= memory, form.beta_s * samples.pairs >= form.alpha_s * samples.context


def cost(form: Form, samples: Samples) -> float:
    """Return the sum of squared weighted residuals."""
    residual = samples.predicted_by(form) - samples.seconds
    return float(np.sum((residual * samples.weights) ** 2))


def errors_by_kind(kinds: NDArray[np.str_], relative: Floats) -> dict[str, ErrorStats]:
    """Return the statistics of relative errors (n,) by kind of pass (n,)."""
    stats = {}
    for kind in dict.fromkeys(kinds.tolist()):
        of_kind = relative[kinds == kind]
        median, p95 = np.quantile(of_kind, [0.5, 0.95])
        stats[str(kind)] = ErrorStats(float(median), float(p95), float(of_kind.max()))
    return stats


def _plain(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values with lists instead of tuples, as YAML has them."""
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def coefficients(fitted: FittedForm) -> dict[str, Any]:
    """Return a form's coefficients in the order in which their errors stand, as a profile's YAML has them."""
    if isinstance(fitted.form, Table):
        return _plain(asdict(fitted.form))
    values = _plain({name: getattr(fitted.form, name) for name in fitted.standard_errors})
    return values | ({"tile_tokens": fitted.form.tile_tokens} if isinstance(fitted.form, Roofline) else {})


def fitted_keys(
    fits: dict[str, FittedForm], errors: dict[str, dict[str, ErrorStats]], samples: Samples
) -> dict[str, dict[str, Any]]:
    """Return what a profile says of the forms of one model: coefficients, their errors, and the range behind them."""
    return {
        "forms": {name: coefficients(fitted) for name, fitted in fits.items()},
        "standard_errors": {name: fitted.standard_errors for name, fitted in fits.items() if fitted.standard_errors},
        "held_out_error": {
            name: {kind: asdict(error) for kind, error in by_kind.items()} for name, by_kind in errors.items()
        },
        "valid": {
            "context_tokens": [int(samples.context.min()), int(samples.context.max())],
            "batched_tokens": [int(samples.batched.min()), int(samples.batched.max())],
        },
    }
