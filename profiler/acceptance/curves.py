"""Statistics of a recording's drafter, by pure functions of its rows, and tables of a shipped recording for figures."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from profiler.acceptance.trace_file import RecordedTrace, read_acceptance_trace
from specsim.acceptance.curves import Acceptance
from specsim.acceptance.trace import STRETCHES, Pools, Stretches
from specsim.config.groups import names
from specsim.core.request import Bools, Floats, Ints
from specsim.errors import SpecsimError, nearest
from specsim.files.yaml_file import shipped
from specsim.rng import mix

if TYPE_CHECKING:
    from pandas import DataFrame

BINS = 10
FEWEST_TOKENS = 16
"""The least tokens of a text whose share right is counted."""


class OnPath(NamedTuple):
    """One category's rows on the target's text, text after text.

    Attributes
    ----------
    row : (n,) rows of the recording. text : (n,) index of the text, from 0. position : (n,).
    confidence : (n,) of the first proposal, right : (n,) whether it is the target's token.
    proposed : (n,) whether there is a proposal. A lookup has none at some positions, which are not right.
    """

    row: Ints
    text: Ints
    position: Ints
    confidence: Floats
    right: Bools
    proposed: Bools


class ByConfidence(NamedTuple):
    """Acceptance against confidence, (BINS,) each: rows, mean confidence and share right; NaN in empty bins."""

    rows: Ints
    confidence: Floats
    accepted: Floats


def on_path(acceptance_trace: RecordedTrace, category: str) -> OnPath:
    """Return one category's rows on the path.

    Raises
    ------
    SpecsimError
        When the category was not recorded.
    """
    if category not in acceptance_trace.categories:
        raise SpecsimError(f"category {category!r} was not recorded{nearest(category, acceptance_trace.categories)}")
    row = acceptance_trace.rows_of(category, on_path=True)
    _, text = np.unique(acceptance_trace.sequence[row], return_inverse=True)
    confidence = acceptance_trace.confidence[row, 0]
    # Both are 0 without a match; for a match of a length that was never right only the confidence is 0.
    proposed = (confidence > 0) | (acceptance_trace.target_probability[row, 0] > 0)
    return OnPath(row, text, acceptance_trace.position[row], confidence, acceptance_trace.rank[row] == 0, proposed)


def by_confidence(confidence: Floats, right: Bools) -> ByConfidence:
    """Return acceptance in ten equal bins of confidence (SpecServe Fig. 7)."""
    which = np.minimum((confidence * BINS).astype(np.int64), BINS - 1)
    rows = np.bincount(which, minlength=BINS)
    with np.errstate(invalid="ignore"):
        mean = np.bincount(which, weights=confidence, minlength=BINS) / rows
        accepted = np.bincount(which, weights=right, minlength=BINS) / rows
    return ByConfidence(rows, mean, accepted)


def calibration_error(bins: ByConfidence) -> float:
    """Return the mean over bins, weighted by rows, of |mean confidence - acceptance| (Guo et al. 2017, Eq. 3)."""
    gap = np.abs(bins.confidence - bins.accepted)
    return float(np.nansum(bins.rows * gap) / bins.rows.sum())


def run_before(rows: OnPath) -> Ints:
    """Return the length of the run of right tokens that ends just before each row, (n,).

    A chain may start anywhere in a text: its d-th token is at the rows behind d - 1 right ones or more.
    """
    index = np.arange(len(rows.right))
    begins = np.flatnonzero(np.diff(rows.text, prepend=-1))
    wrong = np.where(rows.right, 0, index + 1)
    last = np.maximum(np.concatenate(([0], np.maximum.accumulate(wrong)[:-1])), begins[rows.text])
    return np.asarray(index - last)


def request_rates(rows: OnPath) -> Floats:
    """Return the share right in each text of at least `FEWEST_TOKENS` tokens, (texts,)."""
    tokens = np.bincount(rows.text)
    rate: Floats = (np.bincount(rows.text, weights=rows.right) / tokens)[tokens >= FEWEST_TOKENS]
    return rate


class Settling(NamedTuple):
    """How fast a text's share right settles (LAPS-SD Fig. 3).

    Attributes
    ----------
    texts : number of texts of at least `least` tokens, twice the last mark; shorter ones are left out.
    distance : (marks,) |share right after so many tokens - share right of the whole text|, the mean over those texts;
        NaN if there are none.
    """

    texts: int
    least: int
    distance: Floats


class RoundMeans(NamedTuple):
    """Means of rounds along texts, each a chain that begins behind the last round's bonus token.

    Attributes
    ----------
    accepted : mean accepted tokens of a round, without the bonus token. none : share of the rounds that accept none.
    """

    accepted: float
    none: float


def rounds(rows: OnPath, depth: int) -> RoundMeans:
    """Return what rounds of chains of `depth` accept; a round that a text's end would cut is left out."""
    accepted, _ = each_round(rows, depth)
    if not len(accepted):
        return RoundMeans(np.nan, np.nan)
    return RoundMeans(float(accepted.mean()), float((accepted == 0).mean()))


def each_round(rows: OnPath, depth: int) -> tuple[Ints, Ints]:
    """Return the accepted tokens of each round of `rounds`, and its text, (rounds,) each."""
    found: list[int] = []
    texts: list[int] = []
    for text, right in enumerate(np.split(rows.right, np.cumsum(np.bincount(rows.text))[:-1])):
        start = 0
        while start + depth <= len(right):
            wrong = np.flatnonzero(~right[start : start + depth])
            found.append(int(wrong[0]) if len(wrong) else depth)
            texts.append(text)
            start += found[-1] + 1
    return np.array(found, dtype=np.int64), np.array(texts, dtype=np.int64)


def settling(rows: OnPath, marks: Ints) -> Settling:
    """Return the distance of the shares right after `marks` tokens from those of whole texts."""
    least, tokens = 2 * int(marks[-1]), np.bincount(rows.text)
    texts = [right for right in np.split(rows.right, np.cumsum(tokens)[:-1]) if len(right) >= least]
    distances = [np.abs(np.cumsum(right)[marks - 1] / marks - right.mean()) for right in texts]
    distance = np.mean(distances, axis=0) if texts else np.full(len(marks), np.nan)
    return Settling(len(texts), least, distance)


def clustered_error(values: Ints, text: Ints) -> float:
    """Return the standard error of the mean of values (n,), clustered by `text` (n,); NaN for a single text."""
    _, code = np.unique(text, return_inverse=True)
    surplus = np.bincount(code, weights=values - values.mean())
    texts = len(surplus)
    if texts < 2:
        return float("nan")
    return float(np.sqrt((surplus**2).sum() * texts / (texts - 1)) / len(values))


def half_width(values: Ints, text: Ints) -> float:
    """Return half of the 95% interval of the mean of values (n,), Student's with as many texts less one; or NaN."""
    from scipy.special import stdtrit

    return float(stdtrit(len(np.unique(text)) - 1, 0.975)) * clustered_error(values, text)


def shipped_recording(name: str) -> RecordedTrace:
    """Return the recording that ``acceptance=NAME`` reads.

    Raises
    ------
    SpecsimError
        When no recording of that name ships.
    """
    path = shipped("conf") / "acceptance" / f"{name}.parquet"
    if not path.is_file():
        there = [each for each in names("acceptance") if path.with_stem(each).is_file()]
        raise SpecsimError(f"no recording {name!r} ships; expected one of {', '.join(there)}")
    return read_acceptance_trace(path)


def confidence_table(name: str) -> DataFrame:
    """Return a row per bin of confidence of a shipped recording, all categories together.

    Columns: ``pair`` (the name), ``temperature``, ``confidence`` (mean), ``accepted`` (share right), ``half_width`` (of
    its 95% interval, by texts), ``proposals``. A bin without a proposal has no row.
    """
    from pandas import DataFrame

    acceptance_trace = shipped_recording(name)
    every = [on_path(acceptance_trace, category) for category in acceptance_trace.categories]
    # Texts are numbered within their category.
    each = [(of.confidence, of.right, place + len(every) * of.text, of.proposed) for place, of in enumerate(every)]
    columns = map(np.concatenate, zip(*each, strict=True))
    rows = DataFrame(dict(zip(("confidence", "right", "text", "made"), columns, strict=True))).query("made")
    temperature, found = float(acceptance_trace.about["temperature"]), []
    for _, some in rows.groupby(np.minimum((rows.confidence * BINS).astype(int), BINS - 1)):
        reach = half_width(some.right.to_numpy(np.int64), some.text.to_numpy())
        found.append((name, temperature, some.confidence.mean(), some.right.mean(), reach, len(some)))
    return DataFrame(found, columns=["pair", "temperature", "confidence", "accepted", "half_width", "proposals"])


def chain_table(name: str, longest: int = 8) -> DataFrame:
    """Return a row per category and length of chain of a shipped recording, each text verified in rounds.

    A round begins behind the bonus token of the one before, as on a server: easy stretches, which many tokens pass at
    once, are met less often than by position. Columns: ``category``, ``draft_tokens`` (1 to `longest`),
    ``accepted_tokens`` (mean of a round), ``half_width`` (of its 95% interval, by texts), ``rounds``.
    """
    from pandas import DataFrame

    acceptance_trace, found = shipped_recording(name), []
    for category in acceptance_trace.categories:
        rows = on_path(acceptance_trace, category)
        for draft_tokens in range(1, longest + 1):
            accepted, text = each_round(rows, draft_tokens)
            found.append((category, draft_tokens, accepted.mean(), half_width(accepted, text), len(accepted)))
    return DataFrame(found, columns=["category", "draft_tokens", "accepted_tokens", "half_width", "rounds"])


MAX_DEPTH = 8
MAX_WIDTH = 3
"""The greatest depth and width of the chains and beams compared."""
DRAWN_TEXTS = 10_000


class Walks(NamedTuple):
    """Walks along texts, on which chains and beams are tried.

    Attributes
    ----------
    confidence : (rows, K). rank : (rows,). on : (walks, MAX_DEPTH) rows on the target's text.
    off_start, off_rows : (walks,) first row and number of rows of the off-path pool.
    text : (walks,) the text of each walk.
    """

    confidence: Floats
    rank: Ints
    on: Ints
    off_start: Ints
    off_rows: Ints
    text: Ints


class ComparedCurve(NamedTuple):
    """Accepted lengths of one shape, recorded and drawn.

    Attributes
    ----------
    total_variation : half the sum of |differences| of the two distributions over 0..depth.
    mean, mean_drawn : accepted tokens. error, half_width : standard error of the recorded mean, over texts, and half of
        its 95% interval.
    """

    depth: int
    width: int
    total_variation: float
    mean: float
    error: float
    half_width: float
    mean_drawn: float


def recorded_walks(acceptance_trace: RecordedTrace, category: str) -> Walks:
    """Return a walk from each position of a category with at least `MAX_DEPTH` positions of its text from there on.

    Off the path a row comes from the category's off-path pool, or from its texts if no pool was recorded.
    """
    rows = on_path(acceptance_trace, category)
    count = np.bincount(rows.text)[rows.text]
    first = rows.row[rows.position + MAX_DEPTH <= count]
    text = rows.text[rows.position + MAX_DEPTH <= count]
    pool = acceptance_trace.rows_of(category, on_path=False)
    pool = pool if len(pool) else rows.row
    # Rows of the pool are put together, so that a walk can choose one by its offset.
    confidence = np.concatenate((acceptance_trace.confidence, acceptance_trace.confidence[pool]))
    rank = np.concatenate((acceptance_trace.rank, acceptance_trace.rank[pool]))
    same = np.ones(len(first), dtype=np.int64)
    return Walks(
        confidence, rank, first[:, None] + np.arange(MAX_DEPTH), len(acceptance_trace) * same, len(pool) * same, text
    )


def drawn_walks(acceptance: Acceptance, category: str) -> Walks:
    """Return one walk along each of many texts drawn from the curves."""
    many = np.arange(DRAWN_TEXTS)
    acceptance_trace = acceptance.acceptance_trace([category], np.zeros(DRAWN_TEXTS, dtype=np.int64), many, 0)
    layout = acceptance_trace.layout
    assert isinstance(layout, Pools | Stretches)
    request, position = np.repeat(many, MAX_DEPTH), np.tile(np.arange(MAX_DEPTH), DRAWN_TEXTS)
    keys = acceptance_trace.on_path(request, position)
    on = acceptance_trace.rows(request, keys, mix(keys), np.ones(len(request), np.bool_), position).reshape(
        DRAWN_TEXTS, MAX_DEPTH
    )
    off_rows = layout.pool_rows * (STRETCHES if isinstance(layout, Stretches) else 1)
    return Walks(
        acceptance_trace.confidence, acceptance_trace.rank, on, layout.start, np.full(DRAWN_TEXTS, off_rows), many
    )


def accepted_lengths(walks: Walks, width: int) -> Ints:
    """Return the accepted tokens of each walk for beams of depth 1, 2, ..., (walks, MAX_DEPTH).

    A beam keeps the `width` likeliest paths of each depth, and every leaf proposes its `width` likeliest tokens. The
    target's path is accepted as far as the beam holds it.
    """
    rng = np.random.default_rng(0)
    count = len(walks.on)
    probability, right = np.ones((count, 1)), np.ones((count, 1), dtype=np.bool_)
    held = np.zeros((count, MAX_DEPTH), dtype=np.bool_)
    for level in range(MAX_DEPTH):
        away = walks.off_start[:, None] + (rng.random(right.shape) * walks.off_rows[:, None]).astype(np.int64)
        row = np.where(right, walks.on[:, level, None], away)
        path = (probability[:, :, None] * walks.confidence[row][:, :, :width]).reshape(count, -1)
        true = (right[:, :, None] & (walks.rank[row][:, :, None] == np.arange(width))).reshape(count, -1)
        kept = np.argsort(-path, axis=1, kind="stable")[:, :width]
        probability, right = np.take_along_axis(path, kept, 1), np.take_along_axis(true, kept, 1)
        held[:, level] = right.any(axis=1)
    return np.cumsum(held, axis=1)


def compare(acceptance_trace: RecordedTrace, acceptance: Acceptance, category: str) -> list[ComparedCurve]:
    """Return recorded and drawn accepted lengths of a category, for every shape whose width both have."""
    recorded, drawn = recorded_walks(acceptance_trace, category), drawn_walks(acceptance, category)
    found = []
    for width in range(1, min(MAX_WIDTH, acceptance_trace.width, acceptance.width) + 1):
        ours, theirs = accepted_lengths(recorded, width), accepted_lengths(drawn, width)
        for depth in range(1, MAX_DEPTH + 1):
            both = ours[:, depth - 1], theirs[:, depth - 1]
            share, other = (np.bincount(each, minlength=depth + 1) / len(each) for each in both)
            mean, mean_drawn = (float(each.mean()) for each in both)
            apart = float(np.abs(share - other).sum() / 2)
            error, half = (each(both[0], recorded.text) for each in (clustered_error, half_width))
            found.append(ComparedCurve(depth, width, apart, mean, error, half, mean_drawn))
    return found
