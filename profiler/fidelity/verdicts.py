"""How far simulated runs and predicted passes are from real ones, against targets and the noise of the machine."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from profiler.fidelity.study import REAL, REVERSE, SIMULATED
from specsim.core.request import Floats

if TYPE_CHECKING:
    from numpy.typing import NDArray
    from pandas import DataFrame

PASS_TARGETS = {"cpu": 0.05, "cuda": 0.03}
RUN_TARGETS = {"mean_tpot_ms": 0.05, "mean_e2el_ms": 0.05, "mean_ttft_ms": 0.10}
ATTAINMENT_TARGET = 0.03
ATTAINMENT = "slo_attainment"
KEYS = ["pair", "scheduler", "load"]
NOISES = 2
CLEAR = 1e-3
"""A gap between the two likeliest logits from which on another batch must not change the token."""
Key = tuple[str, str, float]


class Verdict(NamedTuple):
    """One number of a cell, of real and of simulated runs.

    Attributes
    ----------
    real, simulated : the number, of real runs in the mean. error : relative to the real one; of an attainment the
        difference. target : of it. noise : of real runs of that pair and load, likewise (`_noises`).
    """

    pair: str
    scheduler: str
    load: float
    metric: str
    real: float
    simulated: float
    error: float
    target: float
    noise: float

    @property
    def allowed(self) -> float:
        """The target, or twice the noise where that is larger."""
        return allowed(self.target, self.noise)

    @property
    def kept(self) -> bool:
        """Whether the error is within what is allowed."""
        return abs(self.error) <= self.allowed

    @property
    def bare(self) -> bool:
        """Whether the error is within the target, whatever the noise."""
        return abs(self.error) <= self.target

    @property
    def times(self) -> float:
        """The error in multiples of what is allowed."""
        return abs(self.error) / self.allowed


def allowed(target: float, noise: float) -> float:
    """Return the target, or twice the noise where that is known and larger."""
    return float(np.fmax(target, NOISES * noise))


def failed(cells: DataFrame) -> DataFrame:
    """Return the rows of runs that failed."""
    return cells[cells.error.notna()] if "error" in cells else cells[:0]


def faults(cells: DataFrame) -> int:
    """Return how many runs say something else than their target alone, where that is sure of its token."""
    return int(cells.differing_clearly.sum()) if "differing_clearly" in cells else 0


def _by_key(cells: DataFrame) -> Iterator[tuple[Key, DataFrame]]:
    for key, some in cells.groupby(KEYS, sort=False):
        pair, scheduler, load = cast(tuple[str, str, float], key)
        yield (pair, scheduler, float(load)), some


def run_verdicts(cells: DataFrame) -> list[Verdict]:
    """Return the verdicts on whole runs, the worst first; cells that failed on either side have none."""
    found = []
    for metric, target in {**RUN_TARGETS, ATTAINMENT: ATTAINMENT_TARGET}.items():
        noises = _noises(cells, metric)
        for key, some in _by_key(cells):
            real, simulated = _of(some, REAL, metric), _of(some, SIMULATED, metric)
            if len(real) and len(simulated):
                mean, noise = float(real.mean()), noises[key[0], key[2]]
                error = (float(simulated[0]) - mean) / _unit(metric, mean)
                found.append(Verdict(*key, metric, mean, float(simulated[0]), error, target, noise))
    return sorted(found, key=lambda each: -each.times)


def _noises(cells: DataFrame, metric: str) -> dict[tuple[str, float], float]:
    """Return by pair and load how far real runs of one cell lie apart, relative; of an attainment the difference.

    The median over the schedulers, so that a disturbance of one cell allows nothing there, of the mean difference of
    two runs (Gini's), which does not grow with their number. NaN where no cell has two.
    """
    apart: dict[tuple[str, float], list[float]] = {}
    for (pair, _, load), some in _by_key(cells):
        found, real = apart.setdefault((pair, load), []), _of(some, REAL, metric)
        if len(real) > 1:
            differences = np.abs(real[:, None] - real[None, :])[np.triu_indices(len(real), 1)]
            found.append(float(differences.mean()) / _unit(metric, float(real.mean())))
    return {key: float(np.median(each)) if each else np.nan for key, each in apart.items()}


def _of(cells: DataFrame, side: str, column: str) -> NDArray[np.float64]:
    """Return the numbers of one side's runs that have one."""
    return cells.loc[cells.side == side, column].dropna().to_numpy(dtype=float)


def _unit(metric: str, mean: float) -> float:
    return 1.0 if metric == ATTAINMENT or not mean else mean


class Shares(NamedTuple):
    """Why the mean E2E latency of a real and a simulated run differ, in shares of the real one.

    Attributes
    ----------
    gap : simulated less real. seconds : of it, from passes that take other seconds under the decisions of the real run.
    decisions : from decisions that differ since the clock did. text : from what is drafted and accepted; NaN where the
        models have not run on the simulated clock: `decisions` holds both there.
    decisions_back : the share of decisions taken the other way: measured seconds under the simulation's decisions,
        less the real run's; NaN as `text`.
    """

    pair: str
    scheduler: str
    load: float
    gap: float
    seconds: float
    decisions: float
    text: float
    decisions_back: float


def shares(cells: DataFrame) -> list[Shares]:
    """Return the shares of each cell's gap, the largest gap first; real runs are taken in the mean."""
    found = []
    for key, some in _by_key(cells):
        sides = {name: (_of(some, name, "own.e2el_s"), _of(some, name, "other.e2el_s")) for name in (REAL, REVERSE)}
        simulated = _of(some, SIMULATED, "own.e2el_s")
        if not len(sides[REAL][0]) or not len(simulated):
            continue
        whole, other = (float(each.mean()) for each in sides[REAL])
        end = float(simulated[0])
        between, reverse = (float(each[0]) if len(each) else np.nan for each in sides[REVERSE])
        text = end - between
        decisions = end - other if np.isnan(text) else between - other
        steps = [end - whole, other - whole, decisions, text, reverse - whole]
        found.append(Shares(*key, *(each / whole for each in steps)))
    return sorted(found, key=lambda each: -abs(each.gap))


def pass_errors(passes: DataFrame, *, by_size: bool) -> list[Any]:
    """Return the errors of predictions, relative to what was measured, the worst first, as named tuples.

    A row is of a `pair`, a `kind` and a `size` (batched tokens up to a power of two, or all): the number of `passes`,
    of their errors without signs `median` and `p90`, their `mean`, and `noise`, the median difference of a pass from
    the same pass of another repeat over the root of 2, as they err alike; NaN without one.
    """
    some = passes[passes.measured_s > 0]
    power = np.ceil(np.log2(some.batched_tokens)).astype(int) if by_size else 0
    error = some.predicted_s / some.measured_s - 1
    columns = some.assign(power=power, error=error, apart=error.abs(), noise=_noise(some))
    found = columns.groupby(["pair", "kind", "power"], as_index=False).agg(
        passes=("error", "size"),
        median=("apart", "median"),
        p90=("apart", lambda each: each.quantile(0.9)),
        mean=("error", "mean"),
        noise=("noise", "median"),
    )
    sizes = [f"{2 ** (each - 1) + 1}-{2**each}" if each > 1 else str(2**each) for each in found.power]
    found["size"] = sizes if by_size else "all"
    return list(found.sort_values("median", ascending=False, kind="stable").itertuples(index=False))


def _noise(passes: DataFrame) -> NDArray[np.float64]:
    """Return how far each pass is from another of its very shape, relative, in deviations of one; NaN for one alone."""
    alike = passes.groupby(["pair", "kind", "requests", "context_tokens", "batched_tokens", "attention_pairs"])
    # Half of them apart, so that the other one is of another repeat.
    other = alike.measured_s.transform(lambda each: np.roll(each, len(each) // 2))
    alone = alike.measured_s.transform("size") == 1
    found: NDArray[np.float64] = np.where(alone, np.nan, (passes.measured_s / other - 1).abs() / np.sqrt(2))
    return found


class Step(NamedTuple):
    """A pass: who is in it, the tokens that each emits at its end (none: empty), and its seconds."""

    requests: tuple[int, ...]
    emitted: tuple[int, ...]
    seconds: float


class Times(NamedTuple):
    """When each request emitted its first and its last token, in seconds, NaN for none, and how many tokens, (N,)."""

    first_token_s: Floats
    finish_s: Floats
    tokens: Floats

    def means(self, arrival_s: Floats) -> dict[str, float]:
        """Return the means of TTFT, TPOT and E2E latency in seconds, of requests that arrive at `arrival_s` (N,)."""
        with np.errstate(invalid="ignore"):
            tpot_s = (self.finish_s - self.first_token_s) / np.where(self.tokens > 1, self.tokens - 1, np.nan)
        whole = {
            "ttft_s": self.first_token_s - arrival_s,
            "tpot_s": tpot_s,
            "e2el_s": self.finish_s - arrival_s,
        }
        return {name: float(np.nanmean(each)) if np.isfinite(each).any() else np.nan for name, each in whole.items()}


def accounted(steps: Iterable[Step], arrival_s: Floats) -> Times:
    """Return the times at which tokens come if passes take these seconds, in this order.

    A pass begins when the one before has ended and all of its requests (N, by index of `arrival_s`) have arrived.
    """
    now = 0.0
    first, last, count = np.full(len(arrival_s), np.nan), np.full(len(arrival_s), np.nan), np.zeros(len(arrival_s))
    for requests, emitted, seconds in steps:
        ids = np.array(requests, dtype=np.int64)
        now = max(now, float(arrival_s[ids].max(initial=0.0))) + seconds
        if emitted:
            tokens = np.array(emitted)
            ids, tokens = ids[tokens > 0], tokens[tokens > 0]
            first[ids[count[ids] == 0]] = now
            last[ids] = now
            count[ids] += tokens
    return Times(first, last, count)
